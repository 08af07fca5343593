//! Demands of policies on single requests: a ceiling on the cost of a request, and a reserve that requests of
//! low priority leave.
//!
//! The store knows neither. A request above the ceiling asks for more than any limit. A request of low
//! priority asks under the limit without the reserve, for the same state.

use crate::algorithm::{Algorithm, Limit};
use crate::policy::{Policy, Terms};
use crate::store::Charge;

/// The demands of all policies, by index; `None` if no policy demands anything.
pub(super) struct Demands(Option<Box<[Demand]>>);

struct Demand {
    terms: Terms,
    algorithm: Algorithm,
}

/// No limit is this high: see [`Policy::most`].
const ABOVE_ANY_LIMIT: u32 = u32::MAX;

impl Demands {
    pub(super) fn of(policies: &[Policy]) -> Self {
        let demands = policies.iter().map(|policy| Demand {
            terms: policy.terms(),
            algorithm: *policy.algorithm(),
        });
        let demands: Box<[_]> = demands.collect();
        let are_any = demands.iter().any(|demand| !demand.terms.are_none());
        Self(are_any.then_some(demands))
    }

    /// Returns whether any policy demands anything.
    #[inline]
    pub(super) fn are_any(&self) -> bool {
        self.0.is_some()
    }

    /// Converts a charge to the question for the store, for a request of this priority. The cost is in units.
    #[inline]
    pub(super) fn apply(&self, charge: &mut Charge, is_low: bool) {
        if let Some(demands) = &self.0
            && let Some(demand) = demands.get(charge.policy)
        {
            demand.apply(charge, is_low);
        }
    }

    /// Returns the charge under the limit of all requests, to settle the real cost of a request, which may
    /// exceed what its priority allowed.
    pub(super) fn whole(&self, charge: Charge) -> Charge {
        let demands = self.0.as_deref().unwrap_or_default();
        match (charge.leaves, charge.limit, demands.get(charge.policy)) {
            (1.., Some(limit), Some(demand)) => Charge {
                limit: demand.algorithm.before_leaving(limit, charge.leaves),
                leaves: 0,
                ..charge
            },
            _ => charge,
        }
    }

    /// Returns the most units that one request can cost under the policies of these charges.
    pub(super) fn most_of(&self, charges: &[Charge], most: u32) -> u32 {
        let Some(demands) = &self.0 else {
            return most;
        };
        let asked = charges.iter().filter(|charge| !charge.is_soft);
        let ceilings = asked.filter_map(|charge| demands.get(charge.policy)?.terms.most());
        ceilings.min().map_or(most, |ceiling| ceiling.min(most))
    }
}

impl Demand {
    fn apply(&self, charge: &mut Charge, is_low: bool) {
        if self.terms.most().is_some_and(|most| charge.cost > most) {
            charge.cost = ABOVE_ANY_LIMIT;
        }
        let reserve = self.terms.reserve();
        if is_low && reserve > 0 {
            self.leave(charge, reserve);
        }
    }

    fn leave(&self, charge: &mut Charge, reserve: u32) {
        let Some(whole) = charge.limit.or_else(|| self.algorithm.limits()) else {
            return;
        };
        let left = self.algorithm.leaving(whole, reserve);
        let left = left.unwrap_or_else(|| Limit::new(0, 0));
        charge.limit = Some(left);
        charge.leaves = reserve;
        let under = self.algorithm.under(left);
        charge.window = under.and_then(|algorithm| algorithm.period());
    }
}
