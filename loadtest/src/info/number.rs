//! The numbers in headers.

use http::HeaderMap;

/// Parses a whole number, with a sign if the server errs. A fraction, as some servers send it, is cut off.
pub(super) fn whole(text: &str) -> Option<i64> {
    let text = text.trim();
    let (digits, negative) = match text.strip_prefix('-') {
        Some(digits) => (digits, true),
        None => (text, false),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let value = whole.parse().unwrap_or(i64::MAX);
    Some(if negative { -value } else { value })
}

/// Returns all lines of a header as one text; `None` if there are none, or if they are too long to be meant.
pub(super) fn joined(headers: &HeaderMap, name: &str) -> Option<String> {
    const LONGEST: usize = 8 * 1024;
    let mut lines = headers.get_all(name).iter();
    let mut text = String::from_utf8_lossy(lines.next()?.as_bytes()).into_owned();
    for line in lines {
        text.push_str(", ");
        text.push_str(&String::from_utf8_lossy(line.as_bytes()));
    }
    (text.len() <= LONGEST).then_some(text)
}
