use smallvec::SmallVec;

use crate::algorithm::{Algorithm, Limit, Lua};
use crate::store::Charge;

pub(super) type Charges = SmallVec<[Charge; 4]>;

/// A policy: its algorithm, and how the keys of its states end.
pub(super) struct OpenedPolicy {
    pub(super) algorithm: Algorithm,
    pub(super) lua: Option<Lua>,
    pub(super) suffix: String,
}

impl OpenedPolicy {
    /// The algorithm under the limit of a charge, if that is another than the policy's.
    pub(super) fn under(&self, charge: &Charge) -> Option<Algorithm> {
        let limit = charge
            .limit
            .filter(|limit| self.algorithm.limits() != Some(*limit))?;
        self.algorithm.under(limit)
    }

    /// The limit of a charge, if it is another than the policy's and the policy can have it.
    pub(super) fn own_limit(&self, charge: &Charge) -> Option<Limit> {
        self.under(charge)?.limits()
    }

    /// The rule under the limit of a charge.
    pub(super) fn rule(&self, charge: &Charge) -> Option<Lua> {
        match self.under(charge) {
            Some(algorithm) => algorithm.lua(),
            None => self.lua,
        }
    }
}
