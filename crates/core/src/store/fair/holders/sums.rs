//! The sums over tenants from which the level follows.

use super::holder::{Holder, Standing};
use crate::store::fair::times::in_all;

/// The tenants of each standing together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub(super) hungry_weights: u64,
    pub(super) full_weights: u64,
    /// The slots that are held by the full tenants, by the sated ones, and by those that are away.
    full: u64,
    pub(super) sated: u64,
    away: u64,
    /// The slots that the sated tenants want.
    pub(super) wanted: u64,
}

impl Sums {
    /// Returns how many slots the level gives to a tenant of this weight that is in none of the sums.
    pub(super) fn level(&self, limit: u32, weight: u32) -> f64 {
        let taken = self.wanted + self.full + self.away;
        let left = u64::from(limit).saturating_sub(taken);
        let weights = self.hungry_weights + u64::from(weight);
        in_all(left) * f64::from(weight) / in_all(weights)
    }

    /// Returns how fast virtual time goes on: by the part of the limit that tenants share which want more than they have.
    pub(super) fn pace(&self, limit: u32) -> f64 {
        let (left, weights) = self.shared(limit);
        if weights > 0.0 {
            left / f64::from(limit.max(1)) / weights
        } else {
            1.0
        }
    }

    /// Returns the slots that tenants share which want more than they have, and the weights of these.
    pub(super) fn shared(&self, limit: u32) -> (f64, f64) {
        let left = u64::from(limit).saturating_sub(self.sated + self.away);
        let weights = self.hungry_weights + self.full_weights;
        (in_all(left), in_all(weights))
    }

    pub(super) fn count_out(&mut self, tenant: &Holder) {
        let (weight, held) = (u64::from(tenant.weight), u64::from(tenant.held));
        match tenant.standing {
            Standing::Hungry => self.hungry_weights -= weight,
            Standing::Full => {
                self.full_weights -= weight;
                self.full -= held;
            }
            Standing::Sated => {
                self.sated -= held;
                self.wanted -= u64::from(tenant.wants);
            }
            Standing::Away => self.away -= held,
        }
    }

    pub(super) fn count_in(&mut self, tenant: &Holder) {
        let (weight, held) = (u64::from(tenant.weight), u64::from(tenant.held));
        match tenant.standing {
            Standing::Hungry => self.hungry_weights += weight,
            Standing::Full => {
                self.full_weights += weight;
                self.full += held;
            }
            Standing::Sated => {
                self.sated += held;
                self.wanted += u64::from(tenant.wants);
            }
            Standing::Away => self.away += held,
        }
    }
}
