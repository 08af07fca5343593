//! The header fields that pass the gateway, and the fields that it adds.

use http::header::{
    self, AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST,
    HeaderMap, HeaderName, HeaderValue, SET_COOKIE, TE, TRANSFER_ENCODING, UPGRADE,
};

use crate::server::Client;

/// The fields of one connection, whether `Connection` names them or not.
pub(crate) const OF_THE_CONNECTION: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Fields of requests and responses that a client cannot have removed by naming them in `Connection`: without them, the
/// upstream would see another request than the one that was counted.
pub(crate) const KEPT: [HeaderName; 7] = [
    AUTHORIZATION,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    COOKIE,
    HOST,
    SET_COOKIE,
];

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Fields that some frameworks take for the target of a request, in place of the one by which it was counted.
const IN_PLACE_OF_THE_TARGET: [&str; 3] = ["x-original-url", "x-original-uri", "x-rewrite-url"];

/// The fields that the gateway sets in responses.
const SET: [&str; 3] = ["ratelimit", "retry-after", "x-ratelimit"];

/// The one protocol to which a connection may switch.
const WEBSOCKET: &str = "websocket";

/// Returns whether the connection is to switch to a WebSocket. With `h2c`, a client could send the upstream any number of requests
/// that are not counted.
pub(crate) fn switches(headers: &HeaderMap) -> bool {
    let names_it = options(headers).any(|option| option.eq_ignore_ascii_case(b"upgrade"));
    let mut protocols = headers.get_all(UPGRADE).into_iter();
    let is_websocket = |protocol: &HeaderValue| {
        protocol
            .as_bytes()
            .eq_ignore_ascii_case(WEBSOCKET.as_bytes())
    };
    names_it && protocols.next().is_some_and(is_websocket) && protocols.next().is_none()
}

/// Lets the connection switch to a WebSocket.
pub(crate) fn switch(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(WEBSOCKET));
}

/// An option that is no name does not hide the others.
fn options(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    headers
        .get_all(CONNECTION)
        .into_iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
}

/// Removes the fields of the connection: the known ones, and those that `Connection` names, except those of which
/// `is_kept` is true.
pub(crate) fn leave_the_connection(headers: &mut HeaderMap, is_kept: impl Fn(&HeaderName) -> bool) {
    let named: Vec<HeaderName> = options(headers)
        .filter_map(|option| HeaderName::from_bytes(option).ok())
        .filter(|name| !KEPT.contains(name) && !is_forwarding(name.as_str()) && !is_kept(name))
        .collect();
    for name in OF_THE_CONNECTION.iter().chain(&named) {
        headers.remove(name);
    }
}

/// Returns whether the gateway sets this field of responses.
pub(crate) fn is_set_in_responses(name: &HeaderName) -> bool {
    SET.iter().any(|prefix| name.as_str().starts_with(prefix))
}

/// Returns whether a field tells the address of the client, or the target of its request.
pub(crate) fn is_forwarding(name: &str) -> bool {
    name == REAL_IP
        || name == header::FORWARDED
        || name.starts_with("x-forwarded-")
        || IN_PLACE_OF_THE_TARGET.contains(&name)
}

/// Tells the upstream the sender of the request. The fields of a peer that is no trusted proxy are replaced, and the one in which the
/// proxies of the file tell the client is removed.
pub(crate) fn tell_the_client(
    headers: &mut HeaderMap,
    client: &Client,
    is_proxy: bool,
    client_header: Option<&HeaderName>,
) {
    if !is_proxy {
        let forged: Vec<HeaderName> = headers
            .keys()
            .filter(|name| is_forwarding(name.as_str()) || Some(*name) == client_header)
            .cloned()
            .collect();
        for name in forged {
            headers.remove(name);
        }
    }
    let chain = headers.get_all(FORWARDED_FOR).into_iter();
    let mut chain: Vec<u8> = chain
        .flat_map(|value| [value.as_bytes(), b", "].concat())
        .collect();
    chain.extend_from_slice(client.peer.ip().to_canonical().to_string().as_bytes());
    if let Ok(chain) = HeaderValue::from_bytes(&chain) {
        headers.insert(FORWARDED_FOR, chain);
    }
    if let Some(host) = headers.get(HOST).cloned() {
        headers.entry(FORWARDED_HOST).or_insert(host);
    }
    let proto = headers.entry(FORWARDED_PROTO);
    proto.or_insert(HeaderValue::from_static(client.scheme));
}

/// Returns whether a request is a call of gRPC, which needs HTTP/2. gRPC-Web does not.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let rest = kind.and_then(|kind| kind.strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

/// Returns whether the client takes trailers.
pub(crate) fn takes_trailers(headers: &HeaderMap) -> bool {
    let values = headers.get_all(TE).into_iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| coding.trim().eq_ignore_ascii_case("trailers"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framing::Heads;
    use http::Request;
    use http::request::Parts;

    fn request(fields: &[(&str, &str)]) -> Parts {
        let mut request = Request::get("/").header("host", "example.com");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn forwarded(fields: &[(&str, &str)], is_proxy: bool) -> HeaderMap {
        let mut parts = request(fields);
        leave_the_connection(&mut parts.headers, |name| name == "x-api-key");
        let client = Client {
            peer: "192.0.2.7:1".parse().unwrap(),
            scheme: "http",
            heads: Heads::default(),
        };
        let client_header = HeaderName::from_static("cf-connecting-ip");
        tell_the_client(&mut parts.headers, &client, is_proxy, Some(&client_header));
        parts.headers
    }

    #[test]
    fn fields_of_the_connection_stay_on_it() {
        let headers = forwarded(
            &[
                ("connection", "close, x-hop , x-api-key,X-Forwarded-For"),
                ("connection", "x-second, authorization"),
                ("x-hop", "1"),
                ("x-second", "2"),
                ("x-api-key", "k"),
                ("authorization", "Bearer t"),
                ("keep-alive", "timeout=5"),
                ("te", "trailers"),
                ("upgrade", "h2c"),
                ("http2-settings", "AAMAAABk"),
                ("proxy-authorization", "Basic t"),
                ("transfer-encoding", "chunked"),
            ],
            false,
        );
        let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "authorization",
                "host",
                "x-api-key",
                "x-forwarded-for",
                "x-forwarded-host",
                "x-forwarded-proto",
            ],
        );
    }

    #[test]
    fn only_a_proxy_tells_of_others() {
        let sent = [
            ("x-forwarded-for", "198.51.100.1"),
            ("x-forwarded-for", "10.0.0.1"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-prefix", "/api"),
            ("x-real-ip", "198.51.100.1"),
            ("forwarded", "for=198.51.100.1"),
            ("x-original-url", "/admin"),
            ("x-rewrite-url", "/admin"),
            ("cf-connecting-ip", "198.51.100.1"),
        ];
        let headers = forwarded(&sent, true);
        assert_eq!(
            headers["x-forwarded-for"],
            "198.51.100.1, 10.0.0.1, 192.0.2.7"
        );
        assert_eq!(headers["x-forwarded-proto"], "https");
        assert_eq!(headers["x-forwarded-prefix"], "/api");
        assert_eq!(headers["cf-connecting-ip"], "198.51.100.1");

        let headers = forwarded(&sent, false);
        assert_eq!(headers["x-forwarded-for"], "192.0.2.7");
        assert_eq!(headers["x-forwarded-proto"], "http");
        assert_eq!(headers["x-forwarded-host"], "example.com");
        for name in [
            "x-forwarded-prefix",
            "x-real-ip",
            "forwarded",
            "x-original-url",
            "x-rewrite-url",
            "cf-connecting-ip",
        ] {
            assert!(!headers.contains_key(name), "{name}");
        }
    }

    #[test]
    fn a_connection_switches_to_a_websocket_alone_and_only_if_connection_says_so() {
        for (connection, protocols, expected) in [
            ("keep-alive, Upgrade", &["websocket"][..], true),
            ("upgrade", &["WebSocket"], true),
            ("keep-alive", &["websocket"], false),
            ("upgrade, http2-settings", &["h2c"], false),
            ("upgrade", &["websocket, h2c"], false),
            ("upgrade", &["websocket", "h2c"], false),
            ("upgrade", &["tls/1.0"], false),
            ("upgrade", &[], false),
        ] {
            let mut fields = vec![("connection", connection)];
            fields.extend(protocols.iter().map(|protocol| ("upgrade", *protocol)));
            let request = request(&fields);
            assert_eq!(switches(&request.headers), expected, "{fields:?}");
        }
    }

    #[test]
    fn calls_of_grpc_are_known_by_their_content_type() {
        for (kind, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;charset=utf-8", true),
            ("application/grpc-web", false),
            ("application/json", false),
        ] {
            let parts = request(&[("content-type", kind)]);
            assert_eq!(is_grpc(&parts.headers), expected, "{kind}");
        }
    }
}
