//! Decisions on a key that has no slot yet.

use std::borrow::Cow;

use super::{Counted, PageSnapshot, Probe, Table, Undecided};
use crate::algorithm::Step;
use crate::clock::Micros;
use crate::store::memory::cell::{Keeps, OfTable};
use crate::store::memory::page::Page;
use crate::store::memory::sink::OutcomeSink;

/// A flood of new keys takes this path, so it is compiled for each rule, as the path of a known key is.
impl<R: OfTable, C: Keeps<R>> Table<R, C> {
    /// Decides a new key at the first look at its page, by the table's own rule. If the key is not new, or
    /// the case is not the common one, returns where it is counted, as far as that is known.
    #[inline]
    pub(in crate::store::memory) fn decide_new_at_once_by<S: Step>(
        &self,
        rule: &S,
        probe: Probe,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) -> Result<bool, Counted>
    where
        C: Keeps<S>,
    {
        let snapshot = self.snapshot(probe, Counted::Own, None);
        let (page, snapshot) = snapshot.ok_or(Counted::Own)?;
        let is_known = || page.find(probe.fingerprint).is_some();
        if now < snapshot.latest
            || now > self.until
            || self.may_be_overridden(probe.fingerprint, now)
            || is_known()
        {
            return Err(Counted::Own);
        }
        let rules = (rule, || Cow::Borrowed(rule));
        let decided = self.decide_new(rules, (page, &snapshot), probe, now, sink);
        decided.map_err(|undecided| match undecided {
            Undecided::Crowded => Counted::Overflow,
            Undecided::Changed | Undecided::NoRoom => Counted::Own,
        })
    }

    /// Decides a key that has no slot. The rule of the request decides, and `slowest` says which other keys
    /// are as good as new.
    #[inline(never)]
    pub(super) fn decide_new<'a, S: Step>(
        &self,
        (rule, slowest): (&S, impl FnOnce() -> Cow<'a, S>),
        (page, snapshot): (&Page<C>, &PageSnapshot),
        probe: Probe,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) -> Result<bool, Undecided>
    where
        C: Keeps<S>,
    {
        if !page.seqlock.still_is(snapshot.seen) {
            return Err(Undecided::Changed);
        }
        let may_lack_room = snapshot.counted == Counted::Own && !snapshot.is_overridden();
        if may_lack_room && self.is_crowded(now, snapshot.index) {
            return Err(Undecided::Crowded);
        }
        let state = S::Form::default();
        let allowed = rule.allows(&state, now, probe.cost);
        if !allowed || probe.cost == 0 {
            if may_lack_room && !self.has_room(snapshot, now) {
                return Err(Undecided::Crowded);
            }
            Self::write_outcome((rule, &state), probe, now, allowed, snapshot, sink);
            return Ok(allowed);
        }
        let Some(mut lock) = page.seqlock.lock(snapshot.seen) else {
            return Err(Undecided::Changed);
        };
        let slowest = slowest();
        let placed = self.place_by(&*slowest, (page, snapshot), probe, &mut lock, now);
        let Ok(cell) = placed else {
            return Err(Undecided::NoRoom);
        };
        let rules = (rule, &*slowest);
        let place = (page, snapshot, cell);
        self.charge_new(rules, place, probe, &mut lock, now, sink);
        drop(lock);
        self.grow(now);
        Ok(true)
    }
}
