use std::borrow::Cow;

use bytes::Bytes;
use http::StatusCode;

use super::draft11::quoted;
use crate::decision::Outcomes;
use crate::policy::Policy;

/// A problem of the type of draft-ietf-httpapi-ratelimit-headers-11, section 6.1, with the
/// beginning of its detail.
macro_rules! quota_exceeded {
    ($detail:literal) => {
        concat!(
            r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
            r#""title":"Quota Exceeded","status":429,"detail":"Too many requests. "#,
            $detail,
        )
    };
}

pub(super) const STORE_FAILED: Bytes = Bytes::from_static(
    br#"{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"The rate limiter is unavailable."}"#,
);

/// A problem of which the status says all.
pub(super) fn without_detail(status: StatusCode) -> Bytes {
    let title = status.canonical_reason().unwrap_or("Refused");
    let code = status.as_u16();
    format!(r#"{{"type":"about:blank","title":"{title}","status":{code}}}"#).into()
}

/// Writes problems of RFC 9457.
#[derive(Debug)]
pub(super) struct Problems {
    /// The policies' names as strings of JSON.
    names: Vec<String>,
    /// What ends a problem when one policy has denied.
    endings: Vec<String>,
}

impl Problems {
    pub(super) fn new(policies: &[Policy]) -> Self {
        let names = policies.iter().map(|policy| quoted(policy.name()));
        let names: Vec<_> = names.collect();
        Self {
            endings: names.iter().map(|name| ending(name)).collect(),
            names,
        }
    }

    /// `retry_after` is in seconds.
    pub(super) fn quota_exceeded(&self, outcomes: &Outcomes, retry_after: Option<&str>) -> Bytes {
        let [start, seconds, unit] = match retry_after {
            None => [quota_exceeded!("No wait will let this one pass."), "", ""],
            Some("1") => [quota_exceeded!("Retry after 1 second."), "", ""],
            Some(seconds) => [quota_exceeded!("Retry after "), seconds, " seconds."],
        };
        let denied = outcomes.iter().filter(|(_, outcome)| outcome.denies());
        let mut denied = denied.map(|(policy, _)| policy);
        let ending = match (denied.next(), denied.next()) {
            (Some(policy), None) => Cow::Borrowed(text(&self.endings, policy)),
            (first, second) => {
                let denied = first.into_iter().chain(second).chain(denied);
                let names: Vec<_> = denied.map(|policy| text(&self.names, policy)).collect();
                Cow::Owned(ending(&names.join(",")))
            }
        };
        // As long as it has to be, since `Bytes` allocates again for one that has room left.
        Bytes::from([start, seconds, unit, &ending].concat())
    }
}

fn text(texts: &[String], policy: usize) -> &str {
    texts.get(policy).map_or("", String::as_str)
}

fn ending(names: &str) -> String {
    format!(r#"","violated-policies":[{names}]}}"#)
}
