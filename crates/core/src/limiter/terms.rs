//! The terms of policies for single requests: a ceiling on the cost of a request, and a reserve that requests of
//! low priority leave.
//!
//! The store knows neither. A request above the ceiling asks for more than any limit. A request of low
//! priority asks under the limit without the reserve, for the same state.

use crate::algorithm::{Algorithm, Limit};
use crate::decision::WindowSecs;
use crate::policy::{Policy, Terms};
use crate::store::Charge;

/// The terms of all policies, by index; `None` if no policy has any.
pub(super) struct RequestTerms(Option<Box<[TermsOf]>>);

struct TermsOf {
    terms: Terms,
    algorithm: Algorithm,
}

/// No limit is this high: see [`Policy::most`].
const ABOVE_ANY_LIMIT: u32 = u32::MAX;

impl RequestTerms {
    pub(super) fn of(policies: &[Policy]) -> Self {
        let each = policies.iter().map(|policy| TermsOf {
            terms: policy.terms(),
            algorithm: *policy.algorithm(),
        });
        let each: Box<[_]> = each.collect();
        let are_any = each.iter().any(|its| !its.terms.are_none());
        Self(are_any.then_some(each))
    }

    /// Returns whether any policy has terms.
    #[inline]
    pub(super) fn are_any(&self) -> bool {
        self.0.is_some()
    }

    #[inline]
    fn of_policy(&self, policy: usize) -> Option<&TermsOf> {
        self.0.as_ref()?.get(policy)
    }

    /// Leaves the reserve of the policy to other requests.
    #[inline]
    pub(super) fn leave_reserve(&self, charge: &mut Charge) {
        if let Some(its) = self.of_policy(charge.policy) {
            its.leave_reserve(charge);
        }
    }

    /// Asks for more than any limit if the request costs more than the ceiling of the policy. The cost is in units.
    #[inline]
    pub(super) fn refuse_above_ceiling(&self, charge: &mut Charge) {
        let ceiling = self.ceiling(charge.policy);
        if ceiling.is_some_and(|most| charge.cost > most) {
            charge.cost = ABOVE_ANY_LIMIT;
        }
    }

    /// Puts a charge under the limit of all requests, to settle the real cost of a request, which may
    /// exceed what its priority allowed.
    pub(super) fn leave_nothing(&self, charge: &mut Charge) {
        if let (1.., Some(limit), Some(its)) =
            (charge.leaves, charge.limit, self.of_policy(charge.policy))
        {
            charge.limit = its.algorithm.before_leaving(limit, charge.leaves);
            charge.leaves = 0;
        }
    }

    /// Returns the most units that one request can cost under this policy.
    #[inline]
    pub(super) fn ceiling(&self, policy: usize) -> Option<u32> {
        self.of_policy(policy)?.terms.most()
    }
}

impl TermsOf {
    fn leave_reserve(&self, charge: &mut Charge) {
        let reserve = self.terms.reserve();
        if reserve == 0 {
            return;
        }
        let Some(whole) = charge.limit.or_else(|| self.algorithm.limits()) else {
            return;
        };
        let left = self.algorithm.leaving(whole, reserve);
        let left = left.unwrap_or_else(|| Limit::new(0, 0));
        charge.limit = Some(left);
        charge.leaves = reserve;
        let under = self.algorithm.under(left);
        let period = under.and_then(|algorithm| algorithm.period());
        charge.window = period.map(WindowSecs::of);
    }
}
