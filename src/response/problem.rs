use std::borrow::Cow;

use bytes::Bytes;
use http::StatusCode;

use super::draft11::quoted;
use super::sentence::{SECONDS, sentence};
use crate::decision::{Outcomes, Rule};

pub(super) const STORE_FAILED: Bytes = Bytes::from_static(
    br#"{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"The rate limiter is unavailable."}"#,
);

/// Returns a problem that consists of its status.
pub(super) fn without_detail(status: StatusCode) -> Bytes {
    let title = status.canonical_reason().unwrap_or("Refused");
    let code = status.as_u16();
    format!(r#"{{"type":"about:blank","title":"{title}","status":{code}}}"#).into()
}

/// Writes problems of RFC 9457 with the type of draft-ietf-httpapi-ratelimit-headers-11, section
/// 6.1.
#[derive(Debug)]
pub(super) struct Problems {
    /// The beginnings of a problem: for a wait of several seconds, for no wait, and for one second.
    longer: String,
    never: String,
    one_second: String,
    has_detail: bool,
    /// The names of the policies as JSON strings.
    names: Vec<String>,
    /// The end of a problem if one policy has denied.
    endings: Vec<String>,
}

impl Problems {
    pub(super) fn new(status: StatusCode, rules: &[Rule], has_detail: bool) -> Self {
        let start = |retry_after| {
            let start = format!(
                r#"{{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":{}"#,
                status.as_u16()
            );
            let [sentence, ..] = sentence(retry_after);
            if has_detail {
                format!(r#"{start},"detail":"{sentence}"#)
            } else {
                start
            }
        };
        let names = rules.iter().map(|rule| quoted(rule.name()));
        let names: Vec<_> = names.collect();
        Self {
            longer: start(Some("2")),
            never: start(None),
            one_second: start(Some("1")),
            has_detail,
            endings: names.iter().map(|name| ending(name, has_detail)).collect(),
            names,
        }
    }

    /// `retry_after` is in seconds.
    pub(super) fn quota_exceeded(&self, outcomes: &Outcomes, retry_after: Option<&str>) -> Bytes {
        let [start, seconds, unit] = match retry_after {
            None => [&self.never, "", ""],
            Some("1") => [&self.one_second, "", ""],
            Some(seconds) if self.has_detail => [&self.longer, seconds, SECONDS],
            Some(_) => [&self.longer, "", ""],
        };
        let denied = outcomes.iter().filter(|(_, outcome)| outcome.denies());
        let mut denied = denied.map(|(policy, _)| policy);
        let ending = match (denied.next(), denied.next()) {
            (Some(policy), None) => Cow::Borrowed(text(&self.endings, policy)),
            (first, second) => {
                let denied = first.into_iter().chain(second).chain(denied);
                let names: Vec<_> = denied.map(|policy| text(&self.names, policy)).collect();
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
    format!(r#"{quote},"violated-policies":[{names}]}}"#)
}
