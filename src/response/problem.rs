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
        let mut body = String::with_capacity(256);
        body.push_str(QUOTA_EXCEEDED);
        body.push_str("Too many requests. ");
        match retry_after {
            None => body.push_str("No wait will let this one pass."),
            Some(1) => body.push_str("Retry after 1 second."),
            Some(seconds) => {
                body.push_str("Retry after ");
                body.push_str(&seconds.to_string());
                body.push_str(" seconds.");
            }
        }
        body.push_str(r#"","violated-policies":["#);
        let denied = outcomes.iter().filter(|(_, outcome)| !outcome.is_allowed());
        for (place, (policy, _)) in denied.enumerate() {
            if place > 0 {
                body.push(',');
            }
            body.push_str(self.names.get(policy).map_or("\"\"", String::as_str));
        }
        body.push_str("]}");
        Bytes::from(body)
    }
}
