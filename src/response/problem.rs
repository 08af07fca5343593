use std::borrow::Cow;

use bytes::Bytes;

use super::draft11::quoted;
use crate::decision::Outcomes;
use crate::policy::Policy;

/// The problem type of draft-ietf-httpapi-ratelimit-headers-11, section 6.1.
const QUOTA_EXCEEDED: &str = r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"detail":"Too many requests. "#;

const VIOLATED: &str = r#"","violated-policies":["#;

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

    /// `retry_after` is in seconds.
    pub(super) fn quota_exceeded(&self, outcomes: &Outcomes, retry_after: Option<&str>) -> Bytes {
        let [before, seconds, after] = match retry_after {
            None => ["No wait will let this one pass.", "", ""],
            Some("1") => ["Retry after 1 second.", "", ""],
            Some(seconds) => ["Retry after ", seconds, " seconds."],
        };
        let denied = outcomes.iter().filter(|(_, outcome)| !outcome.is_allowed());
        let mut names =
            denied.map(|(policy, _)| self.names.get(policy).map_or("\"\"", String::as_str));
        let (first, second) = (names.next().unwrap_or_default(), names.next());
        let all = match second {
            None => Cow::Borrowed(first),
            Some(second) => Cow::Owned(
                [first, second]
                    .into_iter()
                    .chain(names)
                    .collect::<Vec<_>>()
                    .join(","),
            ),
        };
        // As long as it has to be, since `Bytes` allocates again for one that is longer.
        let body = [QUOTA_EXCEEDED, before, seconds, after, VIOLATED, &all, "]}"].concat();
        Bytes::from(body)
    }
}
