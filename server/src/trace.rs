//! The trace to which a request belongs, by W3C Trace Context. The field passes the server as it is.

use http::{HeaderMap, HeaderValue};

/// Returns `traceparent`, unless it stands there twice.
pub(crate) fn parent(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut values = headers.get_all("traceparent").iter();
    let parent = values.next()?;
    values.next().is_none().then(|| parent.clone())
}

/// Returns the `trace-id` of a `traceparent`. A client may send any text, and the log has none that is no trace.
pub(crate) fn id(parent: &HeaderValue) -> Option<&str> {
    let mut fields = parent.to_str().ok()?.split('-');
    let (version, trace) = (fields.next()?, fields.next()?);
    let (span, flags) = (fields.next()?, fields.next()?);
    // Later versions may have more fields.
    let is_version = version != "ff" && (version != "00" || fields.next().is_none());
    let is_field = |(field, length): (&str, usize)| {
        let is_hexadecimal = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        field.len() == length && field.bytes().all(is_hexadecimal)
    };
    let has_fields = [(version, 2), (trace, 32), (span, 16), (flags, 2)]
        .into_iter()
        .all(is_field);
    let is_something = |id: &str| id.bytes().any(|byte| byte != b'0');
    (is_version && has_fields && is_something(trace) && is_something(span)).then_some(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trace_of_a_request_is_read_and_what_is_no_trace_is_not() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        for (version, rest, expected) in [
            ("00", "00f067aa0ba902b7-01", true),
            ("00", "00f067aa0ba902b7-01-x", false),
            ("cc", "00f067aa0ba902b7-01-x", true),
            ("ff", "00f067aa0ba902b7-01", false),
            ("00", "0000000000000000-01", false),
            ("00", "00F067AA0BA902B7-01", false),
            ("00", "00f067aa0ba902b7", false),
        ] {
            let mut headers = HeaderMap::new();
            let text = format!("{version}-{trace}-{rest}");
            headers.insert("traceparent", text.parse().unwrap());
            let found = parent(&headers).unwrap();
            assert_eq!(id(&found), expected.then_some(trace), "{text}");
            headers.append("traceparent", text.parse().unwrap());
            assert_eq!(parent(&headers), None);
        }
    }
}
