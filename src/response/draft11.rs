//! The headers of draft-ietf-httpapi-ratelimit-headers-11.
//!
//! Draft 11 is the default, so its cost is on the path of nearly every request. `RateLimit-Policy`
//! is made once, in the map that a response without headers gets a copy of; `RateLimit` is written into memory
//! of its exact length.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use smallvec::SmallVec;

use tower_ratelimit_core::__internal::Rule;

use super::dialect::whole_seconds;
use super::form::Form;
use super::lists::Lists;
use super::names::{RATELIMIT, RATELIMIT_POLICY};
use super::refusal::LONGEST_RETRY;
use crate::clock::Micros;
use crate::decision::{Outcome, Outcomes};

/// The headers of a response without others whose `RateLimit-Policy` is not the usual one.
static ALONE: LazyLock<Form<0, 2>> =
    LazyLock::new(|| Form::new([], [RATELIMIT_POLICY.clone(), RATELIMIT.clone()]));

/// Writes the headers of draft-ietf-httpapi-ratelimit-headers-11.
#[derive(Debug)]
pub(super) struct Draft11(Arc<Texts>);

/// The text that is the same for all requests.
#[derive(Debug)]
struct Texts {
    items: Vec<Item>,
    /// The number of limited policies that clients are told of.
    limited: usize,
    /// The value of `RateLimit-Policy` for requests to which all of them apply, as usual.
    all: HeaderValue,
    /// The headers of a response without others, if `all` is its `RateLimit-Policy`.
    alone: Form<1, 1>,
}

/// The headers of draft 11 for one response. They are moved several times, and become a map or lines at its end.
#[derive(Debug)]
pub(crate) struct Draft11Headers {
    /// The texts with the value of `RateLimit-Policy`, if it is the usual one.
    usual: Option<Arc<Texts>>,
    /// The value of `RateLimit-Policy`, if it is not, and that of `RateLimit`.
    values: Vec<u8>,
    /// Where `RateLimit` begins.
    limits: usize,
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
    /// Whether clients are told of it.
    is_announced: bool,
}

type Buffer = SmallVec<[u8; 256]>;

impl Draft11Headers {
    /// Writes the headers of one response about these policies, whose texts are not kept.
    pub(super) fn once(rules: &[&Rule], outcomes: &Outcomes, is_allowed: bool) -> Option<Self> {
        let items: Vec<Item> = rules.iter().map(|rule| Item::new(rule)).collect();
        let announced = || announced(&items, outcomes);
        let (values, limits) = if is_allowed {
            write(announced, false, |_| true, Outcome::effective_micros)
        } else {
            let window = wait(outcomes, LONGEST_RETRY);
            write(announced, false, Outcome::denies, window)
        }?;
        Some(Self {
            usual: None,
            values,
            limits,
        })
    }

    /// Adds the headers to those of a response.
    pub(super) fn add_to(self, headers: &mut HeaderMap) {
        if headers.capacity() > 0 {
            if let Some(lists) = self.lists() {
                lists.add_to(headers);
            }
            return;
        }
        if let Some(texts) = &self.usual {
            if let Ok(limits) = HeaderValue::try_from(self.values) {
                *headers = texts.alone.filled([limits]);
            }
        } else if let Some(Lists { policies, limits }) = self.lists() {
            *headers = ALONE.filled([policies, limits]);
        }
    }

    pub(super) fn lists(self) -> Option<Lists> {
        let mut limits = Bytes::from(self.values);
        let policies = match self.usual {
            Some(texts) => texts.all.clone(),
            None => HeaderValue::from_maybe_shared(limits.split_to(self.limits)).ok()?,
        };
        let limits = HeaderValue::from_maybe_shared(limits).ok()?;
        Some(Lists { policies, limits })
    }
}

impl Draft11 {
    pub(super) fn new(rules: &[Rule]) -> Self {
        let limited = rules
            .iter()
            .filter(|rule| rule.limit().is_some() && rule.is_announced());
        let policies: Vec<String> = limited.map(|rule| Item::new(rule).policy).collect();
        // Names are checked to be printable.
        let all = HeaderValue::try_from(policies.join(", "));
        let all = all.unwrap_or_else(|_| HeaderValue::from_static(""));
        Self(Arc::new(Texts {
            items: rules.iter().map(Item::new).collect(),
            limited: policies.len(),
            alone: Form::new(
                [(RATELIMIT_POLICY.clone(), all.clone())],
                [RATELIMIT.clone()],
            ),
            all,
        }))
    }

    /// Lists all policies that apply, with what remains under each.
    pub(super) fn allowed(&self, outcomes: &Outcomes) -> Option<Draft11Headers> {
        self.fields(outcomes, |_| true, Outcome::effective_micros)
    }

    /// Lists all policies that apply, and for those that denied, the wait.
    ///
    /// Sends no time if no wait helps, and no time above `Retry-After`, whose maximum is `most`.
    pub(super) fn denied(&self, outcomes: &Outcomes, most: Micros) -> Option<Draft11Headers> {
        self.fields(outcomes, Outcome::denies, wait(outcomes, most))
    }

    /// Lists what [`allowed`](Self::allowed) does, with a partition key for each policy.
    pub(super) fn allowed_with(
        &self,
        outcomes: &Outcomes,
        partitions: &[String],
    ) -> Option<Draft11Headers> {
        self.partitioned(outcomes, partitions, |_| true, Outcome::effective_micros)
    }

    /// Lists what [`denied`](Self::denied) does, with a partition key for each policy.
    pub(super) fn denied_with(
        &self,
        outcomes: &Outcomes,
        partitions: &[String],
        most: Micros,
    ) -> Option<Draft11Headers> {
        self.partitioned(outcomes, partitions, Outcome::denies, wait(outcomes, most))
    }

    /// Returns `None` if there is nothing to tell.
    #[inline]
    fn fields(
        &self,
        outcomes: &Outcomes,
        listed: impl Fn(&Outcome) -> bool,
        window: impl Fn(&Outcome) -> Option<Micros>,
    ) -> Option<Draft11Headers> {
        let mut all = outcomes.iter();
        if self.0.limited == 1
            && let (Some((policy, outcome)), None) = (all.next(), all.next())
            && outcome.own_limit().is_none()
        {
            // The usual case of one policy: its text is written where it stays.
            let item = self.0.items.get(policy)?;
            if !item.is_announced || !listed(outcome) {
                return None;
            }
            let mut digits = [itoa::Buffer::new(); 2];
            let parts = item.parts(outcome, window(outcome), &mut digits);
            let mut limits = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
            for part in parts {
                limits.extend_from_slice(part.as_bytes());
            }
            return Some(self.usual(limits));
        }
        self.fields_of_several(outcomes, listed, window)
    }

    fn fields_of_several(
        &self,
        outcomes: &Outcomes,
        listed: impl Fn(&Outcome) -> bool,
        window: impl Fn(&Outcome) -> Option<Micros>,
    ) -> Option<Draft11Headers> {
        let is_usual = self.has_usual_policies(outcomes);
        let announced = || announced(&self.0.items, outcomes);
        let (values, limits) = write(announced, is_usual, listed, window)?;
        Some(if is_usual {
            self.usual(values)
        } else {
            Draft11Headers {
                usual: None,
                values,
                limits,
            }
        })
    }

    /// Writes what [`fields`](Self::fields) does, with a partition key after each item.
    fn partitioned(
        &self,
        outcomes: &Outcomes,
        partitions: &[String],
        listed: impl Fn(&Outcome) -> bool,
        window: impl Fn(&Outcome) -> Option<Micros>,
    ) -> Option<Draft11Headers> {
        let (mut policies, mut limits) = (Vec::new(), Vec::new());
        for ((policy, outcome), pk) in outcomes.iter().zip(partitions) {
            let item = self.0.items.get(policy)?;
            if !item.is_announced {
                continue;
            }
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
        let mut values = policies.join(", ");
        let begin = values.len();
        values.push_str(&limits.join(", "));
        Some(Draft11Headers {
            usual: None,
            values: values.into_bytes(),
            limits: begin,
        })
    }

    /// Returns whether all limited policies apply, each with its own limit.
    fn has_usual_policies(&self, outcomes: &Outcomes) -> bool {
        announced(&self.0.items, outcomes).count() == self.0.limited
            && announced(&self.0.items, outcomes).all(|(_, outcome)| outcome.own_limit().is_none())
    }

    #[inline]
    fn usual(&self, limits: Vec<u8>) -> Draft11Headers {
        Draft11Headers {
            usual: Some(Arc::clone(&self.0)),
            values: limits,
            limits: 0,
        }
    }
}

impl Item {
    fn new(rule: &Rule) -> Self {
        let mut remaining = quoted(rule.name());
        let mut policy = String::with_capacity(remaining.len() + 32);
        policy.push_str(&remaining);
        let window = rule.period();
        let window = window.map(|window| whole_seconds(window.into()));
        push_quota(&mut policy, rule.limit().unwrap_or(0), window);
        let unit = if rule.is_at_once() {
            ";qu=\"concurrent-requests\""
        } else {
            ""
        };
        policy.push_str(unit);
        remaining.push_str(";r=");
        Self {
            remaining,
            policy,
            unit,
            is_announced: rule.is_announced(),
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
                let mut policy = self.remaining.trim_end_matches(";r=").to_owned();
                push_quota(&mut policy, limit, window.map(u64::from));
                policy.push_str(self.unit);
                Cow::Owned(policy)
            }
        }
    }
}

fn push_quota(policy: &mut String, limit: u32, window: Option<u64>) {
    let mut digits = itoa::Buffer::new();
    policy.push_str(";q=");
    policy.push_str(digits.format(limit));
    if let Some(seconds) = window {
        policy.push_str(";w=");
        policy.push_str(digits.format(seconds));
    }
}

/// Returns the outcomes of the policies that clients are told of.
fn announced<'a>(
    items: &'a [Item],
    outcomes: &'a Outcomes,
) -> impl Iterator<Item = (&'a Item, &'a Outcome)> {
    outcomes.iter().filter_map(|(policy, outcome)| {
        let item = items.get(policy)?;
        item.is_announced.then_some((item, outcome))
    })
}

/// Writes the list of the policies, unless it is the usual one, and behind it that of their limits, whose begin it returns.
/// `None` if there is nothing to tell.
fn write<'a, I: Iterator<Item = (&'a Item, &'a Outcome)>>(
    announced: impl Fn() -> I,
    is_usual: bool,
    listed: impl Fn(&Outcome) -> bool,
    window: impl Fn(&Outcome) -> Option<Micros>,
) -> Option<(Vec<u8>, usize)> {
    let mut values = Buffer::new();
    if !is_usual {
        for (item, outcome) in announced() {
            separate(&mut values, 0);
            values.extend_from_slice(item.policy(outcome).as_bytes());
        }
    }
    let begin = values.len();
    let mut digits = [itoa::Buffer::new(); 2];
    for (item, outcome) in announced() {
        if !listed(outcome) {
            continue;
        }
        separate(&mut values, begin);
        for part in item.parts(outcome, window(outcome), &mut digits) {
            values.extend_from_slice(part.as_bytes());
        }
    }
    (values.len() > begin).then(|| (values.to_vec(), begin))
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
    let mut quoted = String::with_capacity(name.len() + 8);
    quoted.push('"');
    for letter in name.chars() {
        if matches!(letter, '\\' | '"') {
            quoted.push('\\');
        }
        quoted.push(letter);
    }
    quoted.push('"');
    quoted
}

/// Separates an item from those before it in the list that has this begin.
fn separate(list: &mut Buffer, begin: usize) {
    if list.len() > begin {
        list.extend_from_slice(b", ");
    }
}
