//! Which limits hold for the requests that a limiter is asked about.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use super::Limiter;
#[cfg(feature = "config")]
use crate::algorithm::Algorithm;
use crate::decision::LimitRule;
use crate::error::ConfigError;
use crate::key::{IntoKey, Key};
use crate::plan::{Asker, ChosenPlan, Given, Limits, Plans};
use crate::policy::Policy;
use crate::store::Charge;

/// The rules that give limits, and how the plan of a key is found.
#[derive(Debug)]
pub(crate) struct RequestLimits {
    limits: Limits,
    plan_of: Option<PlanOf>,
}

/// What a limiter is made with: the rules that give limits, and their names for decisions.
pub(crate) struct PreparedLimits {
    pub(super) limits: Option<RequestLimits>,
    pub(super) rules: Box<[LimitRule]>,
}

impl PreparedLimits {
    /// For policies that have one limit each.
    #[cfg(feature = "http")]
    pub(crate) fn of_one_each() -> Self {
        Self {
            limits: None,
            rules: Box::default(),
        }
    }

    /// Prepares plans and tables for these policies, and marks the policies that have several limits. Each limit is
    /// divided by the number of `nodes`, as the limits of the policies are already.
    ///
    /// # Errors
    ///
    /// When a plan or a table cannot be.
    pub(crate) fn new(
        plans: Option<&Plans>,
        plan_of: Option<PlanOf>,
        policies: &mut [Policy],
        nodes: u32,
    ) -> Result<Self, ConfigError> {
        let nodes = NonZeroU32::new(nodes).unwrap_or(NonZeroU32::MIN);
        let limited: Vec<_> = policies.iter().map(Policy::limited).collect();
        let (limits, rules) = Limits::prepare(plans, &limited, nodes)?;
        for policy in policies {
            policy.may_have_several_limits(plans);
        }
        let limits = limits.map(|limits| RequestLimits { limits, plan_of });
        Ok(Self { limits, rules })
    }
}

/// Passes the name of a key's plan on, if the key has one.
#[derive(Clone)]
pub(crate) struct PlanOf(Arc<ReadPlan>);

type ReadPlan = dyn Fn(&Key, &mut dyn FnMut(Option<&str>)) + Send + Sync;

impl PlanOf {
    pub(super) fn new<R: AsRef<str>>(
        plan_of: impl Fn(&Key) -> Option<R> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(move |key, found| {
            let name = plan_of(key);
            found(name.as_ref().map(AsRef::as_ref));
        }))
    }
}

impl RequestLimits {
    fn plan_of(&self, key: &Key) -> Option<ChosenPlan> {
        let PlanOf(read) = self.plan_of.as_ref()?;
        let mut plan = None;
        read(key, &mut |name| plan = self.limits.plan(name));
        plan
    }

    /// The rules.
    #[cfg(feature = "http")]
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Gives a charge its limit and the key of its state; returns whether the policy counts the request. `plain` is
    /// the key as tables have it.
    pub(crate) fn apply(
        &self,
        charge: &mut Charge,
        asker: Asker,
        plain: impl FnOnce() -> Option<Key>,
    ) -> bool {
        let (key, choice) = self.limits.choice(charge.policy, asker, plain, charge.key);
        charge.key = key;
        charge.rule = choice.rule;
        match choice.given {
            Given::Own => true,
            Given::Limit(limit) => {
                charge.limit = Some(limit);
                charge.window = choice.window;
                true
            }
            Given::Nothing => false,
        }
    }
}

impl<L: ?Sized> Limiter<L> {
    /// Returns this limiter for requests of the plan with this name, whatever their key. It shares all state.
    ///
    /// An unknown name is the default plan: see [`Plans`](crate::plan::Plans). Without plans nothing changes.
    pub fn plan(&self, name: &str) -> Self {
        let plan = self.plan_named(Some(name));
        self.asking(|asker| Asker {
            plan: plan.or(asker.plan),
            ..asker
        })
    }

    /// Returns this limiter for requests of this operation. It shares all state.
    ///
    /// See [`Operations`](crate::plan::Operations) for an example. A policy without operations takes no notice of it.
    pub fn operation(&self, name: impl IntoKey) -> Self {
        let operation = Some(name.into_key());
        self.asking(|asker| Asker { operation, ..asker })
    }

    fn asking(&self, change: impl FnOnce(Asker) -> Asker) -> Self {
        Self {
            asker: Some(Arc::new(change(self.asker()))),
            ..self.clone()
        }
    }

    /// The plan and the operation of the requests, as far as they are said.
    pub(crate) fn asker(&self) -> Asker {
        self.asker.as_deref().copied().unwrap_or_default()
    }

    /// The name of a policy.
    #[cfg(feature = "config")]
    pub(crate) fn name_of(&self, policy: usize) -> &str {
        self.policies.names.name(policy).unwrap_or_default()
    }

    /// The algorithm of a policy, with its own limit.
    #[cfg(feature = "config")]
    pub(crate) fn algorithm_of(&self, policy: usize) -> Algorithm {
        let algorithm = self.policies.algorithms.get(policy);
        algorithm.copied().unwrap_or(Algorithm::Unlimited)
    }

    /// The rule that a charge refers to.
    #[cfg(feature = "config")]
    pub(crate) fn rule_named(&self, rule: u32) -> LimitRule {
        self.policies.names.rule(rule)
    }

    /// The plan of this name, or the default plan; `None` if there are no plans.
    pub(crate) fn plan_named(&self, name: Option<&str>) -> Option<ChosenPlan> {
        self.policies.limits.as_ref()?.limits.plan(name)
    }

    /// The same with the plan of this key, unless a plan is said.
    pub(super) fn with_plan_of(&self, asker: Asker, key: &Key) -> Asker {
        match &self.policies.limits {
            Some(limits) => Asker {
                plan: asker.plan.or_else(|| limits.plan_of(key)),
                ..asker
            },
            None => asker,
        }
    }

    /// The charge under the limit of its request; `None` if the policy counts nothing of the request.
    pub(super) fn limited(&self, mut charge: Charge, asker: Asker) -> Option<Charge> {
        let Some(limits) = &self.policies.limits else {
            return Some(charge);
        };
        let key = charge.key;
        limits
            .apply(&mut charge, asker, || Some(key))
            .then_some(charge)
    }
}

impl fmt::Debug for PlanOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlanOf(closure)")
    }
}
