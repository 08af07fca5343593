use std::borrow::Cow;
use std::sync::Arc;

use tonic_types::ErrorDetails;

use tower_ratelimit_core::__internal::Rule;

use crate::clock::Micros;
use crate::decision::{Outcome, Outcomes};
use crate::key::Head;

/// Returns the name of the client that is over a policy's limit.
pub(super) type Subject = dyn Fn(&Head<'_>, &str) -> Option<String> + Send + Sync;

/// Writes the details of a refusal by a policy: `google.rpc.RetryInfo` and
/// `google.rpc.QuotaFailure`.
pub(super) struct Details {
    subject: Option<Arc<Subject>>,
    /// Empty if refusals do not name policies; `None` for a policy that clients are not told of.
    policies: Vec<Option<PolicyText>>,
    /// Whether limits are sent.
    tells: bool,
}

struct PolicyText {
    name: String,
    /// `burst: 10 requests per 1 s`, or the name alone if limits are not sent.
    description: String,
}

/// Clients may accept no more than 8 KiB of a trailers-only response (gRPC over HTTP/2), and base64
/// adds a third to this.
const LONGEST_VIOLATIONS: usize = 3 * 1024;

/// Longer subjects are cut.
const LONGEST_SUBJECT: usize = 256;

impl Details {
    /// `tells` says whether limits are sent.
    pub(super) fn new(subject: Option<Arc<Subject>>, rules: &[Rule], tells: bool) -> Self {
        let policies = rules.iter().map(|rule| {
            rule.is_announced().then(|| PolicyText {
                name: rule.name().to_owned(),
                description: if tells {
                    format!("{}: {}", rule.name(), limit(rule))
                } else {
                    rule.name().to_owned()
                },
            })
        });
        Self {
            subject,
            policies: policies.collect(),
            tells,
        }
    }

    /// Writes the details for a request with this wait, or with none that helps.
    pub(super) fn write(
        &self,
        wait: Option<Micros>,
        outcomes: &Outcomes,
        head: &Head<'_>,
    ) -> ErrorDetails {
        let mut details = ErrorDetails::new();
        if let Some(wait) = wait {
            details.set_retry_info(Some(wait.to_duration()));
        }
        let mut room = LONGEST_VIOLATIONS;
        let denied = outcomes.iter().filter(|(_, outcome)| outcome.denies());
        for (policy, outcome) in denied {
            let Some(Some(text)) = self.policies.get(policy) else {
                continue;
            };
            let subject = self.subject(text, head);
            let description = self.description(text, outcome);
            let Some(left) = room.checked_sub(subject.len() + description.len()) else {
                break;
            };
            room = left;
            details.add_quota_failure_violation(subject, description);
        }
        details
    }

    /// Describes the policy. A limit of a plan or of the hour, and the length of the present month, replace
    /// the policy's own.
    fn description<'a>(&self, text: &'a PolicyText, outcome: &Outcome) -> Cow<'a, str> {
        let Some((limit, seconds)) = outcome.own_limit().filter(|_| self.tells) else {
            return Cow::Borrowed(&text.description);
        };
        let name = &text.name;
        Cow::Owned(match seconds {
            Some(seconds) => format!("{name}: {limit} requests per {seconds} s"),
            None => format!("{name}: {limit} requests"),
        })
    }

    fn subject(&self, text: &PolicyText, head: &Head<'_>) -> String {
        let subject = self.subject.as_ref();
        let mut subject = subject
            .and_then(|subject| subject(head, &text.name))
            .unwrap_or_default();
        if let Some((end, _)) = subject
            .char_indices()
            .find(|(at, c)| at + c.len_utf8() > LONGEST_SUBJECT)
        {
            subject.truncate(end);
        }
        subject
    }
}

/// `10 requests per 1 s`.
fn limit(rule: &Rule) -> String {
    let limit = rule.limit().unwrap_or(0);
    let Some(period) = rule.period() else {
        let at_once = if rule.is_at_once() { " at once" } else { "" };
        return format!("{limit} requests{at_once}");
    };
    if period.subsec_nanos() == 0 {
        format!("{limit} requests per {} s", period.as_secs())
    } else {
        format!(
            "{limit} requests per {} ms",
            period.as_micros().div_ceil(1_000)
        )
    }
}
