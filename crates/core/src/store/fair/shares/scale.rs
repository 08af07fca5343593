//! What the rule has to know of a shared limit.

use crate::algorithm::Algorithm;
use crate::clock::Micros;
use crate::policy::Fair;
use crate::store::fair::times::in_micros;

/// What the rule has to know of the shared limit and of its tenants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::store) struct Scale {
    /// The units of the whole limit.
    pub(in crate::store) limit: u32,
    /// The time in which the whole limit is granted anew.
    pub(in crate::store) fill: Micros,
    /// How long a tenant counts that does not ask.
    pub(in crate::store) active_for: Micros,
    /// How many tenants are told apart.
    pub(in crate::store) tenants: usize,
}

impl Scale {
    /// Returns that of a policy with this algorithm, or `None` if it grants nothing.
    pub(in crate::store) fn of(algorithm: &Algorithm, fair: &Fair) -> Option<Self> {
        Some(Self {
            limit: algorithm.limit()?,
            fill: algorithm.period()?.into(),
            active_for: fair.is_active_for(),
            tenants: fair.tenants(),
        })
    }

    /// Returns the time in which this many units are granted.
    pub(super) fn time_of(&self, units: u32) -> f64 {
        self.fill() / f64::from(self.limit.max(1)) * f64::from(units)
    }

    pub(super) fn fill(&self) -> f64 {
        in_micros(self.fill)
    }
}
