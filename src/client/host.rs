//! The default key of an outgoing call.

use http::Uri;
use http::header::HOST;

use crate::key::{Head, IntoKey, Key};

/// Returns the server to which a call goes: the host and port of its target, or else of its `Host` header; upper and
/// lower case are equal. Calls that name no server, as those of a client with one connection, share a key.
pub fn host(head: &Head<'_>) -> Key {
    let named = of_target(head.uri());
    let named = named.or_else(|| of_target(&head.header(HOST.as_str())?.parse().ok()?));
    named.unwrap_or(Key::GLOBAL)
}

fn of_target(uri: &Uri) -> Option<Key> {
    let host = uri.host()?;
    let port = uri.port_u16().or_else(|| match uri.scheme_str() {
        Some("https") => Some(443),
        Some("http") => Some(80),
        _ => None,
    });
    let port = port.unwrap_or(0);
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Some((host.to_ascii_lowercase(), port).into_key());
    }
    Some((host, port).into_key())
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn key(target: &str, field: Option<&str>) -> Key {
        let mut request = Request::builder().uri(target);
        if let Some(field) = field {
            request = request.header(HOST, field);
        }
        host(&Head::of(&request.body(()).unwrap()))
    }

    #[test]
    fn a_server_is_its_host_and_port() {
        let server = key("http://api.example/a?b", None);
        for same in [
            "http://API.example/",
            "http://api.example:80/",
            "http://me@api.example/",
        ] {
            assert_eq!(key(same, None), server, "{same}");
        }
        for other in [
            "https://api.example/",
            "http://api.example:81/",
            "http://example/",
            "/",
        ] {
            assert_ne!(key(other, None), server, "{other}");
        }
        assert_eq!(key("https://a/", None), key("https://a:443/", None));
    }

    #[test]
    fn a_target_without_a_server_goes_by_the_host_header() {
        assert_eq!(
            key("/", Some("A.example:81")),
            key("/x", Some("a.example:81"))
        );
        assert_ne!(key("/", Some("a.example")), key("/", Some("b.example")));
        assert_eq!(key("http://a:81/", Some("b")), key("http://a:81/", None));
        assert_eq!(key("/", None), Key::GLOBAL);
        assert_eq!(key("/", Some("no host")), Key::GLOBAL);
        assert_eq!(key("/", Some("")), Key::GLOBAL);
    }
}
