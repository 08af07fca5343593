//! The trace to which a request belongs, by W3C Trace Context. The field passes the server as it is, where no span stands between.

use http::{HeaderMap, HeaderValue};

const PARENT: &str = "traceparent";

/// What a `traceparent` tells, in lower case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place<'a> {
    pub(crate) trace: &'a str,
    pub(crate) span: &'a str,
    pub(crate) flags: &'a str,
}

/// Returns `traceparent`, unless it stands there twice.
pub(crate) fn parent(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut values = headers.get_all(PARENT).iter();
    let parent = values.next()?;
    values.next().is_none().then(|| parent.clone())
}

/// Reads a `traceparent`. A client may send any text, and the log has none that is no trace.
pub(crate) fn place(parent: &HeaderValue) -> Option<Place<'_>> {
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
    let is_one = is_version && has_fields && is_something(trace) && is_something(span);
    is_one.then_some(Place { trace, span, flags })
}

/// Returns the `trace-id` of a `traceparent`.
pub(crate) fn id(parent: &HeaderValue) -> Option<&str> {
    place(parent).map(|place| place.trace)
}

/// Makes this span the parent of the next one. What a client sends of a trace that does not go on is removed.
pub(crate) fn go_on(headers: &mut HeaderMap, span: &HeaderValue) {
    let sent = parent(headers);
    if sent.as_ref().and_then(id) != id(span) {
        headers.remove("tracestate");
    }
    headers.insert(PARENT, span.clone());
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn the_trace_of_a_request_is_read_and_what_is_no_trace_is_not() {
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
            let text = format!("{version}-{TRACE}-{rest}");
            headers.insert("traceparent", text.parse().unwrap());
            let found = parent(&headers).unwrap();
            let place = place(&found);
            let expected = expected.then_some(Place {
                trace: TRACE,
                span: "00f067aa0ba902b7",
                flags: "01",
            });
            assert_eq!(place, expected, "{text}");
            headers.append("traceparent", text.parse().unwrap());
            assert_eq!(parent(&headers), None);
        }
    }

    #[test]
    fn the_state_of_a_trace_goes_on_with_the_trace_alone() {
        let span: HeaderValue = format!("00-{TRACE}-00f067aa0ba902b8-01").parse().unwrap();
        for (sent, goes_on) in [
            (&[&*format!("00-{TRACE}-00f067aa0ba902b7-00")][..], true),
            (
                &["00-4bf92f3577b34da6a3ce929d0e0e4737-00f067aa0ba902b7-00"],
                false,
            ),
            (&["nothing"], false),
            (&[], false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("tracestate", "a=1".parse().unwrap());
            for value in sent {
                headers.append("traceparent", value.parse().unwrap());
            }
            go_on(&mut headers, &span);
            assert_eq!(headers.contains_key("tracestate"), goes_on, "{sent:?}");
            assert_eq!(parent(&headers).as_ref(), Some(&span));
        }
    }
}
