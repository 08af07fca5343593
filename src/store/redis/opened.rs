use std::sync::atomic::{AtomicBool, Ordering};

use crate::algorithm::{Algorithm, Limit, Lua};
use crate::policy::{NamedPenalty, Penalty, Policy};
use crate::store::Charge;
pub(super) use crate::store::Charges;

/// A policy: its algorithm, and the suffix of the keys of its states.
pub(super) struct OpenedPolicy {
    pub(super) algorithm: Algorithm,
    pub(super) lua: Option<Lua>,
    pub(super) suffix: String,
    pub(super) penalty: Option<NamedPenalty>,
    /// Whether two requests of one key may have different limits.
    pub(super) limits_differ: bool,
    is_settled: AtomicBool,
}

impl OpenedPolicy {
    pub(super) fn new(policy: &Policy, suffix: String) -> Self {
        Self {
            algorithm: *policy.algorithm(),
            lua: policy.algorithm().lua(),
            suffix,
            penalty: policy.named_penalty(),
            limits_differ: policy.limits_differ(),
            is_settled: AtomicBool::new(policy.is_settled()),
        }
    }

    #[cfg(test)]
    pub(super) fn of(algorithm: Algorithm) -> Self {
        Self::new(&Policy::new("a", algorithm), String::new())
    }

    /// Notes that requests are charged after the fact, or get charges back: other nodes probably do the same.
    pub(super) fn note_settled(&self) {
        self.is_settled.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Relaxed)
    }

    /// Returns the algorithm, the rule, and the penalty for refusals.
    pub(super) fn rule_and_penalty(&self) -> (Algorithm, Option<Lua>, Option<Penalty>) {
        let penalty = self.penalty.as_ref().map(|named| named.penalty);
        (self.algorithm, self.lua, penalty)
    }

    /// Returns the algorithm under the limit of a charge, if that differs from the policy's.
    pub(super) fn under(&self, charge: &Charge) -> Option<Algorithm> {
        let limit = charge
            .limit
            .filter(|limit| self.algorithm.limits() != Some(*limit))?;
        self.algorithm.under(limit)
    }

    /// Returns the limit of a charge, if it differs from the policy's and the policy can have it.
    pub(super) fn own_limit(&self, charge: &Charge) -> Option<Limit> {
        self.under(charge)?.limits()
    }

    /// Returns the rule under the limit of a charge.
    pub(super) fn rule(&self, charge: &Charge) -> Option<Lua> {
        match self.under(charge) {
            Some(algorithm) => algorithm.lua(),
            None => self.lua,
        }
    }
}
