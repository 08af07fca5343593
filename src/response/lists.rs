//! Both headers of draft 11, as lines that are added to those of an inner service.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::names::{RATELIMIT, RATELIMIT_POLICY};

/// The headers of draft 11.
#[derive(Debug)]
pub(super) struct Lists {
    pub(super) policies: HeaderValue,
    pub(super) limits: HeaderValue,
}

impl Lists {
    /// Adds the lines to the headers of a response.
    pub(super) fn add_to(self, headers: &mut HeaderMap) {
        let has_policies = add_line(headers, &RATELIMIT_POLICY, self.policies);
        let has_limits = add_line(headers, &RATELIMIT, self.limits);
        if has_policies && !has_limits {
            take_line_back(headers, &RATELIMIT_POLICY);
        }
    }
}

/// Adds a line to a list header, and returns whether it did.
///
/// It adds nothing to a full map, nor to a header in the syntax of an older draft: the two lines
/// together would be valid in neither syntax.
fn add_line(headers: &mut HeaderMap, name: &HeaderName, line: HeaderValue) -> bool {
    // A lookup before the insertion would cost every response whose service sends no such header.
    let Ok(was_there) = headers.try_append(name, line) else {
        return false;
    };
    let first = || headers.get(name).map(HeaderValue::as_bytes);
    if !was_there || first().is_none_or(|first| first.trim_ascii().starts_with(b"\"")) {
        return true;
    }
    take_line_back(headers, name);
    false
}

/// Removes the last line of a header.
fn take_line_back(headers: &mut HeaderMap, name: &HeaderName) {
    let mut lines: Vec<_> = headers.get_all(name).iter().cloned().collect();
    lines.pop();
    headers.remove(name);
    for line in lines {
        let _ = headers.try_append(name, line);
    }
}
