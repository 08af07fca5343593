use std::sync::LazyLock;

use http::{HeaderName, HeaderValue, Response, StatusCode};
use smallvec::SmallVec;

use super::Refusal;
use super::form::Form;
use crate::clock::Micros;
use crate::decision::{Outcome, Outcomes};
use crate::policy::Policy;

pub(super) static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub(super) static RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Both fields, for a response that has no others.
static ALONE: LazyLock<Form<2>> =
    LazyLock::new(|| Form::new(&[], [RATELIMIT_POLICY.clone(), RATELIMIT.clone()]));

/// The largest integer of a structured field (RFC 9651, section 3.3.1).
const LARGEST_INTEGER: u64 = 999_999_999_999_999;

/// Writes the fields of draft-ietf-httpapi-ratelimit-headers-11.
#[derive(Debug)]
pub(crate) struct Draft11 {
    items: Vec<Item>,
    /// How many policies have a limit, and `RateLimit-Policy` when all of them are asked, as a
    /// rule on every request.
    all: (usize, Option<HeaderValue>),
}

/// What can be written of a policy before any request has come.
#[derive(Debug)]
struct Item {
    /// `"name";r=`
    remaining: String,
    /// `"name";q=10;w=2`
    policy: String,
}

/// The fields of one response.
#[derive(Debug)]
pub(crate) struct Fields {
    pub(super) policies: HeaderValue,
    pub(super) limits: HeaderValue,
}

type Buffer = SmallVec<[u8; 256]>;

impl Draft11 {
    pub(crate) fn new(policies: &[Policy]) -> Self {
        let limited = policies.iter().filter(|policy| policy.is_limited());
        let all: Vec<String> = limited.map(|policy| Item::new(policy).policy).collect();
        Self {
            items: policies.iter().map(Item::new).collect(),
            all: (all.len(), HeaderValue::try_from(all.join(", ")).ok()),
        }
    }

    /// All policies that were asked, with what remains under each.
    pub(crate) fn allowed(&self, outcomes: &Outcomes) -> Option<Fields> {
        self.fields(outcomes, |_| true, Outcome::effective_micros)
    }

    /// All policies that were asked; of those that denied, how long to wait. No time is told
    /// where none helps, nor one above `Retry-After`, which is never longer than `most`.
    pub(crate) fn denied(&self, outcomes: &Outcomes, most: Micros) -> Option<Fields> {
        let denied = Outcome::denies;
        let helps = outcomes.retry_after().is_some();
        self.fields(outcomes, denied, |outcome| {
            let wait = outcome.retry_micros().filter(|_| helps)?;
            Some(wait.min(most))
        })
    }

    /// `None` if there is nothing to tell.
    fn fields(
        &self,
        outcomes: &Outcomes,
        listed: impl Fn(&Outcome) -> bool,
        window: impl Fn(&Outcome) -> Option<Micros>,
    ) -> Option<Fields> {
        let mut limits = Buffer::new();
        let (mut remaining, mut seconds) = (itoa::Buffer::new(), itoa::Buffer::new());
        for (policy, outcome) in outcomes.iter().filter(|(_, outcome)| listed(outcome)) {
            let mut parts = [
                &self.items.get(policy)?.remaining,
                remaining.format(outcome.remaining()),
                "",
                "",
            ];
            if let Some(window) = window(outcome) {
                parts[2..].copy_from_slice(&[";t=", seconds.format(whole_seconds(window))]);
            }
            if outcomes.iter().len() == 1 {
                return Some(Fields {
                    policies: self.policies(outcomes)?,
                    limits: HeaderValue::try_from(parts.concat()).ok()?,
                });
            }
            separate(&mut limits);
            for part in parts {
                limits.extend_from_slice(part.as_bytes());
            }
        }
        if limits.is_empty() {
            return None;
        }
        Some(Fields {
            policies: self.policies(outcomes)?,
            limits: HeaderValue::from_bytes(&limits).ok()?,
        })
    }

    fn policies(&self, outcomes: &Outcomes) -> Option<HeaderValue> {
        let (limited, all) = &self.all;
        if outcomes.iter().len() == *limited {
            return all.clone();
        }
        let mut policies = Buffer::new();
        for (policy, _) in outcomes.iter() {
            separate(&mut policies);
            policies.extend_from_slice(self.items.get(policy)?.policy.as_bytes());
        }
        HeaderValue::from_bytes(&policies).ok()
    }
}

impl Item {
    fn new(policy: &Policy) -> Self {
        let name = quoted(policy.name());
        let algorithm = policy.algorithm();
        let limit = algorithm.limit().unwrap_or(0);
        let policy = match algorithm.period() {
            Some(wait) => format!("{name};q={limit};w={}", whole_seconds(wait.into())),
            None => format!("{name};q={limit}"),
        };
        let remaining = format!("{name};r=");
        Self { remaining, policy }
    }
}

impl Fields {
    /// Adds the fields to a response, unless it is a redirect or not the final one, or the refusal
    /// of a layer inside: that lists what the client has violated, and nothing else.
    pub(crate) fn add_to<B>(self, response: &mut Response<B>) {
        let status = response.status();
        let redirects = status.is_redirection() && status != StatusCode::NOT_MODIFIED;
        if redirects || status.is_informational() {
            return;
        }
        if let Some(Refusal::Denied(_)) = response.extensions().get() {
            return;
        }
        let headers = response.headers_mut();
        if headers.capacity() == 0 {
            *headers = ALONE.filled([self.policies, self.limits]);
            return;
        }
        // A map that is full is left as it is.
        if headers.try_append(&RATELIMIT_POLICY, self.policies).is_ok() {
            let _ = headers.try_append(&RATELIMIT, self.limits);
        }
    }
}

/// A string of a structured field; of printable ASCII, it is a string of JSON as well.
pub(super) fn quoted(name: &str) -> String {
    let escaped = name.replace('\\', r"\\").replace('"', r#"\""#);
    format!("\"{escaped}\"")
}

fn separate(list: &mut Buffer) {
    if !list.is_empty() {
        list.extend_from_slice(b", ");
    }
}

fn whole_seconds(time: Micros) -> u64 {
    time.ceil_secs().clamp(1, LARGEST_INTEGER)
}
