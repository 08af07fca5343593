//! The weights of tenants, under limits that are divided among them.

use super::limits::RequestLimits;
use crate::plan::{LimitContext, Limits};
use crate::policy::Policy;

/// The weight of each plan under each policy.
#[derive(Debug)]
pub(super) struct Weights(Box<[Box<[u8]>]>);

impl Weights {
    /// Returns `None` if all tenants weigh the same.
    pub(super) fn of(policies: &[Policy], limits: Option<&RequestLimits>) -> Option<Self> {
        let limits = limits.map(RequestLimits::limits);
        let plans: Vec<&str> = limits.into_iter().flat_map(Limits::plan_names).collect();
        let of_policy = |policy: &Policy| -> Box<[u8]> {
            let weights = policy.fairness().map_or(&[][..], |fair| fair.weights());
            let weight = |plan: &&str| {
                let own = weights.iter().find(|(it, _)| it == plan);
                own.map_or(1, |(_, weight)| u8::try_from(*weight).unwrap_or(u8::MAX))
            };
            plans.iter().map(weight).collect()
        };
        let all: Box<[_]> = policies.iter().map(of_policy).collect();
        let differ = all.iter().flatten().any(|weight| *weight > 1);
        differ.then_some(Self(all))
    }

    /// Returns the weight of the tenant of a request.
    pub(super) fn of_request(&self, policy: usize, context: &LimitContext, limits: &Limits) -> u8 {
        let plan = context.plan.or_else(|| limits.plan(None));
        let of_policy = self.0.get(policy);
        let weight = plan.and_then(|plan| of_policy?.get(plan.place()));
        weight.copied().unwrap_or(1)
    }
}
