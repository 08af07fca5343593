//! Writes charges into a page, and tells the outcomes.

use std::sync::atomic::Ordering;

use super::{Counted, NoRoom, PageSnapshot, Probe, Table};
use crate::algorithm::Step;
use crate::clock::Micros;
use crate::store::memory::cell::{Keeps, OfTable};
use crate::store::memory::page::Page;
use crate::store::memory::seqlock::Lock;
use crate::store::memory::sink::OutcomeSink;

/// Writes charges, and the outcomes of requests.
impl<R: OfTable, C: Keeps<R>> Table<R, C> {
    /// Writes the outcome of a request, if it is wanted.
    #[expect(clippy::inline_always, reason = "most requests want none")]
    #[inline(always)]
    pub(super) fn write_outcome<S: Step>(
        (rule, state): (&S, &S::Form),
        probe: Probe,
        now: Micros,
        allowed: bool,
        snapshot: &PageSnapshot,
        sink: Option<&mut OutcomeSink<'_>>,
    ) {
        if let Some(sink) = sink
            && sink.wanted.includes(allowed)
        {
            let how = (
                snapshot.counted,
                snapshot.own.is_some_and(|own| own.is_overridden),
            );
            if C::IS_SHORT {
                put_down((rule, &state.clone()), probe.cost, now, allowed, how, sink);
            } else {
                put_down((rule, state), probe.cost, now, allowed, how, sink);
            }
        }
    }

    /// Makes a place for a new key. The page is locked.
    pub(super) fn place<'a>(
        &'a self,
        page: (&'a Page<C>, &PageSnapshot),
        probe: Probe,
        lock: &mut Lock<'_>,
        now: Micros,
    ) -> Result<&'a C, NoRoom> {
        self.place_by(&*self.slowest(), page, probe, lock, now)
    }

    /// Makes a place for a new key. The rule says which other keys are as good as new.
    #[inline]
    pub(super) fn place_by<'a, S: Step>(
        &'a self,
        slowest: &S,
        (page, snapshot): (&'a Page<C>, &PageSnapshot),
        probe: Probe,
        lock: &mut Lock<'_>,
        now: Micros,
    ) -> Result<&'a C, NoRoom>
    where
        C: Keeps<S>,
    {
        lock.changes();
        let fingerprint = snapshot.fingerprint(probe);
        let place = match snapshot.counted {
            Counted::Own => match self.room(slowest, (page, snapshot), fingerprint, now) {
                Some(place) => place,
                None if snapshot.is_overridden() => {
                    self.budget.exceed(1);
                    self.pages.room(page, fingerprint)
                }
                None => return Err(NoRoom),
            },
            Counted::Overflow => self.pages.room(page, fingerprint),
        };
        place.take(fingerprint);
        let cell = &place.slot().cell;
        cell.put(slowest, S::Form::default());
        Ok(cell)
    }

    /// Charges a key whose state was read. The page is locked.
    #[expect(clippy::inline_always, reason = "as for the fast path")]
    #[inline(always)]
    pub(super) fn charge<S: Step>(
        &self,
        (page, snapshot): (&Page<C>, &PageSnapshot),
        (rule, cell, mut seen): (&S, &C, <C as Keeps<S>>::Seen<'_>),
        probe: Probe,
        lock: &mut Lock<'_>,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) where
        C: Keeps<S>,
    {
        let before = rule.size(&seen);
        rule.charge(&mut seen, now, probe.cost);
        self.resize(rule, &mut seen, before);
        self.put(
            ((page, snapshot), cell),
            (rule, seen),
            probe,
            lock,
            now,
            sink,
        );
    }

    /// Writes a state that is charged. The page is locked.
    #[expect(clippy::inline_always, reason = "as for the fast path")]
    #[inline(always)]
    pub(super) fn put<S: Step>(
        &self,
        ((page, snapshot), cell): ((&Page<C>, &PageSnapshot), &C),
        (rule, seen): (&S, <C as Keeps<S>>::Seen<'_>),
        probe: Probe,
        lock: &mut Lock<'_>,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) where
        C: Keeps<S>,
    {
        lock.changes();
        page.set_latest(now);
        if snapshot.counted == Counted::Overflow {
            self.overflowed.fetch_add(1, Ordering::Relaxed);
        }
        Self::write_outcome((rule, &seen), probe, now, true, snapshot, sink);
        cell.keep(rule, seen);
    }

    /// Charges a new key that was given a place. The page is locked.
    #[inline]
    pub(super) fn charge_new<S: Step>(
        &self,
        (rule, slowest): (&S, &S),
        (page, snapshot, cell): (&Page<C>, &PageSnapshot, &C),
        probe: Probe,
        lock: &mut Lock<'_>,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) where
        C: Keeps<S>,
    {
        let seen = cell.see(rule, snapshot.latest);
        self.charge((page, snapshot), (rule, cell, seen), probe, lock, now, sink);
        if snapshot.counted == Counted::Own {
            let state = cell.see(rule, page.latest());
            self.index_new_key(slowest, &state, snapshot.index, now);
        }
    }

    /// Notes in the expiry index when a new key can be evicted.
    #[inline]
    pub(super) fn index_new_key<S: Step>(
        &self,
        slowest: &S,
        state: &S::Form,
        index: usize,
        now: Micros,
    ) {
        let reset = now.saturating_add(slowest.reset_after(state, now));
        self.idle.lower_to(index, reset);
        self.admitting.lower_to(index, now);
    }

    /// Accounts for what a charge has added or removed.
    #[inline]
    pub(super) fn resize<S: Step>(&self, rule: &S, state: &mut S::Form, before: usize) {
        let mut after = rule.size(state);
        if after > before && !self.budget.reserve(after - before) {
            rule.compact_state(state);
            after = rule.size(state);
            self.budget.exceed(after.saturating_sub(before));
        }
        self.budget.free(before.saturating_sub(after));
    }
}

/// A function of its own, so that a request that wants no numbers does not carry them along.
#[inline(never)]
fn put_down<S: Step>(
    (rule, state): (&S, &S::Form),
    cost: u32,
    now: Micros,
    allowed: bool,
    (counted, is_overridden): (Counted, bool),
    sink: &mut OutcomeSink<'_>,
) {
    let mut outcome = rule.outcome(state, now, cost, allowed);
    if counted == Counted::Overflow {
        outcome = outcome.overflowed();
    }
    if is_overridden {
        let window = (rule.limit() > 0).then(|| rule.window().to_duration());
        outcome = outcome.overridden(window);
    }
    sink.put_down(outcome, now);
}
