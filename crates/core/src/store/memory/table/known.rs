//! The fast path: a key in one of its own slots, on a page at rest.

use super::{Counted, Known, PageSnapshot, Probe, Table, Undecided, moved_back};
use crate::algorithm::Step;
use crate::clock::Micros;
use crate::store::memory::cell::{Keeps, OfTable};
use crate::store::memory::page::Page;
use crate::store::memory::seqlock::Lock;
use crate::store::memory::sink::OutcomeSink;

/// Decisions on known keys by any rule whose states the cells hold. A request asks either the rule of the
/// table, or the same rule by a type that is faster to ask.
impl<R: OfTable, C: Keeps<R>> Table<R, C> {
    /// Decides a key that is in one of its own slots, as nearly all are, unless another thread changes the
    /// page.
    #[expect(
        clippy::inline_always,
        reason = "without a limit of the request, nothing is left of it"
    )]
    #[inline(always)]
    pub(in crate::store::memory) fn decide_at_once_by<S: Step>(
        &self,
        rule: &S,
        probe: Probe,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) -> Option<bool>
    where
        C: Keeps<S>,
    {
        let (page, index) = self.pages.at(probe.fingerprint);
        let seen = page.seqlock.seen_at_rest()?;
        // If the page was split before this, its key is not found on it.
        let slot = page.find_soon(probe.fingerprint)?;
        if now < page.latest() || now > self.until || self.may_be_overridden(probe.fingerprint, now)
        {
            return None;
        }
        let snapshot = PageSnapshot {
            index,
            seen,
            // The debt then and what is left of it now decide alike, and the second takes fewer instructions.
            latest: now,
            counted: Counted::Own,
            own: None,
        };
        let known = (rule, &slot.cell);
        let decided = self.decide_known((page, &snapshot), known, probe, now, sink);
        decided.ok()
    }

    /// Finds a key as [`decide_at_once_by`](Self::decide_at_once_by) does, and checks whether it may be
    /// charged.
    #[inline]
    pub(in crate::store::memory) fn look_up_by<S: Step>(
        &self,
        rule: &S,
        probe: Probe,
        now: Micros,
    ) -> Option<Known<'_>>
    where
        C: Keeps<S>,
    {
        let (page, index) = self.pages.at(probe.fingerprint);
        let seen = page.seqlock.seen_at_rest()?;
        let slot = page.find_soon(probe.fingerprint)?;
        if probe.cost == 0 || now < page.latest() || now > self.until {
            return None;
        }
        if self.may_be_overridden(probe.fingerprint, now) {
            return None;
        }
        let state = slot.cell.see(rule, now);
        if !page.seqlock.still_is(seen) {
            return None;
        }
        let is_allowed = rule.allows(&state, now, probe.cost);
        Some(Known {
            seqlock: &page.seqlock,
            seen,
            index,
            is_allowed,
            is_wide: false,
        })
    }

    /// Charges a key that was found. Its page is locked.
    #[inline]
    pub(in crate::store::memory) fn charge_known_by<S: Step>(
        &self,
        rule: &S,
        known: &Known<'_>,
        probe: Probe,
        lock: &mut Lock<'_>,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) where
        C: Keeps<S>,
    {
        let page = self.pages.page(known.index);
        let Some(slot) = page.find_soon(probe.fingerprint) else {
            return;
        };
        let snapshot = PageSnapshot {
            index: known.index,
            seen: known.seen,
            latest: now,
            counted: Counted::Own,
            own: None,
        };
        let seen = slot.cell.see(rule, now);
        self.charge(
            (page, &snapshot),
            (rule, &slot.cell, seen),
            probe,
            lock,
            now,
            sink,
        );
    }

    /// Decides a key that has a slot.
    #[expect(
        clippy::inline_always,
        reason = "a caller who knows that time went on needs half of it"
    )]
    #[inline(always)]
    pub(super) fn decide_known<S: Step>(
        &self,
        (page, snapshot): (&Page<C>, &PageSnapshot),
        (rule, cell): (&S, &C),
        probe: Probe,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) -> Result<bool, Undecided>
    where
        C: Keeps<S>,
    {
        let mut seen = cell.see(rule, snapshot.latest);
        // Checked before the state is used: a state that was read in the middle of a change makes no sense.
        if !page.seqlock.still_is(snapshot.seen) {
            return Err(Undecided::Changed);
        }
        let moved = moved_back(rule, &seen, snapshot, now);
        let state = moved.as_ref().unwrap_or(&seen);
        let allowed = rule.allows(state, now, probe.cost);
        if !allowed || probe.cost == 0 {
            Self::write_outcome((rule, state), probe, now, allowed, snapshot, sink);
            return Ok(allowed);
        }
        if C::IS_SHORT {
            // A copy, which is not written if the page has changed: the page is locked for less time.
            rule.charge(&mut seen, now, probe.cost);
        }
        let Some(mut lock) = page.seqlock.lock(snapshot.seen) else {
            return Err(Undecided::Changed);
        };
        let place = (page, snapshot);
        if C::IS_SHORT {
            self.put((place, cell), (rule, seen), probe, &mut lock, now, sink);
        } else {
            self.charge(place, (rule, cell, seen), probe, &mut lock, now, sink);
        }
        Ok(true)
    }
}
