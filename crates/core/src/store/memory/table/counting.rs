//! What the tables of a policy ask a table, under the limit of a request.

use super::{Counted, Known, PageSnapshot, Probe, Table};
use crate::algorithm::Algorithm;
use crate::clock::{Clock, Micros};
use crate::store::memory::cell::{Keeps, OfTable};
use crate::store::memory::seqlock::Lock;
use crate::store::memory::sink::OutcomeSink;

/// The fast path of a table that is asked by its own rule, or by that of a request.
impl<R: OfTable, C: Keeps<R>> Table<R, C> {
    pub(in crate::store::memory) fn decide_at_once(
        &self,
        limit: Option<&Algorithm>,
        probe: Probe,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) -> Option<bool> {
        self.decide_at_once_by(&*self.rule_under(limit), probe, now, sink)
    }

    pub(in crate::store::memory) fn look_up(
        &self,
        limit: Option<&Algorithm>,
        probe: Probe,
        now: Micros,
    ) -> Option<Known<'_>> {
        self.look_up_by(&*self.rule_under(limit), probe, now)
    }

    pub(in crate::store::memory) fn charge_known(
        &self,
        limit: Option<&Algorithm>,
        known: &Known<'_>,
        probe: Probe,
        lock: &mut Lock<'_>,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) {
        self.charge_known_by(&*self.rule_under(limit), known, probe, lock, now, sink);
    }

    pub(in crate::store::memory) fn settle_at_once(&self, probe: Probe, clock: &dyn Clock) -> bool {
        self.settle_at_once_by(&self.rule, probe, clock)
    }

    pub(in crate::store::memory) fn take_back_at_once(
        &self,
        probe: Probe,
        until: Micros,
        clock: &dyn Clock,
    ) -> bool {
        self.take_back_at_once_by(&self.rule, probe, until, clock)
    }
}

impl<R: OfTable, C: Keeps<R>> Table<R, C> {
    /// Reads a key's page, and the limit that holds for the key. Returns `None` if the page is retired.
    pub(in crate::store::memory) fn look_at(
        &self,
        probe: Probe,
        limit: Option<&Algorithm>,
        counted: Counted,
        clock: &dyn Clock,
    ) -> Option<PageSnapshot> {
        let (_, mut snapshot) = self.snapshot(probe, counted, None)?;
        snapshot.own = self.own(probe, limit, self.time(clock), clock);
        Some(snapshot)
    }

    /// Locks a key's page, and reads it and the limit that holds for the key. Returns `None` if the page is
    /// retired.
    pub(in crate::store::memory) fn lock_and_look_at(
        &self,
        probe: Probe,
        limit: Option<&Algorithm>,
        counted: Counted,
        clock: &dyn Clock,
    ) -> Option<(PageSnapshot, Lock<'_>)> {
        let (mut snapshot, lock) = self.snapshot_and_lock(probe, counted, None)?;
        snapshot.own = self.own(probe, limit, self.time(clock), clock);
        Some((snapshot, lock))
    }

    /// Returns the time, if any override has to be compared with it.
    fn time(&self, clock: &dyn Clock) -> Micros {
        if self.overrides.are_any() {
            return clock.now().min(self.until);
        }
        Micros::ZERO
    }
}
