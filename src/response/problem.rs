//! Problems of RFC 9457, and the error of a protocol that has its own.

use std::borrow::Cow;

use bytes::Bytes;
use http::StatusCode;

use tower_ratelimit_core::__internal::Rule;

use super::draft11::quoted;
use super::sentence::{SECONDS, sentence};
use crate::decision::Outcomes;

pub(super) const STORE_FAILED: Bytes = Bytes::from_static(
    br#"{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"The rate limiter is unavailable."}"#,
);

/// The error of the Model Context Protocol for a header that does not match the body.
#[cfg(feature = "usage")]
pub(super) const HEADER_MISMATCH: Bytes = Bytes::from_static(
    br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32020,"message":"Header mismatch: a header says something else than the body."}}"#,
);

/// Returns a problem that consists of its status.
pub(super) fn without_detail(status: StatusCode) -> Bytes {
    let title = status.canonical_reason().unwrap_or("Refused");
    let code = status.as_u16();
    format!(r#"{{"type":"about:blank","title":"{title}","status":{code}}}"#).into()
}

/// Returns a problem that consists of its status and a sentence.
#[cfg(feature = "usage")]
pub(super) fn with_detail(status: StatusCode, detail: &str) -> Bytes {
    let title = status.canonical_reason().unwrap_or("Refused");
    let code = status.as_u16();
    format!(r#"{{"type":"about:blank","title":"{title}","status":{code},"detail":"{detail}"}}"#)
        .into()
}

/// Returns the problem of a request that finds no slot of the limit of this name.
pub(super) fn saturated(name: &str, status: StatusCode) -> Bytes {
    let (code, name) = (status.as_u16(), quoted(name));
    format!(r#"{{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporary Reduced Capacity","status":{code},"detail":"Too many requests are in flight.","violated-policies":[{name}]}}"#).into()
}

/// Writes problems of RFC 9457 with the type of draft-ietf-httpapi-ratelimit-headers-11, section
/// 6.1.
#[derive(Debug)]
pub(super) struct Problems {
    exceeded: Starts,
    /// For a limit that is lower for now: see [`Outcome::is_reduced`](crate::Outcome::is_reduced).
    reduced: Starts,
    has_detail: bool,
    /// The names of the policies as JSON strings. That of one which clients are not told of is empty.
    names: Vec<String>,
    /// The end of a problem if one policy has denied.
    endings: Vec<String>,
}

/// The beginnings of a problem: for a wait of several seconds, for no wait, for the end of another request, and for one
/// second.
#[derive(Debug)]
struct Starts {
    longer: String,
    never: String,
    at_once: String,
    one_second: String,
}

impl Starts {
    fn new(kind: &str, title: &str, status: StatusCode, has_detail: bool) -> Self {
        let start = |retry_after, is_at_once| {
            let start = format!(
                r#"{{"type":"https://iana.org/assignments/http-problem-types#{kind}","title":"{title}","status":{}"#,
                status.as_u16()
            );
            let [sentence, ..] = sentence(retry_after, is_at_once);
            if has_detail {
                format!(r#"{start},"detail":"{sentence}"#)
            } else {
                start
            }
        };
        Self {
            longer: start(Some("2"), false),
            never: start(None, false),
            at_once: start(None, true),
            one_second: start(Some("1"), false),
        }
    }
}

impl Problems {
    pub(super) fn new(status: StatusCode, rules: &[Rule], has_detail: bool) -> Self {
        let names = rules.iter().map(|rule| {
            if rule.is_announced() {
                quoted(rule.name())
            } else {
                String::new()
            }
        });
        let names: Vec<_> = names.collect();
        let starts = |kind, title| Starts::new(kind, title, status, has_detail);
        Self {
            exceeded: starts("quota-exceeded", "Quota Exceeded"),
            reduced: starts("temporary-reduced-capacity", "Temporary Reduced Capacity"),
            has_detail,
            endings: names.iter().map(|name| ending(name, has_detail)).collect(),
            names,
        }
    }

    /// Writes the problem of a request that a policy denied. `retry_after` is in seconds.
    pub(super) fn denied(&self, outcomes: &Outcomes, retry_after: Option<&str>) -> Bytes {
        let denied = outcomes.iter().filter(|(_, outcome)| outcome.denies());
        let is_reduced = denied.clone().any(|(_, outcome)| outcome.is_reduced());
        let starts = if is_reduced {
            &self.reduced
        } else {
            &self.exceeded
        };
        let [start, seconds, unit] = match retry_after {
            None if outcomes.are_too_many_at_once() => [&starts.at_once, "", ""],
            None => [&starts.never, "", ""],
            Some("1") => [&starts.one_second, "", ""],
            Some(seconds) if self.has_detail => [&starts.longer, seconds, SECONDS],
            Some(_) => [&starts.longer, "", ""],
        };
        let mut denied = denied.map(|(policy, _)| policy);
        let ending = match (denied.next(), denied.next()) {
            (Some(policy), None) => Cow::Borrowed(text(&self.endings, policy)),
            (first, second) => {
                let denied = first.into_iter().chain(second).chain(denied);
                let names = denied.map(|policy| text(&self.names, policy));
                let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
                Cow::Owned(ending(&names.join(","), self.has_detail))
            }
        };
        // The exact length: `Bytes` reallocates a buffer with spare capacity.
        Bytes::from([start, seconds, unit, &ending].concat())
    }
}

fn text(texts: &[String], policy: usize) -> &str {
    texts.get(policy).map_or("", String::as_str)
}

/// Returns the text after the detail, or after the status.
fn ending(names: &str, has_detail: bool) -> String {
    let quote = if has_detail { "\"" } else { "" };
    if names.is_empty() {
        return format!("{quote}}}");
    }
    format!(r#"{quote},"violated-policies":[{names}]}}"#)
}
