//! Plans: named sets of limits, as users declare them and as decisions read them.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::choice::{Choice, RuleLimit, Rules, Subject};
use crate::algorithm::Algorithm;
use crate::decision::LimitRule;
use crate::diagnostics::{Diagnostic, warn_once_of};
use crate::error::ConfigError;

const UNKNOWN_PLAN: Diagnostic = Diagnostic::new(
    "TRL017",
    "",
    "a request has a plan that is not among the plans, and gets the default plan",
    "add the plan, or give these requests the name of one that is there; in a file of limits: a table `[plans.NAME]`",
);

const SILENT: Diagnostic = Diagnostic::new(
    "TRL018",
    "",
    "no plan speaks of the policy, so it has its own limit under all plans",
    "give it a limit in the plans, or say that this is meant: `.ignore_plans()`; in a file of limits: `ignore_plans = true` of the policy",
);

const OUT_OF_REACH: Diagnostic = Diagnostic::new(
    "TRL033",
    "",
    "no request can have the limits of this plan",
    "say how the plan of a request is found, `.plans(plans, |head| …)`, and leave out `other` where a table of keys or \
     operations takes the limits of all requests; in a file of limits: leave out `other` of `key_limits` or `operations`",
);

/// A named set of limits, one for each policy that it mentions.
///
/// A policy that another plan mentions and this one does not is not applied to requests of this plan. A limit
/// of 0 denies every request.
#[derive(Clone, Debug)]
#[must_use = "a plan limits nothing until a layer or a limiter has it"]
pub struct Plan {
    name: String,
    limits: Vec<(String, Algorithm)>,
}

impl Plan {
    /// Creates a plan with this name, which mentions no policy yet.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            limits: Vec::new(),
        }
    }

    /// Sets the limit of a policy.
    ///
    /// The limit must have the kind and the period of the policy, which is checked when the layer or the
    /// limiter is built. A bucket may have any rate for its period and any burst.
    pub fn limit(mut self, policy: impl Into<String>, limit: impl Into<Algorithm>) -> Self {
        self.limits.push((policy.into(), limit.into()));
        self
    }

    /// Exempts requests of this plan from the policy.
    pub fn unlimited(self, policy: impl Into<String>) -> Self {
        self.limit(policy, Algorithm::Unlimited)
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the policies that the plan mentions, each with its limit.
    pub(crate) fn limits(&self) -> &[(String, Algorithm)] {
        &self.limits
    }
}

/// The plans of a layer or of a limiter.
///
/// A request reads one plan, for all its policies. A request without a plan, and a request whose plan is not
/// among these, has the default plan; the log names an unknown plan once ([`TRL017`](crate::diagnostics)).
///
/// # Defaults
///
/// - default plan: the first one
#[derive(Clone, Debug)]
#[must_use = "plans limit nothing until a layer or a limiter has them"]
pub struct Plans {
    plans: Vec<Plan>,
    default: Option<String>,
}

impl Plans {
    /// Creates a list of plans. Their names must differ, and there must be at least one, which is checked
    /// when the layer or the limiter is built.
    pub fn new(plans: impl IntoIterator<Item = Plan>) -> Self {
        Self {
            plans: plans.into_iter().collect(),
            default: None,
        }
    }

    /// Sets the plan of requests without a plan, and of requests whose plan is unknown.
    pub fn default_plan(self, name: impl Into<String>) -> Self {
        Self {
            default: Some(name.into()),
            ..self
        }
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = &Plan> {
        self.plans.iter()
    }

    /// Returns the plans, with a limit for each policy that has a share of one of which they speak, unless they speak of it
    /// themselves.
    pub(crate) fn with_shares(&self, policies: &[Subject<'_>]) -> Cow<'_, Self> {
        let shares = policies
            .iter()
            .filter_map(|policy| Some((policy.name, policy.share?)));
        if shares.clone().next().is_none() {
            return Cow::Borrowed(self);
        }
        let with_shares = |plan: &Plan| {
            let mut limits: HashMap<&str, Algorithm> = HashMap::new();
            for (policy, limit) in &plan.limits {
                limits.insert(policy, *limit);
            }
            let mut plan = plan.clone();
            for (policy, (of, share)) in shares.clone() {
                if let (None, Some(whole)) = (limits.get(policy), limits.get(of)) {
                    let part = whole.part(share);
                    limits.insert(policy, part);
                    plan = plan.limit(policy, part);
                }
            }
            plan
        };
        Cow::Owned(Self {
            plans: self.plans.iter().map(with_shares).collect(),
            default: self.default.clone(),
        })
    }

    /// Prepares the plans for these policies.
    ///
    /// # Errors
    ///
    /// When there is no plan, when two have the same name, when one mentions a policy twice or an unknown
    /// policy, when a limit has another kind or period than its policy, and when the default plan is unknown.
    pub(crate) fn prepare(
        &self,
        policies: &[Subject<'_>],
        rules: &mut Rules,
    ) -> Result<LimitsByPlan, ConfigError> {
        self.check_names()?;
        let known: HashSet<&str> = policies.iter().map(|policy| policy.name).collect();
        let mentioned = self.policies();
        let mut plans = Vec::new();
        for plan in &self.plans {
            let limits = plan.checked(policies, &known)?;
            let rule = LimitRule::Plan(plan.name.as_str().into());
            let mut choices = Vec::new();
            for &policy in policies {
                choices.push(match limits.get(policy.name) {
                    Some(limit) => rules.add(rule.clone(), policy, **limit)?,
                    None if mentioned.contains(policy.name) => {
                        rules.choice(rule.clone(), RuleLimit::Nothing)
                    }
                    None => Choice::OWN,
                });
            }
            plans.push((plan.name.as_str().into(), choices.into()));
        }
        Ok(LimitsByPlan {
            default: self.place_of_default()?,
            plans: plans.into(),
        })
    }

    /// Returns the names of the policies that a plan mentions.
    pub(crate) fn policies(&self) -> HashSet<&str> {
        let limits = self.plans.iter().flat_map(|plan| &plan.limits);
        limits.map(|(policy, _)| policy.as_str()).collect()
    }

    /// Warns of a policy that no plan mentions.
    pub(crate) fn warn_of_silence_about(policy: &str) {
        warn_once_of(&SILENT, format!("policy {policy:?}"));
    }

    /// Warns of each plan that no request can have: all but the default plan if nothing names plans, and
    /// plans whose policies all have a table with limits for every request.
    pub(crate) fn warn_of_unreachable(
        &self,
        is_named: bool,
        leaves_none_out: impl Fn(&str) -> bool,
    ) {
        let default = self.place_of_default().unwrap_or(0);
        for (place, plan) in self.plans.iter().enumerate() {
            let mut policies = plan.limits.iter().map(|(policy, _)| policy);
            let is_hidden =
                !plan.limits.is_empty() && policies.all(|policy| leaves_none_out(policy));
            if is_hidden || !is_named && place != default {
                warn_once_of(&OUT_OF_REACH, format!("plan {:?}", plan.name));
            }
        }
    }

    fn check_names(&self) -> Result<(), ConfigError> {
        if self.plans.is_empty() {
            let remedy = "add a plan, `Plan::new(name).limit(policy, algorithm)`";
            return Err(ConfigError::new("plans", "empty", remedy));
        }
        let mut taken = HashSet::new();
        for plan in &self.plans {
            if plan.name.is_empty() || !taken.insert(plan.name()) {
                let remedy = "give each plan a name of its own";
                return Err(ConfigError::quoting("plan", &plan.name, remedy));
            }
        }
        Ok(())
    }

    fn place_of_default(&self) -> Result<usize, ConfigError> {
        let Some(default) = &self.default else {
            return Ok(0);
        };
        let place = self.plans.iter().position(|plan| plan.name == *default);
        place.ok_or_else(|| {
            let remedy = format!("name one of {}", self.names());
            ConfigError::quoting("default_plan", default, remedy)
        })
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self.plans.iter().map(Plan::name).collect();
        names.join(", ")
    }
}

impl Plan {
    /// Returns the limits by the names of the policies. `known` are the names of all `policies`.
    fn checked(
        &self,
        policies: &[Subject<'_>],
        known: &HashSet<&str>,
    ) -> Result<HashMap<&str, &Algorithm>, ConfigError> {
        let mut limits = HashMap::new();
        for (policy, limit) in &self.limits {
            if !known.contains(policy.as_str()) {
                let known: Vec<&str> = policies.iter().map(|policy| policy.name).collect();
                let remedy = format!(
                    "plan {:?} speaks of it, and the policies are {}",
                    self.name,
                    known.join(", ")
                );
                return Err(ConfigError::quoting("policy", policy, remedy));
            }
            if limits.insert(policy.as_str(), limit).is_some() {
                let remedy = format!("let plan {:?} give it one limit", self.name);
                return Err(ConfigError::quoting("policy", policy, remedy));
            }
        }
        Ok(limits)
    }
}

/// Plans, prepared for a list of policies.
#[derive(Debug)]
pub(crate) struct LimitsByPlan {
    /// Each plan with its choice for each policy, in the order of the policies.
    plans: Box<[(Arc<str>, Choices)]>,
    default: usize,
}

/// The choice of a plan for each policy.
type Choices = Box<[Choice]>;

/// The plan of one request.
#[derive(Clone, Copy, Debug)]
pub struct ChosenPlan {
    place: usize,
    /// Whether the request has it by its name.
    is_named: bool,
}

impl ChosenPlan {
    /// Returns its index among the plans.
    #[inline]
    pub(crate) fn place(self) -> usize {
        self.place
    }

    /// Returns whether the request has it by its name, and not because it has no other.
    pub(crate) fn is_named(self) -> bool {
        self.is_named
    }

    fn named(place: usize) -> Self {
        Self {
            place,
            is_named: true,
        }
    }
}

impl LimitsByPlan {
    /// Returns the plan with this name, or the default plan.
    #[inline]
    pub(crate) fn named(&self, name: Option<&str>) -> ChosenPlan {
        let Some(name) = name else {
            return self.default();
        };
        match self.plans.iter().position(|(plan, _)| **plan == *name) {
            Some(place) => ChosenPlan::named(place),
            None => self.unknown(name),
        }
    }

    /// Returns the plans in their order, each with its name.
    pub(crate) fn names(&self) -> impl ExactSizeIterator<Item = (ChosenPlan, &Arc<str>)> {
        let named = self.plans.iter().enumerate();
        named.map(|(place, (name, _))| (ChosenPlan::named(place), name))
    }

    #[inline]
    pub(crate) fn choice(&self, plan: ChosenPlan, policy: usize) -> Choice {
        let choice = self
            .plans
            .get(plan.place)
            .and_then(|(_, its)| its.get(policy));
        choice.copied().unwrap_or(Choice::OWN)
    }

    #[cold]
    fn unknown(&self, name: &str) -> ChosenPlan {
        let shown: String = name.chars().take(40).collect();
        warn_once_of(&UNKNOWN_PLAN, format!("plan {shown:?}"));
        self.default()
    }

    #[inline]
    fn default(&self) -> ChosenPlan {
        ChosenPlan {
            place: self.default,
            is_named: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::FixedWindow;

    /// Each limit was looked for among all policies, and each policy among all limits, which takes a quarter of an hour for
    /// so many.
    #[test]
    fn plans_of_many_policies_are_prepared_by_looking_at_each_once() {
        let names: Vec<String> = (0..200_000).map(|number| format!("p{number}")).collect();
        let own = FixedWindow::per_minute(10).into();
        let subject = |name| Subject {
            name,
            own: &own,
            parts: 1,
            share: None,
            is_divided: false,
        };
        let subjects: Vec<_> = names.iter().map(|name| subject(name.as_str())).collect();
        let limits = names.iter().map(|name| (name.clone(), own));
        let all = Plan {
            limits: limits.collect(),
            ..Plan::new("all")
        };
        let plans = Plans::new([all, Plan::new("none")]);
        let mut rules = Rules::new(std::num::NonZeroU32::MIN);
        let prepared = plans.prepare(&subjects, &mut rules).unwrap();
        let last = names.len() - 1;
        let given = ["all", "none"].map(|plan| {
            let plan = prepared.named(Some(plan));
            prepared.choice(plan, last).given
        });
        assert_eq!(given, [RuleLimit::Own, RuleLimit::Nothing]);
    }
}
