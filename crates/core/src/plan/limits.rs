//! All rules that set limits, in their order of precedence.
//!
//! The order is in one function, `choice`, because the documentation of the module promises it.

use std::collections::HashSet;
use std::fmt;
use std::num::NonZeroU32;

use super::Finding;
use super::adjusted::Adjusted;
use super::choice::{Choice, RuleLimit, Rules, Subject};
use super::key_limits::{KeyLimits, LimitsByKey};
use super::limit_by::{LimitBy, LimitsByClosure};
use super::operations::{LimitsByOperation, Operations};
use super::plans::{ChosenPlan, LimitsByPlan, Plans};
use super::resolver::{OwnLimits, ResolvedPolicies};
use crate::algorithm::{Algorithm, Limit, Share};
use crate::decision::RuleNames;
use crate::error::ConfigError;
use crate::key::Key;

/// The settings of a policy's limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limited<'a> {
    pub(crate) name: &'a str,
    pub(crate) own: &'a Algorithm,
    /// How many parts a unit has in its store; `None` without a factor.
    pub(crate) parts: Option<u32>,
    /// The policy before it of whose limit its own is a share, if it is.
    pub(crate) share: Option<(&'a str, Share)>,
    /// Whether it is divided among tenants.
    pub(crate) is_divided: bool,
    /// The policy above it in its tree.
    pub(crate) above: Option<&'a str>,
    pub(crate) by_key: Option<&'a KeyLimits>,
    pub(crate) by_operation: Option<&'a Operations>,
    pub(crate) by_closure: Option<&'a LimitBy>,
}

impl<'a> Limited<'a> {
    /// Returns whether a table sets a limit for each of its requests, so that no plan does.
    pub(crate) fn leaves_no_request_out(&self) -> bool {
        self.by_key.is_some_and(KeyLimits::leave_none_out)
            || self.by_operation.is_some_and(Operations::leave_none_out)
    }

    pub(crate) fn subject(&self) -> Subject<'a> {
        Subject {
            name: self.name,
            own: self.own,
            parts: self.parts.unwrap_or(1),
            share: self.share,
            is_divided: self.is_divided,
        }
    }
}

/// All rules that set limits, prepared for a list of policies.
#[derive(Debug)]
pub struct Limits {
    by_plan: Option<LimitsByPlan>,
    /// The rules of each policy that set limits besides a plan.
    each: Box<[Option<Box<dyn BesidePlans>>]>,
    /// `None` if limits cannot change.
    adjusted: Option<Adjusted>,
    /// The policies for which a resolver may set limits; `None` if there is none.
    resolved: Option<ResolvedPolicies>,
}

/// Sets limits of a policy besides a plan. It is called through a trait object, so that a program without such limits
/// does not contain what finds them.
trait BesidePlans: fmt::Debug + Send + Sync {
    /// Returns the key of the state of a request, and its limit if one is set: see [`Limits::choice`].
    fn choice(
        &self,
        operation: Option<Key>,
        plain: &dyn Fn() -> Option<Key>,
        of_layer: &dyn Fn() -> Option<Algorithm>,
        key: Key,
    ) -> (Key, Option<Choice>);

    fn operations(&self) -> Option<&LimitsByOperation>;
}

#[derive(Debug)]
struct OfPolicy {
    operations: Option<LimitsByOperation>,
    closure: Option<LimitsByClosure>,
    keys: Option<LimitsByKey>,
}

impl OfPolicy {
    fn is_empty(&self) -> bool {
        self.operations.is_none() && self.closure.is_none() && self.keys.is_none()
    }

    /// Returns the limit by the closure or the table of keys.
    fn of_key(
        &self,
        key: Option<&Key>,
        of_layer: &dyn Fn() -> Option<Algorithm>,
    ) -> Option<Choice> {
        let by_closure = self.closure.as_ref();
        let by_closure = by_closure.and_then(|closure| closure.choice(key, of_layer));
        by_closure.or_else(|| self.keys.as_ref()?.choice(key?))
    }
}

impl BesidePlans for OfPolicy {
    fn choice(
        &self,
        operation: Option<Key>,
        plain: &dyn Fn() -> Option<Key>,
        of_layer: &dyn Fn() -> Option<Algorithm>,
        key: Key,
    ) -> (Key, Option<Choice>) {
        let (mut key, mut choice) = (key, None);
        if let Some(by_operation) = &self.operations {
            (key, choice) = by_operation.choice(operation, key);
        }
        if choice.is_none() && (self.closure.is_some() || self.keys.is_some()) {
            choice = self.of_key(plain().as_ref(), of_layer);
        }
        (key, choice)
    }

    fn operations(&self) -> Option<&LimitsByOperation> {
        self.operations.as_ref()
    }
}

/// The values that determine the limit of one request.
#[derive(Clone, Copy, Debug, Default)]
pub struct LimitContext {
    /// The plan of the request.
    pub plan: Option<ChosenPlan>,
    /// The name of the operation, as a key.
    pub operation: Option<Key>,
    /// Whether it leaves reserves to other requests.
    pub is_low_priority: bool,
}

impl Limits {
    /// Prepares these rules, or returns `None` if each policy has one limit. Also returns the rules, for
    /// decisions. `is_resolved` says whether a resolver may set limits too, and `is_adjustable` whether
    /// limits may be changed later.
    ///
    /// # Errors
    ///
    /// When a plan or a table is invalid: see [`Plans`], [`KeyLimits`] and [`Operations`].
    pub(crate) fn prepare(
        plans: Option<&Plans>,
        policies: &[Limited<'_>],
        nodes: NonZeroU32,
        is_resolved: bool,
        is_adjustable: bool,
    ) -> Result<(Option<Self>, RuleNames), ConfigError> {
        let mut rules = Rules::new(nodes);
        let subjects: Vec<_> = policies.iter().map(Limited::subject).collect();
        let by_plan = plans.map(|plans| plans.prepare(&subjects, &mut rules));
        let by_plan = by_plan.transpose()?;
        let above: HashSet<_> = policies.iter().filter_map(|policy| policy.above).collect();
        let mut each = Vec::new();
        for policy in policies {
            let subject = policy.subject();
            let is_level = policy.above.is_some() || above.contains(policy.name);
            let by_operation = policy
                .by_operation
                .map(|table| table.prepare(subject, is_level, &mut rules));
            let by_closure = policy
                .by_closure
                .map(|by| LimitsByClosure::new(by.clone(), subject, &mut rules));
            let by_key = policy
                .by_key
                .map(|table| table.prepare(subject, &mut rules));
            let its = OfPolicy {
                operations: by_operation.transpose()?,
                closure: by_closure,
                keys: by_key.transpose()?,
            };
            each.push((!its.is_empty()).then(|| Box::new(its) as Box<dyn BesidePlans>));
        }
        let has_any = each.iter().any(Option::is_some);
        let are_any = by_plan.is_some() || has_any || is_resolved || is_adjustable;
        let all = rules.into_names();
        let adjusted = is_adjustable.then(|| {
            let each = policies.iter();
            // A policy with a factor counts in parts; only its own limit is known in parts.
            let each = each.map(|policy| {
                (
                    policy.own,
                    policy.parts.is_some() || policy.own.limits().is_none(),
                )
            });
            Adjusted::new(each, by_plan.as_ref())
        });
        let limits = Self {
            by_plan,
            adjusted,
            each: each.into(),
            resolved: is_resolved.then(|| ResolvedPolicies::new(&subjects, nodes, all.resolved())),
        };
        Ok((are_any.then_some(limits), all))
    }

    /// Returns the plan with this name, or the default plan, or `None` if there are no plans.
    #[inline]
    pub(crate) fn plan(&self, name: Option<&str>) -> Option<ChosenPlan> {
        Some(self.by_plan.as_ref()?.named(name))
    }

    /// Returns the names of the plans, in their order.
    pub(crate) fn plan_names(&self) -> impl Iterator<Item = &str> {
        let plans = self.by_plan.iter().flat_map(LimitsByPlan::names);
        plans.map(|(_, name)| &**name)
    }

    /// Returns the limit that a resolver sets for a policy, if it sets any.
    pub(crate) fn resolved(&self, policy: usize, finding: &Finding) -> Option<Choice> {
        let limits = finding.limits()?;
        let Some(policies) = &self.resolved else {
            OwnLimits::warn_ignored();
            return None;
        };
        limits.choice(policies, policy)
    }

    /// Returns whether only a plan sets the limits of this policy: no operation, closure or table does.
    #[inline]
    pub(crate) fn are_by_plan_alone(&self, policy: usize) -> bool {
        self.each.get(policy).is_none_or(Option::is_none)
    }

    /// Returns the limit of such a policy for a request of this plan, or of the default plan.
    #[inline]
    pub(crate) fn by_plan(&self, plan: Option<ChosenPlan>, policy: usize) -> Choice {
        self.in_force(plan.or_else(|| self.plan(None)), policy)
    }

    /// Returns the limit of a policy for a request of this client. The key becomes that of its state. `plain` is the
    /// key in tables, before it is hashed, and `of_layer` asks the layer for the limit that its
    /// closure sets.
    #[inline]
    pub(crate) fn choice(
        &self,
        policy: usize,
        context: &LimitContext,
        plain: &dyn Fn() -> Option<Key>,
        of_layer: &dyn Fn() -> Option<Algorithm>,
        key: &mut Key,
    ) -> Choice {
        let mut choice = None;
        if let Some(Some(its)) = self.each.get(policy) {
            (*key, choice) = its.choice(context.operation, plain, of_layer, *key);
        }
        choice.unwrap_or_else(|| self.by_plan(context.plan, policy))
    }

    /// Returns the declared limit of a plan for a policy, or the policy's own limit without plans.
    #[inline]
    fn declared(&self, plan: Option<ChosenPlan>, policy: usize) -> Choice {
        match (&self.by_plan, plan) {
            (Some(table), Some(plan)) => table.choice(plan, policy),
            _ => Choice::OWN,
        }
    }

    /// Returns the limit in force: the declared one, or the one that has replaced it at run time.
    #[inline]
    fn in_force(&self, plan: Option<ChosenPlan>, policy: usize) -> Choice {
        let declared = self.declared(plan, policy);
        match &self.adjusted {
            None => declared,
            Some(adjusted) => adjusted.in_place_of(plan, policy, declared),
        }
    }

    /// Puts another limit of a plan in force, or the declared one again. Returns whether that is possible.
    pub(crate) fn adjust(
        &self,
        plan: Option<ChosenPlan>,
        policy: usize,
        limit: Option<Limit>,
    ) -> bool {
        let declared = self.declared(plan, policy);
        let adjusted = self.adjusted.as_ref();
        adjusted.is_some_and(|adjusted| adjusted.put(plan, policy, declared, limit))
    }

    /// Returns whether the limits of this policy can be changed.
    pub(crate) fn is_adjustable(&self, policy: usize) -> bool {
        let adjusted = self.adjusted.as_ref();
        adjusted.is_some_and(|adjusted| adjusted.has(policy))
    }

    /// Returns the limits of a policy by plan, declared and in force. A policy that no plan mentions has one,
    /// without a plan.
    pub(crate) fn of_plans(
        &self,
        policy: usize,
    ) -> impl Iterator<Item = (Option<(ChosenPlan, &str)>, [RuleLimit; 2])> {
        let table = self.by_plan.as_ref().filter(|table| {
            let mut plans = table.names();
            plans.any(|(plan, _)| table.choice(plan, policy) != Choice::OWN)
        });
        let plans = table.into_iter().flat_map(LimitsByPlan::names);
        let plans = plans.map(|(plan, name)| Some((plan, &**name)));
        let alone = table.is_none().then_some(None);
        plans.chain(alone).map(move |plan| {
            let chosen = plan.map(|(plan, _)| plan);
            let both = [self.declared(chosen, policy), self.in_force(chosen, policy)];
            (plan, both.map(|choice| choice.given))
        })
    }

    /// Returns the table of a policy's operations.
    pub fn operations(&self, policy: usize) -> Option<&LimitsByOperation> {
        self.each.get(policy)?.as_ref()?.operations()
    }
}
