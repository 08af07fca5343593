//! The fast path of a policy whose states fit a word. It knows the type of the rule, so that a decision on a
//! known or a new key makes no indirect calls.

use super::page_snapshot::{Counted, Known, Probe};
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
        probe: Probe,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) -> Option<bool> {
        if limit.is_some() {
            return self.tiers.decide_at_once(limit, probe, now, sink);
        }
        let packed = self.tiers.packed_table()?;
        packed.decide_at_once_by(&self.rule, probe, now, sink)
    }

    fn decide_new_at_once(
        &self,
        probe: Probe,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) -> Result<bool, Counted> {
        let packed = self.tiers.packed_table().ok_or(Counted::Own)?;
        packed.decide_new_at_once_by(&self.rule, probe, now, sink)
    }

    fn look_up(&self, limit: Option<&Algorithm>, probe: Probe, now: Micros) -> Option<Known<'_>> {
        if limit.is_none()
            && let Some(known) = self
                .tiers
                .packed_table()?
                .look_up_by(&self.rule, probe, now)
        {
            return Some(known);
        }
        self.tiers.look_up(limit, probe, now)
    }

    fn charge_known(
        &self,
        limit: Option<&Algorithm>,
        known: &Known<'_>,
        probe: Probe,
        lock: &mut Lock<'_>,
        now: Micros,
        sink: Option<&mut OutcomeSink<'_>>,
    ) {
        match self.tiers.packed_table() {
            Some(packed) if !known.is_wide => {
                packed.charge_known_by(&self.rule, known, probe, lock, now, sink);
            }
            _ => self
                .tiers
                .charge_known(limit, known, probe, lock, now, sink),
        }
    }

    fn settle_at_once(&self, probe: Probe, clock: &dyn Clock) -> bool {
        let packed = self.tiers.packed_table();
        packed.is_some_and(|packed| packed.settle_at_once_by(&self.rule, probe, clock))
    }

    fn take_back_at_once(&self, probe: Probe, until: Micros, clock: &dyn Clock) -> bool {
        let packed = self.tiers.packed_table();
        packed.is_some_and(|packed| packed.take_back_at_once_by(&self.rule, probe, until, clock))
    }

    fn general(&self) -> &Tiers {
        &self.tiers
    }
}
