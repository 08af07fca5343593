//! The fast path of a policy whose states fit a word. It knows the type of the rule, so that a decision on a
//! known or a new key makes no indirect calls.

use super::page_snapshot::{Ask, Counted, Known};
use super::seqlock::Lock;
use super::sink::OutcomeSink;
use super::tiers::{Counter, Tiers};
use crate::algorithm::{Algorithm, Pack};
use crate::clock::{Clock, Micros};

/// A counter whose states fit a word under its own limit.
pub(super) struct OneWord<S> {
    rule: S,
    tiers: Tiers,
}

impl<S: Pack> OneWord<S> {
    pub(super) fn new(rule: S, bound: usize, algorithm: Algorithm) -> Self {
        let tiers = Tiers::packed(&rule, bound, algorithm);
        Self { rule, tiers }
    }
}

impl<S: Pack> Counter for OneWord<S> {
    fn decide_at_once(
        &self,
        limit: Option<&Algorithm>,
        ask: Ask,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) -> Option<bool> {
        if limit.is_some() {
            return self.tiers.decide_at_once(limit, ask, now, sink);
        }
        let packed = self.tiers.packed_table()?;
        packed.decide_at_once_by(&self.rule, ask, now, sink)
    }

    fn decide_new_at_once(
        &self,
        ask: Ask,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) -> Result<bool, Counted> {
        let packed = self.tiers.packed_table().ok_or(Counted::Own)?;
        packed.decide_new_at_once_by(&self.rule, ask, now, sink)
    }

    fn look_up(&self, limit: Option<&Algorithm>, ask: Ask, now: Micros) -> Option<Known<'_>> {
        if limit.is_none()
            && let Some(known) = self.tiers.packed_table()?.look_up_by(&self.rule, ask, now)
        {
            return Some(known);
        }
        self.tiers.look_up(limit, ask, now)
    }

    fn charge_known(
        &self,
        limit: Option<&Algorithm>,
        known: &Known<'_>,
        ask: Ask,
        lock: &mut Lock<'_>,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) {
        match self.tiers.packed_table() {
            Some(packed) if !known.is_wide => {
                packed.charge_known_by(&self.rule, known, ask, lock, now, sink);
            }
            _ => self.tiers.charge_known(limit, known, ask, lock, now, sink),
        }
    }

    fn settle_at_once(&self, ask: Ask, clock: &dyn Clock) -> bool {
        let packed = self.tiers.packed_table();
        packed.is_some_and(|packed| packed.settle_at_once_by(&self.rule, ask, clock))
    }

    fn take_back_at_once(&self, ask: Ask, until: Micros, clock: &dyn Clock) -> bool {
        let packed = self.tiers.packed_table();
        packed.is_some_and(|packed| packed.take_back_at_once_by(&self.rule, ask, until, clock))
    }

    fn general(&self) -> &Tiers {
        &self.tiers
    }
}
