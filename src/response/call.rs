//! Whether a request is a gRPC call, by its content type.

use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// The content types of gRPC and of gRPC-Web. A message format may follow each (`+proto`), and then
/// parameters.
const FAMILIES: [&str; 3] = [
    "application/grpc",
    "application/grpc-web",
    "application/grpc-web-text",
];

/// Returns whether a request with these headers is a call of gRPC or gRPC-Web.
pub(crate) fn is_call(headers: &HeaderMap) -> bool {
    of(headers).is_some()
}

/// Returns the family of a call's content type, and its suffix, without parameters. Returns `None` for any
/// other request.
pub(super) fn of(headers: &HeaderMap) -> Option<(&'static str, &[u8])> {
    let sent = headers.get(CONTENT_TYPE)?.as_bytes();
    let mut parts = sent.split(|byte| *byte == b';');
    let media_type = parts.next()?.trim_ascii();
    let plus = media_type.iter().position(|byte| *byte == b'+');
    let (family, suffix) = match plus.and_then(|plus| media_type.split_at_checked(plus)) {
        Some((family, suffix)) => (family, suffix),
        None => (media_type, [].as_slice()),
    };
    let is_it = |known: &&str| family.eq_ignore_ascii_case(known.as_bytes());
    Some((FAMILIES.into_iter().find(is_it)?, suffix))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn calls(content_type: &str) -> bool {
        let value = HeaderValue::from_str(content_type).unwrap();
        is_call(&HeaderMap::from_iter([(CONTENT_TYPE, value)]))
    }

    #[test]
    fn a_content_type_that_only_begins_like_that_of_grpc_is_none() {
        for call in [
            "application/grpc",
            "application/grpc+proto",
            "application/grpc;charset=utf-8",
            "Application/gRPC",
            "application/grpc-web",
            "application/grpc-web-text+proto",
        ] {
            assert!(calls(call), "{call}");
        }
        for other in [
            "",
            "application/grpcfoo",
            "application/grpc-websocket",
            "application/grp",
            "application/json+grpc",
            "text/plain; application/grpc",
        ] {
            assert!(!calls(other), "{other}");
        }
        assert!(!is_call(&HeaderMap::new()));
    }
}
