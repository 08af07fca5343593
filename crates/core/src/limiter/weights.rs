//! Tenants and their weights, under limits that are divided among them.

use super::limits::RequestLimits;
use crate::key::Key;
use crate::plan::{ChosenPlan, LimitContext, Limits};
use crate::policy::{Fair, Policy};
use crate::store::Charge;

/// The weight of each plan under each policy, and whether all tenants that are in no plan by name are one.
#[derive(Debug)]
pub(super) struct Weights(Box<[(Box<[u8]>, bool)]>);

impl Weights {
    /// Returns `None` if all tenants weigh the same, and each is one of its own.
    pub(super) fn of(policies: &[Policy], limits: Option<&RequestLimits>) -> Option<Self> {
        let limits = limits.map(RequestLimits::limits);
        let plans: Vec<&str> = limits.into_iter().flat_map(Limits::plan_names).collect();
        let of_policy = |policy: &Policy| -> (Box<[u8]>, bool) {
            let weights = policy.fairness().map_or(&[][..], |fair| fair.weights());
            let weight = |plan: &&str| {
                let own = weights.iter().find(|(it, _)| it == plan);
                own.map_or(1, |(_, weight)| u8::try_from(*weight).unwrap_or(u8::MAX))
            };
            let together = policy
                .fairness()
                .is_some_and(Fair::counts_unverified_together);
            (plans.iter().map(weight).collect(), together)
        };
        let all: Box<[_]> = policies.iter().map(of_policy).collect();
        let differs = |(weights, together): &(Box<[u8]>, bool)| {
            *together || weights.iter().any(|weight| *weight > 1)
        };
        let differ = all.iter().any(differs);
        differ.then_some(Self(all))
    }

    /// Gives the tenant of a request its weight, and the key of all that are counted together if it is known to be one of them. Returns
    /// whether it is.
    pub(super) fn apply(
        &self,
        charge: &mut Charge,
        context: &LimitContext,
        limits: &Limits,
        knows_its_plan: bool,
    ) -> bool {
        let Some((weights, together)) = self.0.get(charge.policy) else {
            return false;
        };
        let of_plan = context.plan.or_else(|| limits.plan(None));
        let has_plan = of_plan.is_some_and(ChosenPlan::is_named);
        // A request without a tenant has no tenant to know, whatever its plan is.
        let is_unknown = *together && (charge.key.is_missing() || knows_its_plan && !has_plan);
        let plan = if is_unknown {
            limits.plan(None)
        } else {
            of_plan
        };
        let weight = plan.and_then(|plan| weights.get(plan.place()));
        charge.weight = weight.copied().unwrap_or(1);
        if is_unknown {
            charge.key = Key::branch(charge.key.root(), &[Key::MISSING]);
        }
        is_unknown
    }
}
