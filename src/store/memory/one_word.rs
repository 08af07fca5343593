//! The fast path of a policy whose states fit a word. It knows the type of the rule, so that a decision on a
//! known or a new key makes no indirect calls.

use super::counter::{Counter, General, OutcomeSink};
use super::page_snapshot::{Ask, Counted, Known};
use super::prepared::{LimitSource, RuleSlot};
use super::seqlock::Lock;
use super::tiers::Tiers;
use crate::algorithm::{Algorithm, Pack, State};
use crate::clock::{Clock, Micros};

/// A counter whose states fit a word under its own limit.
pub(super) struct OneWord<S> {
    rule: S,
    tiers: Tiers,
}

impl<S: Pack> OneWord<S> {
    pub(super) fn new(rule: S, bound: usize, algorithm: Algorithm) -> Self {
        let tiers = Tiers::new(&rule, bound, algorithm);
        Self { rule, tiers }
    }

    /// Puts keys into a counter that has none, as far as there is room. Tells how many there are then, and for how many
    /// there was none.
    pub(super) fn restore(&self, keys: Vec<(u64, State)>, now: Micros) -> (usize, usize) {
        self.tiers.packed().restore(keys, now)
    }

    #[inline]
    fn is_own(&self, limit: LimitSource<'_>) -> bool {
        match limit {
            LimitSource::Prepared(place) => place == RuleSlot::OWN,
            LimitSource::Limit(limit) => limit == self.tiers.algorithm(),
        }
    }
}

impl<S: Pack> Counter for OneWord<S> {
    fn decide_at_once(
        &self,
        ask: Ask,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) -> Option<bool> {
        self.tiers
            .packed()
            .decide_at_once_by(&self.rule, ask, now, sink)
    }

    fn decide_new_at_once(
        &self,
        ask: Ask,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) -> Result<bool, Counted> {
        self.tiers
            .packed()
            .decide_new_at_once_by(&self.rule, ask, now, sink)
    }

    fn decide_at_once_under(
        &self,
        limit: LimitSource<'_>,
        ask: Ask,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) -> Option<bool> {
        if self.is_own(limit) {
            return self.decide_at_once(ask, now, sink);
        }
        let wide = self.tiers.wide()?;
        wide.decide_at_once_under(limit, ask, now, sink)
    }

    fn look_up(&self, ask: Ask, now: Micros) -> Option<Known<'_>> {
        let packed = self.tiers.packed();
        if let Some(known) = packed.look_up_by(&self.rule, ask, now) {
            return Some(known);
        }
        let known = self.tiers.wide()?.look_up(ask, now)?;
        Some(known.widely())
    }

    fn look_up_under(&self, limit: LimitSource<'_>, ask: Ask, now: Micros) -> Option<Known<'_>> {
        if self.is_own(limit) {
            return self.look_up(ask, now);
        }
        let known = self.tiers.wide()?.look_up_under(limit, ask, now)?;
        Some(known.widely())
    }

    fn charge_known(
        &self,
        known: &Known<'_>,
        ask: Ask,
        lock: &mut Lock<'_>,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) {
        let packed = self.tiers.packed();
        match self.tiers.wide().filter(|_| known.is_wide) {
            Some(wide) => wide.charge_known(known, ask, lock, now, sink),
            None => packed.charge_known_by(&self.rule, known, ask, lock, now, sink),
        }
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
        match self.tiers.wide().filter(|_| !self.is_own(limit)) {
            Some(wide) => wide.charge_known_under(limit, known, ask, lock, now, sink),
            None => self.charge_known(known, ask, lock, now, sink),
        }
    }

    fn settle_at_once(&self, ask: Ask, clock: &dyn Clock) -> bool {
        let packed = self.tiers.packed();
        packed.settle_at_once_by(&self.rule, ask, clock)
    }

    fn take_back_at_once(&self, ask: Ask, until: Micros, clock: &dyn Clock) -> bool {
        let packed = self.tiers.packed();
        packed.take_back_at_once_by(&self.rule, ask, until, clock)
    }

    fn prepare(&self, limit: &Algorithm) -> Option<RuleSlot> {
        if limit == self.tiers.algorithm() {
            return Some(RuleSlot::OWN);
        }
        self.tiers.wide()?.prepare(limit)
    }

    fn general(&self) -> &dyn General {
        &self.tiers
    }
}
