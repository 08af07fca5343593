//! The limits of a limiter's requests.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;

use super::{Limiter, Policies};
use crate::algorithm::Algorithm;
use crate::decision::LimitRule;
use crate::decision::RuleNames;
use crate::diagnostics::{Diagnostic, warn_once_of};
use crate::error::{ConfigError, StoreError};
use crate::key::{IntoKey, Key};
use crate::plan::{
    Choice, ChosenPlan, Finding, LimitContext, Limited, Limits, PlanLookup, Plans, RuleLimit,
    Sources,
};
use crate::policy::Policy;
use crate::store::Charge;

const NO_PLANS: Diagnostic = Diagnostic::new(
    "TRL021",
    "",
    "a resolver names a plan, and the limiter has no plans",
    "give it the plans, `.plans_by_name(plans)`, or let the resolver give limits; in a file of limits: a table `[plans.NAME]`",
);

/// The rules that give limits, and the way to the plan of a key.
#[derive(Debug)]
pub(crate) struct RequestLimits {
    limits: Limits,
    sources: Sources<Key>,
}

/// What may come beside the plans.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LaterLimits {
    /// Whether a resolver may set limits: that of the limiter or another one.
    pub(crate) are_resolved: bool,
    /// Whether no caller names the plan of a request.
    pub(crate) is_no_plan_named: bool,
    /// Whether limits may be changed later.
    pub(crate) is_adjustable: bool,
}

/// The rules that give limits, prepared for a limiter, and their names for decisions.
pub(crate) struct PreparedLimits {
    pub(super) limits: Option<RequestLimits>,
    pub(super) rules: RuleNames,
}

impl PreparedLimits {
    /// The rules of policies that have one limit each.
    pub(crate) fn of_one_each() -> Self {
        Self {
            limits: None,
            rules: RuleNames::default(),
        }
    }

    /// Prepares plans and tables for these policies, and marks the policies that have several limits. Each
    /// limit is divided by the number of `nodes`, as the limits of the policies already are.
    ///
    /// # Errors
    ///
    /// When a plan or a table is invalid.
    pub(crate) fn new(
        plans: Option<&Plans>,
        (sources, later): (Sources<Key>, LaterLimits),
        policies: &mut [Policy],
        nodes: u32,
    ) -> Result<Self, ConfigError> {
        let nodes = NonZeroU32::new(nodes).unwrap_or(NonZeroU32::MIN);
        let limited: Vec<_> = policies.iter().map(Policy::limited).collect();
        let is_no_plan_named = later.is_no_plan_named;
        let later = (later.are_resolved, later.is_adjustable);
        let subjects: Vec<_> = limited.iter().map(Limited::subject).collect();
        let plans = plans.map(|plans| plans.with_shares(&subjects));
        let plans = plans.as_deref();
        let (limits, rules) = Limits::prepare(plans, &limited, nodes, later.0, later.1)?;
        if let Some(plans) = plans {
            let complete = limited
                .iter()
                .filter(|policy| policy.leaves_no_request_out());
            let complete: HashSet<&str> = complete.map(|policy| policy.name).collect();
            plans.warn_of_unreachable(!is_no_plan_named, |name| complete.contains(name));
        }
        let planned = plans.map(Plans::policies);
        for policy in policies {
            policy.may_have_several_limits(planned.as_ref(), later);
        }
        let limits = limits.map(|limits| RequestLimits { limits, sources });
        Ok(Self { limits, rules })
    }
}

impl RequestLimits {
    /// Returns the limit of a request with this key, without a resolver. The key becomes that of the state.
    #[inline]
    pub(super) fn choice(
        &self,
        policy: usize,
        context: Option<&LimitContext>,
        key: &mut Key,
    ) -> Choice {
        let named = context.and_then(|context| context.plan);
        let plan = named.or_else(|| self.sources.choose(key, &self.limits));
        match context {
            None if self.limits.are_by_plan_alone(policy) => self.limits.by_plan(plan, policy),
            _ => self.choice_beside_plans(policy, plan, context, key),
        }
    }

    #[inline(never)]
    fn choice_beside_plans(
        &self,
        policy: usize,
        plan: Option<ChosenPlan>,
        context: Option<&LimitContext>,
        key: &mut Key,
    ) -> Choice {
        let context = LimitContext {
            plan,
            ..context.copied().unwrap_or_default()
        };
        let of_tables = *key;
        self.limits
            .choice(policy, &context, &|| Some(of_tables), &|| None, key)
    }

    pub(super) fn has_a_resolver(&self) -> bool {
        self.sources.resolver.is_some()
    }

    /// Returns whether a closure names the plan of a key.
    pub(super) fn name_plans(&self) -> bool {
        self.sources.plan_of.is_some()
    }

    /// Returns the rules.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Sets the limit of a charge and the key of its state. Returns whether the policy counts the request.
    /// `plain` is the key in tables, and `of_layer` asks the layer for the limit that its closure sets.
    #[inline]
    pub(crate) fn apply(
        &self,
        charge: &mut Charge,
        context: &LimitContext,
        finding: Option<&Finding>,
        plain: &dyn Fn() -> Option<Key>,
        of_layer: &dyn Fn() -> Option<Algorithm>,
    ) -> bool {
        let (policy, key) = (charge.policy, &mut charge.key);
        let mut choice = self.limits.choice(policy, context, plain, of_layer, key);
        charge.rule = choice.rule;
        if let Some(finding) = finding {
            let resolved = self.limits.resolved(charge.policy, finding);
            choice = resolved.unwrap_or(choice);
            charge.rule = finding.note(choice.rule);
        }
        match choice.given {
            RuleLimit::Own => true,
            RuleLimit::Limit(limit) => {
                charge.limit = Some(limit);
                charge.window = choice.window;
                true
            }
            RuleLimit::Nothing => false,
        }
    }
}

impl<L: ?Sized> Limiter<L> {
    /// Returns this limiter for requests of the plan with this name, whatever their key. It shares all state.
    ///
    /// An unknown name stands for the default plan: see [`Plans`]. Without plans nothing changes.
    pub fn plan(&self, name: &str) -> Self {
        let plan = self.policies.plan_named(Some(name));
        self.with_context(|context| LimitContext {
            plan: plan.or(context.plan),
            ..context
        })
    }

    /// Returns this limiter for requests of this operation. It shares all state.
    ///
    /// See [`Operations`](crate::plan::Operations) for an example. A policy without operations ignores it.
    pub fn operation(&self, name: impl IntoKey) -> Self {
        let operation = Some(name.into_key());
        self.with_context(|context| LimitContext {
            operation,
            ..context
        })
    }

    /// Returns this limiter for requests of low priority, which leave the [reserve](Policy::reserve) of each
    /// policy to other requests. It shares all state.
    pub fn low_priority(&self) -> Self {
        self.with_context(|context| LimitContext {
            is_low_priority: true,
            ..context
        })
    }

    fn with_context(&self, change: impl FnOnce(LimitContext) -> LimitContext) -> Self {
        Self {
            context: Some(Arc::new(change(self.context()))),
            ..self.clone()
        }
    }

    /// Returns the plan and the operation of the requests, as far as they are set.
    pub(crate) fn context(&self) -> LimitContext {
        self.context.as_deref().copied().unwrap_or_default()
    }

    /// Returns the plan of a request: the one that its caller names, or that of a resolver, or that of its key.
    #[inline]
    pub(super) fn plan_of(
        &self,
        named: Option<ChosenPlan>,
        key: &Key,
        finding: Option<&Finding>,
    ) -> Option<ChosenPlan> {
        let limits = self.policies.limits.as_ref()?;
        named
            .or_else(|| self.policies.plan_found(finding?))
            .or_else(|| limits.sources.choose(key, &limits.limits))
    }

    /// Returns whether keys are looked up.
    pub(crate) fn has_a_resolver(&self) -> bool {
        let limits = self.policies.limits.as_ref();
        limits.is_some_and(RequestLimits::has_a_resolver)
    }

    /// Starts to look up this key, or returns `None` if there is no resolver or the plan is named.
    #[inline]
    pub(crate) fn look(&self, key: &Key) -> Option<PlanLookup> {
        let sources = &self.policies.limits.as_ref()?.sources;
        let context = self.context.as_ref();
        let is_named = context.is_some_and(|context| context.plan.is_some());
        (!is_named).then(|| sources.look(key))?
    }

    /// Returns the finding of a resolver that is known now, for a request that does not wait.
    #[inline]
    pub(super) fn found_now(&self, key: &Key) -> Option<Finding> {
        self.look(key).map(PlanLookup::now)
    }
}

impl Policies {
    /// Returns the name of a policy.
    pub fn name_of(&self, policy: usize) -> &str {
        self.names.name(policy).unwrap_or_default()
    }

    /// Returns the algorithm of a policy, with its own limit.
    pub fn algorithm_of(&self, policy: usize) -> Algorithm {
        let algorithm = self.algorithms.get(policy);
        algorithm.copied().unwrap_or(Algorithm::Unlimited)
    }

    /// Returns the rule that a charge refers to.
    pub fn rule_named(&self, rule: u32) -> LimitRule {
        self.names.rule(rule)
    }

    /// Returns the plan with this name, or the default plan, or `None` if there are no plans.
    pub fn plan_named(&self, name: Option<&str>) -> Option<ChosenPlan> {
        self.limits.as_ref()?.limits.plan(name)
    }

    /// Returns the plan of a request: that of a resolver, or that which this closure chooses.
    #[inline]
    pub fn plan_by(
        &self,
        finding: Option<&Finding>,
        choose: impl FnOnce(&Limits) -> Option<ChosenPlan>,
    ) -> Option<ChosenPlan> {
        let found = finding.and_then(|finding| self.plan_found(finding));
        found.or_else(|| choose(self.limits.as_ref()?.limits()))
    }

    /// Returns the plan that a resolver names.
    fn plan_found(&self, finding: &Finding) -> Option<ChosenPlan> {
        let name = finding.plan()?;
        let plan = self.plan_named(Some(name));
        if plan.is_none() {
            warn_once_of(
                &NO_PLANS,
                format!("plan {:?}", name.chars().take(40).collect::<String>()),
            );
        }
        plan
    }
}

/// Returns an error for a request whose plan is unknown, if its resolver was built that way.
pub(crate) fn require_plan(finding: &Finding) -> Result<(), StoreError> {
    match finding.refusal() {
        None => Ok(()),
        Some(kind) => Err(StoreError::new(kind)),
    }
}
