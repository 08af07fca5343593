//! The part that a tenant has of a limit which is divided.

use std::fmt;

/// The part that a tenant has of a limit which is [divided](crate::Policy::fair), beside the tenants that are active now.
///
/// The `Display` form is the share as a fraction: `4/7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantShare {
    tenants: u32,
    weight: u32,
    weights: u64,
}

impl TenantShare {
    /// Makes it of the weight of a tenant, and of how many others are active and what they weigh together.
    pub fn beside(weight: u32, others: u32, their_weights: u64) -> Self {
        let weight = weight.max(1);
        Self {
            tenants: others.saturating_add(1),
            weight,
            weights: their_weights.saturating_add(weight.into()),
        }
    }

    /// Makes it of the weight of a tenant, and of the weights of the others that are active.
    pub(super) fn beside_each(weight: u32, others: impl Iterator<Item = u32>) -> Self {
        let (mut tenants, mut weights) = (0_u32, 0_u64);
        for other in others {
            tenants += 1;
            weights += u64::from(other);
        }
        Self::beside(weight, tenants, weights)
    }

    /// Returns how many tenants are active, with this one, which need not have asked lately. Those that are not told apart are one.
    pub fn tenants(&self) -> u32 {
        self.tenants
    }

    /// Returns the weight of the tenant, 1 unless its plan has another one.
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// Returns its share of the limit, above 0 and up to 1: its weight divided by the weights of all.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a sum of weights that passes 2^53 is rounded"
    )]
    pub fn of_limit(&self) -> f64 {
        f64::from(self.weight) / self.weights as f64
    }
}

impl fmt::Display for TenantShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.weight, self.weights)
    }
}
