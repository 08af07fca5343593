use bytes::Bytes;

use super::draft11::quoted;
use crate::decision::Outcomes;
use crate::policy::Policy;

/// The problem type of draft-ietf-httpapi-ratelimit-headers-11, section 6.1.
const QUOTA_EXCEEDED: &str = r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"detail":""#;

pub(super) const MISCONFIGURED: Bytes =
    Bytes::from_static(br#"{"type":"about:blank","title":"Internal Server Error","status":500}"#);

pub(super) const STORE_FAILED: Bytes = Bytes::from_static(
    br#"{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"The rate limiter is unavailable."}"#,
);

/// Writes problems of RFC 9457.
#[derive(Debug)]
pub(super) struct Problems {
    /// The policies' names as strings of JSON.
    names: Vec<String>,
}

impl Problems {
    pub(super) fn new(policies: &[Policy]) -> Self {
        Self {
            names: policies
                .iter()
                .map(|policy| quoted(policy.name()))
                .collect(),
        }
    }

    pub(super) fn quota_exceeded(&self, outcomes: &Outcomes, retry_after: Option<u64>) -> Bytes {
        let detail = match retry_after {
            None => "Too many requests. No wait will let this one pass.".to_owned(),
            Some(1) => "Too many requests. Retry after 1 second.".to_owned(),
            Some(seconds) => format!("Too many requests. Retry after {seconds} seconds."),
        };
        let violated: Vec<&str> = outcomes
            .iter()
            .filter(|(_, outcome)| !outcome.is_allowed())
            .filter_map(|(policy, _)| self.names.get(policy).map(String::as_str))
            .collect();
        let violated = violated.join(",");
        Bytes::from(format!(
            r#"{QUOTA_EXCEEDED}{detail}","violated-policies":[{violated}]}}"#
        ))
    }
}
