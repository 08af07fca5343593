//! Limits that an operator changes while they are in force.
//!
//! The limit travels with the charge, so changing it does not change a state: what was used stays used.

use std::sync::Arc;

use super::Limiter;
use crate::algorithm::Algorithm;
use crate::error::ConfigError;
use crate::plan::RuleLimit;

/// A limit of a policy, for all requests or for those of a plan; see [`Limiter::adjustable_limits`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdjustableLimit {
    policy: Arc<str>,
    plan: Option<Arc<str>>,
    declared: Algorithm,
    in_force: Algorithm,
    can_change: bool,
}

impl AdjustableLimit {
    /// Returns the name of the policy.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// Returns the plan whose requests have this limit; `None` if no plan speaks of the policy.
    pub fn plan(&self) -> Option<&str> {
        self.plan.as_deref()
    }

    /// Returns the limit with which the policy or the plan was declared. It is [`Algorithm::Unlimited`] if the policy
    /// counts nothing of these requests.
    pub fn declared(&self) -> Algorithm {
        self.declared
    }

    /// Returns the limit that is in force.
    pub fn in_force(&self) -> Algorithm {
        self.in_force
    }

    /// Returns whether [`Limiter::adjust_limit`] can change it.
    pub fn can_change(&self) -> bool {
        self.can_change
    }
}

impl<L: ?Sized> Limiter<L> {
    /// Changes the limit of one plan or, without a plan, of a policy that no plan mentions. Returns the limit that
    /// was in force before.
    ///
    /// - **The limit** has the kind and the period of the policy, and differs in its numbers alone.
    /// - **What was used stays used.** A limit that is lowered and raised again grants nothing; see
    ///   [`override_limit`](Limiter::override_limit), which changes the limit of one key.
    /// - **It holds** for all decisions that begin from now on, in this process: each node has limits of its own, also over a
    ///   shared store. A restart, and a reload of a configuration file, put the declared limits in force.
    /// - **A wait** in an earlier decision stays exact under the limit that then held. Under a lower one the request may have to wait
    ///   longer.
    /// - **Other rules**, which give limits by key or by operation, overrides, and the limits of a resolver come first, as
    ///   [before](crate::plan#which-limit-holds).
    /// - Where limits are divided by [nodes](super::LimiterBuilder::nodes), this is the share of this node.
    ///
    /// [`LimiterBuilder`]: super::LimiterBuilder
    ///
    /// # Errors
    ///
    /// When
    ///
    /// - the limiter was not built [adjustable](super::LimiterBuilder::adjustable),
    /// - it has no policy or no plan of this name,
    /// - plans speak of the policy and none is named, or none speaks of it and one is named,
    /// - the policy is unlimited or has a [factor](crate::Policy::factor), or
    /// - the limit is of another kind or period, or has 4,294,967,295 for all its numbers.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use tower_ratelimit::plan::{Plan, Plans};
    /// use tower_ratelimit::{FixedWindow, Limiter, ManualClock, MemoryStore, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("minute", FixedWindow::per_minute(10)))
    ///     .plans_by_name(Plans::new([
    ///         Plan::new("free").limit("minute", FixedWindow::per_minute(10)),
    ///         Plan::new("pro").limit("minute", FixedWindow::per_minute(100)),
    ///     ]))
    ///     .store(MemoryStore::new().clock(ManualClock::new()))
    ///     .adjustable()
    ///     .build_local()?;
    /// assert!(limiter.check("ann", 10).now().is_allowed());
    /// assert!(!limiter.check("ann", 1).now().is_allowed());
    ///
    /// let before = limiter.adjust_limit("minute", Some("free"), FixedWindow::per_minute(20))?;
    /// assert_eq!(before.to_string(), "fixed-window 10/minute");
    /// let decision = limiter.check("ann", 1).now();
    /// let (_, minute) = decision.binding().unwrap();
    /// assert_eq!((minute.limit(), minute.remaining()), (20, 9));
    ///
    /// let error = limiter.adjust_limit("minute", None, FixedWindow::per_minute(20)).unwrap_err();
    /// assert_eq!(error.to_string(), "`plan` cannot be none: name one of free, pro");
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn adjust_limit(
        &self,
        policy: &str,
        plan: Option<&str>,
        limit: impl Into<Algorithm>,
    ) -> Result<Algorithm, ConfigError> {
        let limit = limit.into();
        let (place, now) = self.limit_to_adjust(policy, plan)?;
        let fits = limit.differs_in_its_limit_alone(&self.policies.algorithms[place]);
        let remedy = || {
            let own = self.policies.algorithms[place];
            format!(
                "give one that differs from that of {policy:?}, {own}, in its numbers alone, each below 4,294,967,295"
            )
        };
        let numbers = limit.limits().filter(|_| fits);
        let numbers = numbers.ok_or_else(|| ConfigError::new("limit", limit, remedy()))?;
        let chosen = plan.and_then(|plan| self.policies.plan_named(Some(plan)));
        let limits = self.policies.limits.as_ref();
        let is_done =
            limits.is_some_and(|limits| limits.limits().adjust(chosen, place, Some(numbers)));
        if is_done {
            Ok(now.in_force)
        } else {
            Err(ConfigError::new("limit", limit, remedy()))
        }
    }

    /// Returns the limits of all policies by plan: those that were declared, and those in force.
    ///
    /// Limits by key and by operation, overrides, and the limits of a resolver are not among them.
    pub fn adjustable_limits(&self) -> Vec<AdjustableLimit> {
        let names = self.policies.names.iter();
        let each = names.zip(&self.policies.algorithms).enumerate();
        let each = each.map(|(place, (name, own))| self.limits_of(place, name, own));
        each.flatten().collect()
    }

    fn limits_of(&self, policy: usize, name: &str, own: &Algorithm) -> Vec<AdjustableLimit> {
        let name: Arc<str> = name.into();
        let whole = self.policies.prices.whole(policy).unwrap_or(*own);
        let one = |plan: Option<&str>, [declared, in_force]: [RuleLimit; 2], can_change| {
            let algorithm = |given| match given {
                RuleLimit::Own => whole,
                RuleLimit::Nothing => Algorithm::Unlimited,
                RuleLimit::Limit(limit) => {
                    let limit = self.policies.prices.in_units(policy, limit);
                    whole.under(limit).unwrap_or(whole)
                }
            };
            AdjustableLimit {
                policy: Arc::clone(&name),
                plan: plan.map(Arc::from),
                declared: algorithm(declared),
                in_force: algorithm(in_force),
                can_change,
            }
        };
        let Some(limits) = &self.policies.limits else {
            return vec![one(None, [RuleLimit::Own; 2], false)];
        };
        let limits = limits.limits();
        let can_change = limits.is_adjustable(policy);
        let of_plans = limits.of_plans(policy);
        let of_plans =
            of_plans.map(|(plan, both)| one(plan.map(|(_, name)| name), both, can_change));
        of_plans.collect()
    }

    /// Returns the limit of this policy and plan, if it can be changed: as it was declared, and as it is in force.
    ///
    /// # Errors
    ///
    /// When it cannot be changed: as [`adjust_limit`](Self::adjust_limit), before that looks at the new limit.
    pub fn adjustable_limit(
        &self,
        policy: &str,
        plan: Option<&str>,
    ) -> Result<AdjustableLimit, ConfigError> {
        self.limit_to_adjust(policy, plan).map(|(_, limit)| limit)
    }

    fn limit_to_adjust(
        &self,
        policy: &str,
        plan: Option<&str>,
    ) -> Result<(usize, AdjustableLimit), ConfigError> {
        let place = self.policies.place_of(policy)?;
        let limits = self.policies.limits.as_ref();
        if !limits.is_some_and(|limits| limits.limits().is_adjustable(place)) {
            let remedy = "build the limiter or the layer with `.adjustable()`, and name a policy with a limit and \
                          without a factor";
            return Err(ConfigError::quoting("policy", policy, remedy));
        }
        let all = self.limits_of(place, policy, &self.policies.algorithms[place]);
        if let Some(found) = all.iter().find(|limit| limit.plan() == plan) {
            return Ok((place, found.clone()));
        }
        let plans: Vec<&str> = all.iter().filter_map(AdjustableLimit::plan).collect();
        let remedy = if plans.is_empty() {
            "leave it out: no plan speaks of this policy".to_owned()
        } else {
            format!("name one of {}", plans.join(", "))
        };
        Err(match plan {
            Some(plan) => ConfigError::quoting("plan", plan, remedy),
            None => ConfigError::new("plan", "none", remedy),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::algorithm::{FixedWindow, TokenBucket};
    use crate::clock::ManualClock;
    use crate::decision::Decision;
    use crate::factor::FactorCell;
    use crate::limiter::LimiterBuilder;
    use crate::plan::{Plan, Plans};
    use crate::policy::Policy;
    use crate::store::MemoryStore;

    const LIMITS: [u32; 4] = [0, 3, 10, 25];

    fn algorithm(kind: usize, limit: u32) -> Algorithm {
        let kinds = [
            "fixed-window {}/minute",
            "anchored-window {}/minute",
            "sliding-window {}/minute",
            "sliding-log {}/minute",
            "sliding-slots {}/minute slots 60",
            "token-bucket {}/minute burst {}",
            "gcra {}/minute burst {}",
            "leaky-bucket {}/minute capacity {}",
        ];
        kinds[kind]
            .replace("{}", &limit.to_string())
            .parse()
            .unwrap()
    }

    fn limiter(kind: usize, clock: &ManualClock) -> LimiterBuilder {
        Limiter::builder()
            .policy(Policy::new("minute", algorithm(kind, LIMITS[1])))
            .store(MemoryStore::new().clock(clock.clone()))
    }

    proptest! {
        /// Law 11 holds for plans, and so for an adjusted limit that decides as a plan does.
        #[test]
        fn a_limit_that_is_moved_decides_as_a_plan_with_that_limit(
            kind in 0..8_usize,
            steps in prop::collection::vec((0..LIMITS.len(), 0..20_000_u64, 0..4_u32), 1..60),
        ) {
            let clock = ManualClock::new();
            let plans = LIMITS.iter().enumerate();
            let plans = plans.map(|(name, limit)| Plan::new(name.to_string()).limit("minute", algorithm(kind, *limit)));
            let planned = limiter(kind, &clock).plans_by_name(Plans::new(plans)).build_local().unwrap();
            let moved = limiter(kind, &clock).adjustable().build_local().unwrap();
            for (limit, millis, cost) in steps {
                clock.advance(Duration::from_millis(millis));
                moved.adjust_limit("minute", None, algorithm(kind, LIMITS[limit])).unwrap();
                let by_plan = planned.plan(&limit.to_string()).check("ann", cost).now();
                let by_move = moved.check("ann", cost).now();
                let found = |decision: &Decision| decision.policies().map(|(_, found)| *found).collect::<Vec<_>>();
                prop_assert_eq!(found(&by_move), found(&by_plan));
            }
        }
    }

    #[test]
    fn a_plan_that_is_unlimited_or_does_not_speak_can_be_given_a_limit() {
        let minute = FixedWindow::per_minute;
        let limiter = Limiter::builder()
            .policy(Policy::new("minute", minute(5)))
            .policy(Policy::new("other", minute(7)).ignore_plans())
            .plans_by_name(Plans::new([
                Plan::new("free").limit("minute", minute(5)),
                Plan::new("ent").unlimited("minute"),
                Plan::new("trial"),
            ]))
            .adjustable()
            .build_local()
            .unwrap();
        let all: Vec<_> = limiter.adjustable_limits();
        let found: Vec<_> = all
            .iter()
            .map(|limit| (limit.policy(), limit.plan(), limit.in_force().to_string()))
            .collect();
        let five = || "fixed-window 5/minute".to_owned();
        assert_eq!(
            found,
            [
                ("minute", Some("free"), five()),
                ("minute", Some("ent"), "unlimited".to_owned()),
                ("minute", Some("trial"), "unlimited".to_owned()),
                ("other", None, "fixed-window 7/minute".to_owned()),
            ]
        );
        for plan in ["ent", "trial"] {
            let before = limiter
                .adjust_limit("minute", Some(plan), minute(2))
                .unwrap();
            assert_eq!(before, Algorithm::Unlimited);
            assert!(limiter.plan(plan).check(plan, 2).now().is_allowed());
            assert!(!limiter.plan(plan).check(plan, 1).now().is_allowed());
        }
        limiter.adjust_limit("other", None, minute(1)).unwrap();
        assert!(!limiter.plan("free").check("bob", 2).now().is_allowed());
    }

    #[test]
    fn a_limit_stays_unless_it_was_to_be_adjustable() {
        let minute = FixedWindow::per_minute;
        let fixed = Limiter::builder()
            .policy(Policy::new("minute", minute(5)))
            .build()
            .unwrap();
        assert!(fixed.adjust_limit("minute", None, minute(6)).is_err());
        assert!(!fixed.adjustable_limits()[0].can_change());

        let factor = FactorCell::new();
        let priced = Limiter::builder()
            .policy(Policy::new("load", minute(5)).factor(&factor))
            .policy(Policy::new("bucket", TokenBucket::per_second(5).burst(9)))
            .adjustable()
            .build()
            .unwrap();
        assert!(priced.adjust_limit("load", None, minute(6)).is_err());
        assert_eq!(
            priced.adjustable_limits()[0].declared().to_string(),
            "fixed-window 5/minute"
        );
        let wrong: [Algorithm; 3] = [
            FixedWindow::per_second(5).into(),
            TokenBucket::per_minute(5).into(),
            Algorithm::Unlimited,
        ];
        for limit in wrong {
            assert!(
                priced.adjust_limit("bucket", None, limit).is_err(),
                "{limit}"
            );
        }
        assert!(
            priced
                .adjust_limit("bucket", None, TokenBucket::per_second(7).burst(1))
                .is_ok()
        );
    }
}
