//! The body of a refusal: whether it is a problem of RFC 9457, and whether the problem agrees with the
//! response.

use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// The kind of a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Problem {
    /// The body was not read.
    #[default]
    Unread,
    /// The content type is another one.
    Other,
    /// `application/problem+json`, as RFC 9457 wants it.
    Valid,
    /// `application/problem+json` by its type, but not by its text.
    Invalid(String),
}

impl Problem {
    /// Reads the body of a response with this status.
    pub fn of(headers: &HeaderMap, status: u16, body: &[u8]) -> Self {
        if !is_problem(headers) {
            return Self::Other;
        }
        let value = match serde_json::from_slice(body) {
            Ok(serde_json::Value::Object(value)) => value,
            Ok(_) => return Self::Invalid(String::from("the body is no JSON object")),
            Err(error) => return Self::Invalid(format!("the body is no JSON: {error}")),
        };
        // "MUST use the same status code" (RFC 9457, section 3.1.2).
        match value.get("status").and_then(serde_json::Value::as_u64) {
            Some(status_told) if status_told != u64::from(status) => Self::Invalid(format!(
                "its status is {status_told}, that of the response {status}"
            )),
            _ => Self::Valid,
        }
    }
}

/// Returns whether a response declares its body a problem.
pub(crate) fn is_problem(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("application/problem+json")
    })
}
