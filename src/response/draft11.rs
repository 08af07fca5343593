//! The headers of draft-ietf-httpapi-ratelimit-headers-11.
//!
//! Draft 11 is the default, so its cost is on the path of nearly every request. `RateLimit-Policy`
//! is made once, and a request copies a reference to it; `RateLimit` is written into memory of its
//! exact length.

use std::borrow::Cow;

use http::HeaderValue;
use smallvec::SmallVec;

use super::dialect::whole_seconds;
use super::lists::Lists;
use crate::clock::Micros;
use crate::decision::{Outcome, Outcomes, Rule};

/// Writes the headers of draft-ietf-httpapi-ratelimit-headers-11.
#[derive(Debug)]
pub(super) struct Draft11 {
    items: Vec<Item>,
    /// The number of limited policies, and the value of `RateLimit-Policy` for requests to which
    /// all of them apply, as usual.
    all: (usize, Option<HeaderValue>),
}

/// The parts of a policy that are the same for all requests.
#[derive(Debug)]
struct Item {
    /// `"name";r=`
    remaining: String,
    /// `"name";q=10;w=2`
    policy: String,
    /// `;qu="concurrent-requests"`, or nothing for requests.
    unit: &'static str,
}

type Buffer = SmallVec<[u8; 256]>;

impl Draft11 {
    pub(super) fn new(rules: &[Rule]) -> Self {
        let limited = rules.iter().filter(|rule| rule.limit().is_some());
        let all: Vec<String> = limited.map(|rule| Item::new(rule).policy).collect();
        Self {
            items: rules.iter().map(Item::new).collect(),
            all: (all.len(), HeaderValue::try_from(all.join(", ")).ok()),
        }
    }

    /// Lists all policies that apply, with what remains under each.
    pub(super) fn allowed(&self, outcomes: &Outcomes) -> Option<Lists> {
        self.fields(outcomes, |_| true, Outcome::effective_micros)
    }

    /// Lists all policies that apply, and for those that denied, the wait.
    ///
    /// Sends no time if no wait helps, and no time above `Retry-After`, whose maximum is `most`.
    pub(super) fn denied(&self, outcomes: &Outcomes, most: Micros) -> Option<Lists> {
        self.fields(outcomes, Outcome::denies, wait(outcomes, most))
    }

    /// Lists what [`allowed`](Self::allowed) does, with a partition key for each policy.
    pub(super) fn allowed_with(&self, outcomes: &Outcomes, partitions: &[String]) -> Option<Lists> {
        self.partitioned(outcomes, partitions, |_| true, Outcome::effective_micros)
    }

    /// Lists what [`denied`](Self::denied) does, with a partition key for each policy.
    pub(super) fn denied_with(
        &self,
        outcomes: &Outcomes,
        partitions: &[String],
        most: Micros,
    ) -> Option<Lists> {
        self.partitioned(outcomes, partitions, Outcome::denies, wait(outcomes, most))
    }

    /// Returns `None` if there is nothing to tell.
    #[inline]
    fn fields(
        &self,
        outcomes: &Outcomes,
        listed: impl Fn(&Outcome) -> bool,
        window: impl Fn(&Outcome) -> Option<Micros>,
    ) -> Option<Lists> {
        let mut digits = [itoa::Buffer::new(); 2];
        let mut all = outcomes.iter();
        if let (Some((policy, outcome)), None) = (all.next(), all.next()) {
            // The usual case of one policy: its text is written where it stays.
            if !listed(outcome) {
                return None;
            }
            let item = self.items.get(policy)?;
            let parts = item.parts(outcome, window(outcome), &mut digits);
            let mut limits = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
            for part in parts {
                limits.extend_from_slice(part.as_bytes());
            }
            return Some(Lists {
                policies: self.policies(outcomes)?,
                limits: HeaderValue::try_from(limits).ok()?,
            });
        }
        self.fields_of_several(outcomes, listed, window)
    }

    fn fields_of_several(
        &self,
        outcomes: &Outcomes,
        listed: impl Fn(&Outcome) -> bool,
        window: impl Fn(&Outcome) -> Option<Micros>,
    ) -> Option<Lists> {
        let mut limits = Buffer::new();
        let mut digits = [itoa::Buffer::new(); 2];
        for (policy, outcome) in outcomes.iter().filter(|(_, outcome)| listed(outcome)) {
            separate(&mut limits);
            let item = self.items.get(policy)?;
            for part in item.parts(outcome, window(outcome), &mut digits) {
                limits.extend_from_slice(part.as_bytes());
            }
        }
        if limits.is_empty() {
            return None;
        }
        Some(Lists {
            policies: self.policies(outcomes)?,
            limits: HeaderValue::from_bytes(&limits).ok()?,
        })
    }

    /// Writes what [`fields`](Self::fields) does, with a partition key after each item.
    fn partitioned(
        &self,
        outcomes: &Outcomes,
        partitions: &[String],
        listed: impl Fn(&Outcome) -> bool,
        window: impl Fn(&Outcome) -> Option<Micros>,
    ) -> Option<Lists> {
        let (mut policies, mut limits) = (Vec::new(), Vec::new());
        for ((policy, outcome), pk) in outcomes.iter().zip(partitions) {
            let item = self.items.get(policy)?;
            policies.push(format!("{}{pk}", item.policy(outcome)));
            if listed(outcome) {
                let t = window(outcome).map(|window| format!(";t={}", whole_seconds(window)));
                let (r, t) = (outcome.remaining(), t.unwrap_or_default());
                limits.push(format!("{}{r}{t}{pk}", item.remaining));
            }
        }
        if limits.is_empty() {
            return None;
        }
        Some(Lists {
            policies: HeaderValue::try_from(policies.join(", ")).ok()?,
            limits: HeaderValue::try_from(limits.join(", ")).ok()?,
        })
    }

    fn policies(&self, outcomes: &Outcomes) -> Option<HeaderValue> {
        let (limited, all) = &self.all;
        let has_its_own = outcomes
            .iter()
            .any(|(_, outcome)| outcome.own_limit().is_some());
        if outcomes.iter().len() == *limited && !has_its_own {
            return all.clone();
        }
        let mut policies = Buffer::new();
        for (policy, outcome) in outcomes.iter() {
            separate(&mut policies);
            let item = self.items.get(policy)?.policy(outcome);
            policies.extend_from_slice(item.as_bytes());
        }
        HeaderValue::from_bytes(&policies).ok()
    }
}

impl Item {
    fn new(rule: &Rule) -> Self {
        let name = quoted(rule.name());
        let limit = rule.limit().unwrap_or(0);
        let unit = if rule.is_at_once() {
            ";qu=\"concurrent-requests\""
        } else {
            ""
        };
        let window = rule.period();
        let window = window.map(|window| whole_seconds(window.into()));
        Self {
            remaining: format!("{name};r="),
            policy: format!("{name}{}{unit}", quota(limit, window)),
            unit,
        }
    }

    /// Returns the parts of `"name";r=9;t=2`.
    #[inline]
    fn parts<'a>(
        &'a self,
        outcome: &Outcome,
        window: Option<Micros>,
        [remaining, seconds]: &'a mut [itoa::Buffer; 2],
    ) -> [&'a str; 4] {
        let remaining = remaining.format(outcome.remaining());
        let [t, seconds] = match window {
            Some(window) => [";t=", seconds.format(whole_seconds(window))],
            None => ["", ""],
        };
        [&self.remaining, remaining, t, seconds]
    }

    /// Returns the text of the policy, with the override of the key if there is one.
    fn policy(&self, outcome: &Outcome) -> Cow<'_, str> {
        match outcome.own_limit() {
            None => Cow::Borrowed(&self.policy),
            Some((limit, window)) => {
                let name = self.remaining.trim_end_matches(";r=");
                let window = window.map(u64::from);
                Cow::Owned(format!("{name}{}{}", quota(limit, window), self.unit))
            }
        }
    }
}

fn quota(limit: u32, window: Option<u64>) -> String {
    match window {
        Some(seconds) => format!(";q={limit};w={seconds}"),
        None => format!(";q={limit}"),
    }
}

/// Returns the wait for each policy that denied.
fn wait(outcomes: &Outcomes, most: Micros) -> impl Fn(&Outcome) -> Option<Micros> {
    let helps = outcomes.retry_after().is_some();
    move |outcome| {
        let wait = outcome.retry_micros().filter(|_| helps)?;
        Some(wait.min(most))
    }
}

/// Quotes a string of a structured field. For printable ASCII the result is a JSON string as well.
pub(super) fn quoted(name: &str) -> String {
    let escaped = name.replace('\\', r"\\").replace('"', r#"\""#);
    format!("\"{escaped}\"")
}

fn separate(list: &mut Buffer) {
    if !list.is_empty() {
        list.extend_from_slice(b", ");
    }
}
