//! The traits of a counter for a table with one limit.

use super::{Ask, Counted, Known, PageSnapshot, Settled, Table};
use crate::algorithm::{Algorithm, State, Step};
use crate::clock::{Clock, Micros};
use crate::store::Amendment;
use crate::store::memory::cell::Keeps;
use crate::store::memory::counter::{Counter, Fill, General, OutcomeSink, Tier};
use crate::store::memory::prepared::{LimitSource, RuleSlot};
use crate::store::memory::seqlock::Lock;
use crate::store::memory::timed::{Full, Override};

/// A table that is asked by its own rule.
impl<R: Step, C: Keeps<R>> Counter for Table<R, C> {
    fn decide_at_once(
        &self,
        ask: Ask,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) -> Option<bool> {
        self.decide_at_once_by(&self.rule, ask, now, sink)
    }

    fn decide_at_once_under(
        &self,
        limit: LimitSource<'_>,
        ask: Ask,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) -> Option<bool> {
        let mut made = None;
        self.decide_at_once_by(self.rule_of(limit, &mut made)?, ask, now, sink)
    }

    fn look_up(&self, ask: Ask, now: Micros) -> Option<Known<'_>> {
        self.look_up_by(&self.rule, ask, now)
    }

    fn look_up_under(&self, limit: LimitSource<'_>, ask: Ask, now: Micros) -> Option<Known<'_>> {
        let mut made = None;
        self.look_up_by(self.rule_of(limit, &mut made)?, ask, now)
    }

    fn charge_known(
        &self,
        known: &Known<'_>,
        ask: Ask,
        lock: &mut Lock<'_>,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) {
        self.charge_known_by(&self.rule, known, ask, lock, now, sink);
    }

    fn charge_known_under(
        &self,
        limit: LimitSource<'_>,
        known: &Known<'_>,
        ask: Ask,
        lock: &mut Lock<'_>,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) {
        let mut made = None;
        if let Some(rule) = self.rule_of(limit, &mut made) {
            self.charge_known_by(rule, known, ask, lock, now, sink);
        }
    }

    fn settle_at_once(&self, ask: Ask, clock: &dyn Clock) -> bool {
        self.settle_at_once_by(&self.rule, ask, clock)
    }

    fn take_back_at_once(&self, ask: Ask, until: Micros, clock: &dyn Clock) -> bool {
        self.take_back_at_once_by(&self.rule, ask, until, clock)
    }

    fn prepare(&self, limit: &Algorithm) -> Option<RuleSlot> {
        self.prepare(limit)
    }

    fn general(&self) -> &dyn General {
        self
    }
}

/// A table that is never retired.
impl<R: Step, C: Keeps<R>> General for Table<R, C> {
    fn decide_in_the_end(
        &self,
        asked: (Ask, Counted),
        limit: Option<&Algorithm>,
        now: Micros,
        clock: &dyn Clock,
        sink: Option<&mut OutcomeSink<'_>>,
    ) -> bool {
        let decided = self.decide_in_the_end(asked, limit, clock, now, sink);
        decided.unwrap_or(false)
    }

    fn tier(&self) -> &dyn Tier {
        self
    }

    fn snapshot(
        &self,
        ask: Ask,
        limit: Option<&Algorithm>,
        counted: Counted,
        _: Micros,
        clock: &dyn Clock,
    ) -> (&dyn Tier, PageSnapshot) {
        let snapshot = self.look_at(ask, limit, counted, clock);
        (self, snapshot.unwrap_or_default())
    }

    fn snapshot_and_lock(
        &self,
        ask: Ask,
        limit: Option<&Algorithm>,
        counted: Counted,
        _: Micros,
        clock: &dyn Clock,
    ) -> (&dyn Tier, PageSnapshot, Lock<'_>) {
        loop {
            if let Some((snapshot, lock)) = self.lock_and_look_at(ask, limit, counted, clock) {
                return (self, snapshot, lock);
            }
        }
    }

    fn amend(
        &self,
        ask: Ask,
        limit: Option<&Algorithm>,
        clock: &dyn Clock,
        amendment: Amendment,
    ) -> bool {
        self.amend(ask, limit, clock, amendment).unwrap_or(true)
    }

    fn settle(&self, asked: (Ask, Counted), limit: Option<&Algorithm>, clock: &dyn Clock) {
        let settled = self.settle(asked, limit, clock);
        debug_assert_eq!(settled, Settled::Done);
    }

    fn override_limit(
        &self,
        fingerprint: u64,
        limit: Algorithm,
        length: Micros,
        clock: &dyn Clock,
    ) -> Result<(), Full> {
        self.override_limit(fingerprint, limit, length, clock)
    }

    fn end_override(&self, fingerprint: u64, clock: &dyn Clock) {
        self.end_override(fingerprint, clock);
    }

    fn each_override(&self, now: Micros) -> Vec<(u64, Override)> {
        self.each_override(now)
    }

    fn last_override_end(&self) -> Option<Micros> {
        self.last_override_end()
    }

    fn fill(&self) -> Fill {
        self.fill()
    }

    fn each_key(&self, now: Micros, tell: &mut dyn FnMut(u64, State)) {
        self.each_key(now, tell);
    }

    fn longest_reset(&self, now: Micros) -> Micros {
        self.longest_reset(now)
    }
}

impl<R: Step, C: Keeps<R>> Table<R, C> {
    /// Reads a key's page, and the limit that holds for the key. Returns `None` if the page is retired.
    pub(in crate::store::memory) fn look_at(
        &self,
        ask: Ask,
        limit: Option<&Algorithm>,
        counted: Counted,
        clock: &dyn Clock,
    ) -> Option<PageSnapshot> {
        let (_, mut snapshot) = self.snapshot(ask, counted, None)?;
        snapshot.own = self.own(ask, limit, self.time(clock), clock);
        Some(snapshot)
    }

    /// Locks a key's page, and reads it and the limit that holds for the key. Returns `None` if the page is
    /// retired.
    pub(in crate::store::memory) fn lock_and_look_at(
        &self,
        ask: Ask,
        limit: Option<&Algorithm>,
        counted: Counted,
        clock: &dyn Clock,
    ) -> Option<(PageSnapshot, Lock<'_>)> {
        let (mut snapshot, lock) = self.snapshot_and_lock(ask, counted, None)?;
        snapshot.own = self.own(ask, limit, self.time(clock), clock);
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
