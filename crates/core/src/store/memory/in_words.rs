//! The fast path of a policy whose states take three words. It knows the type of the rule, so that a decision under the
//! limit of the policy need not look for the rule.

use super::page_snapshot::Probe;
use super::sink::OutcomeSink;
use super::tiers::{Counter, Tiers};
use crate::algorithm::{Algorithm, Fixed};
use crate::clock::Micros;

/// A counter whose states take three words. Under one policy a known key is decided by its rule, and all else by that of
/// any algorithm.
pub(super) struct InWords<S> {
    rule: S,
    tiers: Tiers,
}

impl<S: Fixed> InWords<S> {
    pub(super) fn new(rule: S, bound: usize, algorithm: Algorithm) -> Self {
        let tiers = Tiers::wide(bound, algorithm);
        Self { rule, tiers }
    }
}

impl<S: Fixed> Counter for InWords<S> {
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
        let wide = self.tiers.wide_table()?;
        wide.decide_at_once_by(&self.rule, probe, now, sink)
    }

    fn general(&self) -> &Tiers {
        &self.tiers
    }
}
