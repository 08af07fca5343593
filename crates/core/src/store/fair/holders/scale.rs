//! What the rule has to know of a shared limit on concurrency.

use crate::algorithm::Algorithm;
use crate::clock::Micros;
use crate::policy::Fair;

/// What the rule has to know of the shared limit and of its tenants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::store) struct SlotScale {
    /// The slots of the whole limit.
    pub(in crate::store) limit: u32,
    /// How long a tenant counts that does not ask.
    pub(in crate::store) active_for: Micros,
    /// How many tenants are told apart.
    pub(in crate::store) tenants: usize,
}

impl SlotScale {
    /// Returns that of a policy with this algorithm, or `None` if it grants nothing.
    pub(in crate::store) fn of(algorithm: &Algorithm, fair: &Fair) -> Option<Self> {
        Some(Self {
            limit: algorithm.limit()?,
            active_for: fair.is_active_for(),
            tenants: fair.tenants(),
        })
    }
}
