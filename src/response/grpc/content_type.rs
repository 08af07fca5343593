use http::{HeaderMap, HeaderValue};

use crate::response::call;

/// A call of gRPC itself.
pub(super) const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// The longest suffix that an answer repeats. It bounds the length of answers.
const LONGEST_SUFFIX: usize = 32;

/// Returns the content type of the answer if the request is a call: one of the three of gRPC and
/// gRPC-Web, with the suffix of the request (`+proto`) and without parameters.
pub(super) fn of_answer_to(request: &HeaderMap) -> Option<HeaderValue> {
    let (family, suffix) = call::of(request)?;
    let suffix = if may_be_repeated(suffix) { suffix } else { &[] };
    Some(match (family, suffix) {
        ("application/grpc", []) => GRPC,
        (family, []) => HeaderValue::from_static(family),
        (family, suffix) => HeaderValue::from_bytes(&[family.as_bytes(), suffix].concat())
            .unwrap_or_else(|_| HeaderValue::from_static(family)),
    })
}

/// Returns whether this is a plus sign and the name of a message format.
fn may_be_repeated(suffix: &[u8]) -> bool {
    let is_of_a_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(byte);
    (2..=LONGEST_SUFFIX).contains(&suffix.len()) && suffix.iter().all(is_of_a_name)
}

#[cfg(test)]
mod tests {
    use http::header::CONTENT_TYPE;

    use super::*;

    fn answered(sent: &[u8]) -> Option<HeaderValue> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_bytes(sent).unwrap());
        of_answer_to(&headers)
    }

    #[test]
    fn a_call_is_answered_in_its_own_content_type() {
        for (sent, expected) in [
            ("application/grpc", "application/grpc"),
            ("application/grpc+proto", "application/grpc+proto"),
            ("application/grpc+json", "application/grpc+json"),
            ("application/grpc;charset=utf-8", "application/grpc"),
            ("application/grpc+proto; x=\"+\"", "application/grpc+proto"),
            ("APPLICATION/GRPC", "application/grpc"),
            ("application/grpc-web", "application/grpc-web"),
            ("application/grpc-web+proto", "application/grpc-web+proto"),
            ("application/grpc-web-text", "application/grpc-web-text"),
            (
                "Application/gRPC-Web-Text+proto ; a=b",
                "application/grpc-web-text+proto",
            ),
        ] {
            assert_eq!(answered(sent.as_bytes()).unwrap(), expected, "{sent}");
        }
    }

    #[test]
    fn a_similar_content_type_is_no_call() {
        assert_eq!(of_answer_to(&HeaderMap::new()), None);
        for sent in [
            "",
            ";",
            "+",
            "application/json",
            "application/grpcx",
            "application/grpc-websocket",
            "application/grpc-web-textual",
            "application/ grpc",
            "text/plain; application/grpc",
            "application/json+grpc",
        ] {
            assert_eq!(answered(sent.as_bytes()), None, "{sent}");
        }
    }

    #[test]
    fn nothing_hostile_is_repeated() {
        let long = format!("application/grpc+{}", "p".repeat(5_000));
        for sent in [
            long.as_bytes(),
            b"application/grpc+\xff\xfe",
            b"application/grpc+",
            b"application/grpc+pro to",
            b"application/grpc+<script>",
        ] {
            assert_eq!(answered(sent).unwrap(), "application/grpc", "{sent:?}");
        }
    }
}
