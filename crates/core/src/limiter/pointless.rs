//! The policies of a layer, and the limits of its plans, that can never bind because of others.

use std::collections::HashMap;

use super::LimiterBuilder;
use crate::advice::never_binds::Pointless;
use crate::algorithm::Algorithm;
use crate::plan::Plans;
use crate::policy::Scope;

impl<S> LimiterBuilder<S> {
    /// Returns each of these policies of a layer that can never bind because of another, and each such limit of a plan.
    /// `is_resolved` says whether a resolver may set the limits of requests.
    // For `tower-ratelimit`.
    #[doc(hidden)]
    pub fn pointless(&self, policies: &[Scope<'_>], is_resolved: bool) -> Vec<Pointless> {
        // What the limits of requests will be is unknown.
        if is_resolved || self.later.is_adjustable {
            return Vec::new();
        }
        let mut planned = self.plans.as_ref().map(Plans::policies).unwrap_or_default();
        for policy in policies {
            // The limit of a level may be a share of one that plans set.
            if policy.above.is_some_and(|above| planned.contains(above)) {
                planned.insert(policy.name);
            }
        }
        let of_one_limit = policies.iter().filter(|it| !planned.contains(it.name));
        let of_one_limit: Vec<_> = of_one_limit.cloned().collect();
        let mut found = Pointless::find(&of_one_limit);
        let policies: HashMap<&str, &Scope<'_>> = policies.iter().map(|it| (it.name, it)).collect();
        for plan in self.plans.iter().flat_map(Plans::each) {
            let limits = plan.limits().iter().filter_map(|(name, algorithm)| {
                let policy = *policies.get(name.as_str())?;
                // The hours change the limits of plans too.
                let has_hours = matches!(policy.algorithm, Algorithm::ByHours(_));
                (!has_hours).then(|| Scope {
                    algorithm,
                    ..policy.clone()
                })
            });
            let limits: Vec<_> = limits.collect();
            let pointless = Pointless::find(&limits).into_iter();
            found.extend(pointless.map(|pointless| pointless.in_plan(plan.name())));
        }
        found
    }
}
