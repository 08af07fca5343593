use std::borrow::Cow;

use bytes::Bytes;
use http::StatusCode;

use super::body::{TOO_MANY, sentence};
use super::draft11::quoted;
use crate::decision::Outcomes;
use crate::policy::Policy;

pub(super) const MISCONFIGURED: Bytes =
    Bytes::from_static(br#"{"type":"about:blank","title":"Internal Server Error","status":500}"#);

pub(super) const STORE_FAILED: Bytes = Bytes::from_static(
    br#"{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"The rate limiter is unavailable."}"#,
);

/// Writes problems of RFC 9457, of the type of draft-ietf-httpapi-ratelimit-headers-11, section
/// 6.1.
#[derive(Debug)]
pub(super) struct Problems {
    /// What comes before the sentence that tells the wait.
    start: String,
    has_detail: bool,
    /// The policies' names as strings of JSON.
    names: Vec<String>,
    /// What ends a problem when one policy has denied.
    endings: Vec<String>,
}

impl Problems {
    pub(super) fn new(status: StatusCode, policies: &[Policy]) -> Self {
        let problems = Self::bare(status, policies);
        let endings = problems.endings.iter();
        Self {
            start: format!(r#"{},"detail":"{TOO_MANY}"#, problems.start),
            has_detail: true,
            endings: endings.map(|ending| format!("\"{ending}")).collect(),
            ..problems
        }
    }

    /// Without a detail.
    pub(super) fn bare(status: StatusCode, policies: &[Policy]) -> Self {
        let names = policies.iter().map(|policy| quoted(policy.name()));
        let names: Vec<_> = names.collect();
        Self {
            start: format!(
                r#"{{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":{}"#,
                status.as_u16()
            ),
            has_detail: false,
            endings: names.iter().map(|name| ending(name)).collect(),
            names,
        }
    }

    /// `retry_after` is in seconds.
    pub(super) fn quota_exceeded(&self, outcomes: &Outcomes, retry_after: Option<&str>) -> Bytes {
        let [wait, seconds, unit] = match self.has_detail {
            true => sentence(retry_after),
            false => [""; 3],
        };
        let denied = outcomes.iter().filter(|(_, outcome)| !outcome.is_allowed());
        let mut denied = denied.map(|(policy, _)| policy);
        let ending = match (denied.next(), denied.next()) {
            (Some(policy), None) => Cow::Borrowed(text(&self.endings, policy)),
            (first, second) => {
                let denied = first.into_iter().chain(second).chain(denied);
                let names: Vec<_> = denied.map(|policy| text(&self.names, policy)).collect();
                let quote = if self.has_detail { "\"" } else { "" };
                Cow::Owned([quote, &ending(&names.join(","))].concat())
            }
        };
        // As long as it has to be, since `Bytes` allocates again for one that has room left.
        Bytes::from([&self.start, wait, seconds, unit, &ending].concat())
    }
}

fn text(texts: &[String], policy: usize) -> &str {
    texts.get(policy).map_or("", String::as_str)
}

fn ending(names: &str) -> String {
    format!(r#","violated-policies":[{names}]}}"#)
}
