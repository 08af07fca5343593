//! The headers of all answers of the server together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::finding::{Check, Finding};
use super::terms::Terms;
use crate::exchange::{Exchange, Verdict};
use crate::info::{Family, Name, Policy, Problem};

/// The announced policies, and the malformed answers.
#[derive(Debug, Default)]
pub(super) struct Words {
    policies: Vec<(Policy, Arc<Exchange>)>,
    names: BTreeSet<Name>,
    families: BTreeMap<Family, u64>,
    refusals: u64,
    waits: u64,
    bodies: u64,
    problems: u64,
    shortest: Option<u64>,
    longest: Option<u64>,
    least: Option<i64>,
    most: Option<i64>,
}

impl Words {
    /// The most policies that are distinguished.
    const POLICIES: usize = 16;

    pub(super) fn answered(&mut self, answer: &Arc<Exchange>) -> Option<Finding> {
        let info = &answer.info;
        if answer.verdict == Verdict::Limited {
            self.refusals += 1;
            if let Some(wait) = info.retry_after {
                let seconds = wait.length.as_secs();
                self.waits += 1;
                self.shortest = Some(self.shortest.map_or(seconds, |s| s.min(seconds)));
                self.longest = self.longest.max(Some(seconds));
            }
            self.bodies += u64::from(info.problem != Problem::Unread);
            self.problems += u64::from(info.problem == Problem::Valid);
        }
        for family in &info.families {
            *self.families.entry(*family).or_default() += 1;
        }
        for policy in &info.policies {
            let known = self.policies.iter().any(|(known, _)| known == policy);
            if !known && self.policies.len() < Self::POLICIES {
                self.policies.push((policy.clone(), Arc::clone(answer)));
            }
        }
        for service_limit in &info.service_limits {
            if !self.names.contains(&service_limit.name) && self.names.len() < Self::POLICIES {
                self.names.insert(service_limit.name.clone());
            }
            let remaining = service_limit.remaining;
            self.least = Some(self.least.map_or(remaining, |l| l.min(remaining)));
            self.most = self.most.max(Some(remaining));
        }
        let text = wrong(answer)?;
        Some(Finding::new(Check::Headers, text, &[answer]))
    }

    /// Adds the headers of other answers.
    pub(super) fn add(&mut self, other: Self) {
        for (policy, answer) in other.policies {
            let known = self.policies.iter().any(|(known, _)| *known == policy);
            if !known && self.policies.len() < Self::POLICIES {
                self.policies.push((policy, answer));
            }
        }
        self.names.extend(other.names);
        for (family, count) in other.families {
            *self.families.entry(family).or_default() += count;
        }
        self.refusals += other.refusals;
        self.waits += other.waits;
        self.bodies += other.bodies;
        self.problems += other.problems;
        self.shortest = [self.shortest, other.shortest].into_iter().flatten().min();
        self.longest = self.longest.max(other.longest);
        self.least = [self.least, other.least].into_iter().flatten().min();
        self.most = self.most.max(other.most);
    }

    /// Returns whether a refusal announced a wait.
    pub(super) fn has_waits(&self) -> bool {
        self.waits > 0
    }

    /// Returns whether an answer announced the remaining requests.
    pub(super) fn has_remaining(&self) -> bool {
        !self.names.is_empty()
    }

    /// Returns whether the answers name more than one policy.
    pub(super) fn are_several(&self) -> bool {
        let in_lists = |name: &Name| (name.family == Family::Lists).then(|| name.text.clone());
        let service_limits = self.names.iter().filter_map(in_lists);
        let policies = self.policies.iter();
        let policies = policies.filter_map(|(policy, _)| in_lists(&policy.name));
        let names: BTreeSet<String> = service_limits.chain(policies).collect();
        // Families without names announce the binding policy.
        let mut quotas = BTreeMap::<Family, BTreeSet<u64>>::new();
        for (policy, _) in &self.policies {
            if policy.name.family != Family::Lists {
                let quotas = quotas.entry(policy.name.family).or_default();
                quotas.insert(policy.quota);
            }
        }
        names.len() > 1 || quotas.values().any(|quotas| quotas.len() > 1)
    }

    /// Returns the announced terms of a policy, if none of them agrees with the stated policy.
    pub(super) fn disagree_with(&self, terms: &Terms) -> Option<Finding> {
        let agrees = |policy: &Policy| terms.agrees_with(policy.quota, policy.window);
        let mut policies = self.policies.iter();
        let (wrong, answer) = policies.find(|(policy, _)| !agrees(policy))?;
        // The stated policy may be one of several.
        let one_agrees = self.policies.iter().any(|(policy, _)| agrees(policy));
        if one_agrees && self.are_several() {
            return None;
        }
        let window = wrong.window.map(|window| format!(" in {window} s"));
        let text = format!(
            "{} tells a limit of {}{}, and the policy is {}",
            wrong.name,
            wrong.quota,
            window.unwrap_or_default(),
            terms.algorithm,
        );
        Some(Finding::new(Check::Headers, text, &[answer]))
    }

    /// Returns the lines of the report.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.families.is_empty() && self.waits == 0 {
            lines.push(String::from("no headers of a limit"));
        }
        for (family, count) in &self.families {
            lines.push(format!("{family}, in {count} answers"));
        }
        for (policy, _) in &self.policies {
            let window = policy.window.map(|window| format!(" in {window} s"));
            let window = window.unwrap_or_default();
            lines.push(format!("{}: limit {}{window}", policy.name, policy.quota));
        }
        if let (Some(least), Some(most)) = (self.least, self.most) {
            lines.push(format!("remaining from {least} to {most}"));
        }
        let (waits, refusals) = (self.waits, self.refusals);
        if let (Some(shortest), Some(longest)) = (self.shortest, self.longest) {
            lines.push(format!(
                "Retry-After from {shortest} s to {longest} s, in {waits} of {refusals} refusals"
            ));
        } else if refusals > 0 {
            lines.push(format!("no Retry-After in {refusals} refusals"));
        }
        let (problems, bodies) = (self.problems, self.bodies);
        if bodies > 0 {
            lines.push(format!(
                "a problem of RFC 9457 in {problems} of {bodies} refusals"
            ));
        }
        lines
    }
}

/// Returns the mistakes of an answer by itself.
fn wrong(answer: &Exchange) -> Option<String> {
    let info = &answer.info;
    if let Some((name, text)) = info.malformed.first() {
        let text: String = text.chars().take(80).collect();
        return Some(format!("{name}: {text:?} cannot be read"));
    }
    if let Problem::Invalid(why) = &info.problem {
        return Some(format!("the body is no problem of RFC 9457: {why}"));
    }
    info.service_limits.iter().find_map(|service_limit| {
        let remaining = service_limit.remaining;
        let policy = info.policy(&service_limit.name);
        let quota = policy.and_then(|policy| i64::try_from(policy.quota).ok());
        if remaining < 0 {
            return Some(format!("{}: {remaining} remaining", service_limit.name));
        }
        quota
            .filter(|quota| remaining > *quota)
            .map(|quota| format!("{}: {remaining} remaining of {quota}", service_limit.name))
    })
}
