//! The names of policies and rules, to which outcomes refer by index.
//!
//! Outcomes are copied with each decision, so they hold indices in place of names.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::hours_now::HoursAt;
use super::limit_rule::LimitRule;
use super::resolution::{self, ResolvedNames};
use crate::factor::FactorCell;
use crate::quota::Quota;

/// The names of a limiter's policies, in the order of declaration.
#[derive(Debug)]
pub(crate) struct Names {
    pub(super) policies: Box<[Rule]>,
    /// The indices of the policies, in the order of their names.
    by_name: Box<[usize]>,
    /// The rules that can give them limits.
    pub(super) rules: RuleNames,
    /// The groups of policies of which one pays.
    groups: Box<[GroupNames]>,
}

/// The name of a group of policies of which one pays, and the indices of its members.
pub(crate) type GroupNames = (String, Box<[usize]>);

/// The names of the rules that give limits, by the indices in charges.
#[derive(Debug, Default)]
pub(crate) struct RuleNames {
    listed: Box<[LimitRule]>,
    /// The plans whose limits a resolver gives. Their indices come after those of the listed rules.
    resolved: Arc<ResolvedNames>,
}

impl RuleNames {
    pub(crate) fn new(listed: impl Into<Box<[LimitRule]>>) -> Self {
        Self {
            listed: listed.into(),
            resolved: Arc::default(),
        }
    }

    /// Returns the first index of a plan of a resolver, and the names of these plans.
    pub(crate) fn resolved(&self) -> (usize, Arc<ResolvedNames>) {
        (self.listed.len(), Arc::clone(&self.resolved))
    }

    pub(super) fn get(&self, rule: u32) -> LimitRule {
        let rule = resolution::place(rule);
        let listed = self.listed.get(rule as usize);
        if listed.is_none()
            && let Some(place) = (rule as usize).checked_sub(self.listed.len())
            && !self.listed.is_empty()
        {
            return LimitRule::Resolver(self.resolved.name(place));
        }
        listed.cloned().unwrap_or(LimitRule::Policy)
    }
}

/// The description of a policy in decisions and responses, independent of the request.
#[derive(Clone)]
pub struct Rule {
    name: String,
    /// The share of the limit that is in force.
    pub factor: Option<FactorCell>,
    /// The hours that change the limit.
    pub hours: Option<HoursAt>,
    limit: Option<u32>,
    period: Option<Duration>,
    /// The name of the policy above it in its tree.
    above: Option<String>,
    /// What each key has of that one, whatever others ask.
    guaranteed: Option<Quota>,
    /// Whether the limit is on requests at once.
    is_at_once: bool,
    is_announced: bool,
}

impl Rule {
    /// A policy without a limit has neither a number nor a period, and one whose limit is 0 has no
    /// period.
    pub(crate) fn new(name: &str, limit: Option<u32>, period: Option<Duration>) -> Self {
        Self {
            name: name.to_owned(),
            factor: None,
            hours: None,
            limit,
            period,
            above: None,
            guaranteed: None,
            is_at_once: false,
            is_announced: true,
        }
    }

    /// Adds the factor of the policy.
    pub(crate) fn scaled_by(self, factor: Option<FactorCell>) -> Self {
        Self { factor, ..self }
    }

    /// Adds the hours of the policy.
    pub(crate) fn by_hours(self, hours: Option<HoursAt>) -> Self {
        Self { hours, ..self }
    }

    /// Adds the name of the policy above it in its tree.
    pub(crate) fn below(self, above: Option<&str>) -> Self {
        let above = above.map(str::to_owned);
        Self { above, ..self }
    }

    /// Adds what each key has of the policy above it.
    pub(crate) fn guaranteed(self, guaranteed: Option<Quota>) -> Self {
        Self { guaranteed, ..self }
    }

    /// Returns the name of the policy.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rule").field(&self.name).finish()
    }
}

impl Rule {
    /// Returns `None` for a policy that never decides.
    pub fn limit(&self) -> Option<u32> {
        self.limit
    }

    /// Returns the period of the limit.
    pub fn period(&self) -> Option<Duration> {
        self.period
    }

    /// Sets whether the limit is on simultaneous requests.
    pub(crate) fn at_once(self, is_at_once: bool) -> Self {
        Self { is_at_once, ..self }
    }

    /// Returns whether it limits how many requests run at once.
    pub fn is_at_once(&self) -> bool {
        self.is_at_once
    }

    /// Sets whether responses tell of the policy.
    pub(crate) fn announced(self, is_announced: bool) -> Self {
        Self {
            is_announced,
            ..self
        }
    }

    /// Returns whether responses tell of the policy.
    pub fn is_announced(&self) -> bool {
        self.is_announced
    }
}

impl Names {
    pub(crate) fn new(policies: impl IntoIterator<Item = Rule>, rules: RuleNames) -> Self {
        let policies: Vec<Rule> = policies.into_iter().collect();
        let mut by_name: Box<[usize]> = (0..policies.len()).collect();
        by_name.sort_by_key(|policy| policies[*policy].name());
        Self {
            policies: policies.into(),
            by_name,
            rules,
            groups: Box::default(),
        }
    }

    /// Adds groups of which one policy pays.
    pub(crate) fn with_groups(self, groups: impl IntoIterator<Item = GroupNames>) -> Self {
        Self {
            groups: groups.into_iter().collect(),
            ..self
        }
    }

    pub(crate) fn groups(&self) -> impl Iterator<Item = (&str, &[usize])> {
        let groups = self.groups.iter();
        groups.map(|(name, members)| (name.as_str(), &**members))
    }

    /// Returns the index of the policy with this name. There may be thousands.
    pub(crate) fn place_of(&self, name: &str) -> Option<usize> {
        let place = self
            .by_name
            .partition_point(|policy| self.get(*policy) < name);
        let policy = *self.by_name.get(place)?;
        (self.get(policy) == name).then_some(policy)
    }

    /// Returns each policy that is a level below another one, with that one.
    pub(crate) fn levels(&self) -> impl Iterator<Item = (&str, &str)> {
        let levels = self.policies.iter();
        levels.filter_map(|rule| {
            let above = self.place_of(rule.above.as_deref()?)?;
            Some((rule.name(), self.get(above)))
        })
    }

    /// Returns how many levels are above this policy in its tree; 0 outside a tree.
    pub(super) fn depth_of(&self, policy: usize) -> usize {
        self.above(policy).count()
    }

    /// Returns the levels above this policy in its tree, the next one first.
    pub(crate) fn above(&self, policy: usize) -> impl Iterator<Item = usize> {
        // Names of users may form a circle.
        const DEEPEST: usize = 7;
        let above = |policy: &usize| self.place_of(self.policies.get(*policy)?.above.as_deref()?);
        std::iter::successors(above(&policy), above).take(DEEPEST)
    }

    /// Returns what each key of this policy is guaranteed, and the name of the policy of which that is a part.
    pub(super) fn guarantee_of(&self, policy: usize) -> Option<(Quota, &str)> {
        let rule = self.policies.get(policy)?;
        Some((rule.guaranteed?, rule.above.as_deref()?))
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.policies.iter().map(Rule::name)
    }

    /// Returns the rule with this index.
    pub(crate) fn rule(&self, place: u32) -> LimitRule {
        self.rules.get(place)
    }

    pub(super) fn get(&self, policy: usize) -> &str {
        self.name(policy).unwrap_or_default()
    }

    pub(crate) fn name(&self, policy: usize) -> Option<&str> {
        self.policies.get(policy).map(Rule::name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_depth_of_a_level_is_that_in_its_tree() {
        let rule = |(name, above): (&str, Option<&str>)| Rule::new(name, None, None).below(above);
        let all = [
            ("org", None),
            ("team", Some("org")),
            ("user", Some("team")),
            ("gone", Some("nobody")),
            ("a", Some("b")),
            ("b", Some("a")),
        ];
        let all = Names::new(all.map(rule), RuleNames::default());
        let depths: Vec<_> = (0..4).map(|policy| all.depth_of(policy)).collect();
        assert_eq!(depths, [0, 1, 2, 0]);
        assert!(all.depth_of(4) < 8);
        let levels: Vec<_> = all.levels().take(2).collect();
        assert_eq!(levels, [("team", "org"), ("user", "team")]);
    }

    #[test]
    fn each_policy_is_found_by_its_name() {
        let names = ["b", "a", "ab", "", "c"];
        let rules = names.map(|name| Rule::new(name, None, None));
        let all = Names::new(rules, RuleNames::default());
        for (place, name) in names.iter().enumerate() {
            assert_eq!(all.place_of(name), Some(place), "{name}");
        }
        for unknown in ["aa", "d", "B"] {
            assert_eq!(all.place_of(unknown), None, "{unknown}");
        }
        assert_eq!(Names::new([], RuleNames::default()).place_of("a"), None);
    }
}
