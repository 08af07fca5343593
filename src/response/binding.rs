//! Dialects with room for one policy: all except draft 11.
//!
//! The policy that binds is the one a client needs most: the one with the least remaining, or on a
//! refusal the one with the longest wait.

use std::borrow::Cow;
use std::fmt::Write;
use std::iter::zip;

use http::{HeaderName, HeaderValue};

use tower_ratelimit_core::__internal::Rule;

use super::dialect::{Dialect, Reset, whole_seconds};
use super::names::{RATELIMIT, SEPARATE, X_RATE_LIMIT, X_RATELIMIT};
use super::set::Set;
use crate::clock::Micros;
use crate::decision::{Outcome, Outcomes};

/// Writes a dialect that tells the binding policy alone.
#[derive(Debug)]
pub(super) struct Binding {
    dialect: Dialect,
    policies: Vec<PolicyText>,
    /// Whether clients are told of all policies.
    announces_all: bool,
}

/// The parts of a policy that are the same for all requests.
#[derive(Debug)]
struct PolicyText {
    /// `100;w=60`; `None` for a policy without a window.
    item: Option<String>,
    name: HeaderValue,
    is_announced: bool,
}

impl Binding {
    pub(super) fn new(dialect: Dialect, rules: &[Rule]) -> Self {
        Self {
            dialect,
            policies: rules.iter().map(PolicyText::new).collect(),
            announces_all: rules.iter().all(Rule::is_announced),
        }
    }

    pub(super) fn allowed(&self, outcomes: &Outcomes) -> Option<Set> {
        let outcomes = &*self.announced(outcomes);
        let (policy, outcome) = outcomes.binding()?;
        self.set(outcomes, policy, outcome, outcome.effective_micros())
    }

    /// Sends no time if no wait helps, and no time above `Retry-After`, whose maximum is `most`.
    pub(super) fn denied(&self, outcomes: &Outcomes, most: Micros) -> Option<Set> {
        let outcomes = &*self.announced(outcomes);
        let (policy, outcome) = outcomes.binding()?;
        let wait = outcome.retry_micros().map(|wait| wait.min(most));
        self.set(outcomes, policy, outcome, wait)
    }

    /// Returns the outcomes of the policies that clients are told of.
    fn announced<'a>(&self, outcomes: &'a Outcomes) -> Cow<'a, Outcomes> {
        if self.announces_all {
            return Cow::Borrowed(outcomes);
        }
        let policy = |policy: usize| self.policies.get(policy);
        Cow::Owned(outcomes.of_policies(|it| policy(it).is_some_and(|text| text.is_announced)))
    }

    /// Returns `None` if there is nothing to tell.
    fn set(
        &self,
        outcomes: &Outcomes,
        policy: usize,
        outcome: &Outcome,
        time: Option<Micros>,
    ) -> Option<Set> {
        let (limit, remaining) = (outcome.limit(), outcome.remaining());
        let policies = || self.policies(outcomes, policy);
        let numbers = |names: &'static [HeaderName], reset: Option<HeaderValue>| -> Vec<_> {
            let [limit, remaining] = [limit, remaining].map(HeaderValue::from);
            zip(names, [limit, remaining].into_iter().chain(reset)).collect()
        };
        let at = outcomes.at();
        let reset_value = |reset: Reset| time.map(|time| reset.number(at, time).into());
        let seconds = reset_value(Reset::DeltaSeconds);
        let mut set = Set::of(self.dialect);
        match self.dialect {
            Dialect::Draft11 => {}
            Dialect::Draft07 => {
                if let Some(reset) = time.map(whole_seconds) {
                    let limits = format!("limit={limit}, remaining={remaining}, reset={reset}");
                    set.limit(remaining, vec![(&RATELIMIT, limits.try_into().ok()?)]);
                }
                set.policies(policies());
            }
            Dialect::Draft06 => {
                if seconds.is_some() {
                    set.limit(remaining, numbers(&SEPARATE, seconds));
                }
                set.policies(policies());
            }
            Dialect::Draft03 => {
                let mut fields = numbers(&SEPARATE, Some(seconds?));
                let (_, first) = fields.first_mut()?;
                *first = format!("{limit}, {}", policies()).try_into().ok()?;
                set.limit(remaining, fields);
            }
            Dialect::XRateLimit(reset) => {
                set.limit(remaining, numbers(&X_RATELIMIT, reset_value(reset)));
            }
            Dialect::XRateLimitDashed(reset) => {
                set.limit(remaining, numbers(&X_RATE_LIMIT, reset_value(reset)));
            }
            Dialect::GitHub => {
                let mut fields = numbers(&X_RATELIMIT, reset_value(Reset::EpochSeconds));
                let [.., used, resource] = &X_RATELIMIT;
                fields.push((used, outcome.used().into()));
                fields.push((resource, self.policies.get(policy)?.name.clone()));
                set.limit(remaining, fields);
            }
        }
        set.if_any()
    }

    /// Lists the policies of the decision, with one policy for each limit.
    fn policies(&self, outcomes: &Outcomes, binding: usize) -> String {
        let listed = outcomes
            .iter()
            .filter_map(|(policy, outcome)| Some((policy, outcome, self.policies.get(policy)?)));
        let mut list = String::new();
        for (policy, outcome, reset_value) in listed.clone() {
            let limit = outcome.limit();
            let others = listed
                .clone()
                .map(|(other, outcome, _)| (other, outcome.limit()));
            let mut others = others.filter(|(other, same)| *other != policy && *same == limit);
            let is_listed_otherwise = others.any(|(other, _)| other == binding || other < policy);
            if policy != binding && is_listed_otherwise {
                continue;
            }
            if let Some(item) = reset_value.item(outcome) {
                let comma = if list.is_empty() { "" } else { ", " };
                let _ = write!(list, "{comma}{item}");
            }
        }
        list
    }
}

impl PolicyText {
    /// Returns the text of the policy, with the override of the key if there is one.
    fn item(&self, outcome: &Outcome) -> Option<Cow<'_, str>> {
        match outcome.own_limit() {
            None => self.item.as_deref().map(Cow::Borrowed),
            Some((limit, window)) => window.map(|window| format!("{limit};w={window}").into()),
        }
    }

    fn new(rule: &Rule) -> Self {
        let limit = rule.limit().unwrap_or(0);
        let window = rule.period().map(|window| whole_seconds(window.into()));
        Self {
            item: window.map(|window| format!("{limit};w={window}")),
            // Names are checked to be printable.
            name: HeaderValue::from_str(rule.name())
                .unwrap_or_else(|_| HeaderValue::from_static("")),
            is_announced: rule.is_announced(),
        }
    }
}
