//! The key that each extractor makes of a request.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::Router;
use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};
use axum::routing::get as route_get;
use http::{HeaderValue, Request, StatusCode};
use tower_ratelimit::key::{self, Extract, Head, IntoKey, Key, Missing};
use tower_ratelimit::{FixedWindow, Policy, RateLimitLayer, TokenBucket};

use crate::exchange::{Behind, Hello, ask, get, get_with};

/// One request for each key, and a day until the next.
fn once(key: impl Extract) -> Hello {
    Hello::behind(&RateLimitLayer::new(key, TokenBucket::per_day(1)))
}

fn passes(service: &Hello, request: Request<()>) -> bool {
    match ask(service, request).status {
        StatusCode::OK => true,
        StatusCode::TOO_MANY_REQUESTS => false,
        status => panic!("{status}"),
    }
}

fn with<T: Clone + Send + Sync + 'static>(extension: T) -> Request<()> {
    let mut request = get();
    request.extensions_mut().insert(extension);
    request
}

fn with_header(value: &'static [u8]) -> Request<()> {
    let mut request = get();
    let value = HeaderValue::from_bytes(value).unwrap();
    request.headers_mut().insert("x-key", value);
    request
}

fn socket(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), 40_000)
}

#[test]
fn the_peers_address_is_read_wherever_a_server_puts_it() {
    for service in [once(key::peer_ip()), once(key::client_ip())] {
        assert!(passes(&service, with(ConnectInfo(socket("192.0.2.1")))));
        assert!(!passes(&service, with(ConnectInfo(socket("192.0.2.1")))));
        assert!(!passes(
            &service,
            with(MockConnectInfo(socket("192.0.2.1")))
        ));
        assert!(!passes(&service, with(socket("192.0.2.1"))));
        assert!(passes(&service, with(ConnectInfo(socket("192.0.2.2")))));
        assert!(passes(&service, with(MockConnectInfo(socket("192.0.2.3")))));
        assert!(passes(&service, with(socket("192.0.2.4"))));
    }
}

#[test]
fn the_peers_port_does_not_matter() {
    let service = once(key::client_ip());
    let from_port = |port| ConnectInfo(SocketAddr::from(([192, 0, 2, 1], port)));
    assert!(passes(&service, with(from_port(40_000))));
    assert!(!passes(&service, with(from_port(40_001))));
}

#[test]
fn an_address_of_ipv4_mapped_into_ipv6_is_that_of_ipv4() {
    let service = once(key::client_ip());
    assert!(passes(&service, with(socket("192.0.2.1"))));
    assert!(!passes(&service, with(socket("::ffff:192.0.2.1"))));
    assert!(passes(&service, with(socket("::ffff:192.0.2.2"))));
}

#[test]
fn a_network_of_64_bits_is_one_client_and_the_next_is_another() {
    let service = once(key::client_ip());
    assert!(passes(&service, with(socket("2001:db8:1:1::1"))));
    assert!(!passes(&service, with(socket("2001:db8:1:1:ffff::2"))));
    assert!(passes(&service, with(socket("2001:db8:1:2::1"))));
}

#[test]
fn forwarding_headers_are_not_read() {
    let service = once(key::client_ip());
    let forwarded = |last| {
        let mut request = with(socket("192.0.2.1"));
        for name in ["x-forwarded-for", "x-real-ip", "cf-connecting-ip"] {
            let value = format!("203.0.113.{last}").parse().unwrap();
            request.headers_mut().insert(name, value);
        }
        let value = format!("for=203.0.113.{last}").parse().unwrap();
        request.headers_mut().insert("forwarded", value);
        request
    };
    assert!(passes(&service, forwarded(1)));
    assert!(!passes(&service, forwarded(2)));
}

#[test]
fn axums_mock_of_a_peer_is_read_under_a_router() {
    let limit = RateLimitLayer::new(key::client_ip(), TokenBucket::per_day(1));
    let address = SocketAddr::from(([192, 0, 2, 1], 0));
    let app: Router = Router::new()
        .route("/", route_get(|| async { "hello" }))
        .layer(limit)
        .layer(MockConnectInfo(address));
    assert_eq!(ask(&app, get::<axum::body::Body>()).status, 200);
    assert_eq!(ask(&app, get::<axum::body::Body>()).status, 429);
}

#[test]
fn a_header_is_compared_byte_by_byte_and_requests_without_it_share_one_quota() {
    let service = once(key::header("X-Key"));
    assert!(passes(&service, with_header(b"ann")));
    assert!(!passes(&service, with_header(b"ann")));
    assert!(passes(&service, with_header(b"Ann")));
    assert!(passes(&service, with_header(b"\xff\xfe")));
    assert!(!passes(&service, with_header(b"\xff\xfe")));

    assert!(passes(&service, get()));
    assert!(!passes(&service, get()));
    assert!(passes(&service, with_header(b"")), "empty is not missing");
}

#[test]
fn the_first_value_of_a_repeated_header_counts() {
    let service = once(key::header("x-key"));
    let twice = |second| {
        let mut request = with_header(b"ann");
        let second = HeaderValue::from_static(second);
        request.headers_mut().append("x-key", second);
        request
    };
    assert!(passes(&service, twice("1")));
    assert!(!passes(&service, twice("2")));
}

#[test]
fn a_header_whose_name_is_none_is_an_error_or_a_panic_at_start_up() {
    let error = key::try_header("x key").unwrap_err();
    assert_eq!((error.field(), error.value()), ("header", r#""x key""#));
    assert!(std::panic::catch_unwind(|| key::header("x key")).is_err());
}

#[test]
fn an_extension_that_a_layer_outside_has_put_there_is_the_key() {
    #[derive(Clone)]
    struct UserId(u64);
    impl IntoKey for UserId {
        fn into_key(self) -> Key {
            self.0.into_key()
        }
    }
    let service = once(key::extension::<UserId>());
    assert!(passes(&service, with(UserId(1))));
    assert!(!passes(&service, with(UserId(1))));
    assert!(passes(&service, with(UserId(2))));

    // An extension of another type with the same content does not count.
    let answer = ask(&service, with(1_u64));
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
}

/// The service accepts "a" once and "b" once.
#[track_caller]
fn tells_a_and_b_apart(service: &Hello) {
    assert!(passes(service, with_header(b"a")));
    assert!(!passes(service, with_header(b"a")));
    assert!(passes(service, with_header(b"b")));
    assert!(!passes(service, with_header(b"b")));
}

fn letter<'a>(head: &Head<'a>) -> &'a str {
    head.header("x-key").unwrap()
}

fn number(head: &Head<'_>) -> u64 {
    letter(head).bytes().map(u64::from).sum()
}

#[test]
fn closures_may_return_anything_that_can_be_a_key() {
    let words = |head: &Head<'_>| {
        if letter(head) == "a" {
            "is a"
        } else {
            "is not"
        }
    };
    tells_a_and_b_apart(&once(words));
    tells_a_and_b_apart(&once(|head: &Head<'_>| letter(head).to_owned()));
    tells_a_and_b_apart(&once(|head: &Head<'_>| letter(head).into_key()));
    tells_a_and_b_apart(&once(|head: &Head<'_>| {
        head.header("x-key").map(str::to_owned)
    }));
    tells_a_and_b_apart(&once(number));
    tells_a_and_b_apart(&once(|head: &Head<'_>| {
        IpAddr::from(Ipv4Addr::from_bits(u32::try_from(number(head)).unwrap()))
    }));
    tells_a_and_b_apart(&once(|head: &Head<'_>| ("tenant", number(head))));
    tells_a_and_b_apart(&once(|head: &Head<'_>| {
        (letter(head).to_owned(), u8::from(head.path() == "/"))
    }));
    tells_a_and_b_apart(&once(|head: &Head<'_>| Ok::<_, Missing>(number(head))));
}

#[test]
fn requests_share_one_quota_when_the_closure_returns_none() {
    let service = once(|head: &Head<'_>| head.header("x-key").map(str::to_owned));
    assert!(passes(&service, get()));
    assert!(!passes(&service, get()));
    assert!(passes(&service, with_header(b"a")));
}

#[derive(Clone)]
struct Customer {
    id: u64,
}

/// The recipe of the README. An invented key escaped a policy for requests without the header.
#[test]
fn an_invented_api_key_escapes_no_limit() {
    let customer = key::extension::<Customer>().map(|customer: &Customer| customer.id);
    let recipe = RateLimitLayer::builder()
        .policy(
            Policy::new("customer", FixedWindow::per_day(5))
                .key(customer)
                .when(|head| head.extension::<Customer>().is_some()),
        )
        .policy(
            Policy::new("anonymous", FixedWindow::per_day(2))
                .key(key::client_ip())
                .when(|head| head.extension::<Customer>().is_none()),
        );
    let service = Hello::behind(&recipe.build().unwrap());
    let asks = |api_key: u32, address: &str, customer: Option<u64>| {
        let mut request = get_with([("x-api-key", api_key)]);
        request.extensions_mut().insert(socket(address));
        if let Some(id) = customer {
            request.extensions_mut().insert(Customer { id });
        }
        passes(&service, request)
    };
    let invented = [1, 2, 3, 4].map(|api_key| asks(api_key, "192.0.2.1", None));
    assert_eq!(invented, [true, true, false, false]);
    assert!(asks(5, "192.0.2.2", None), "another address");
    let verified = [(); 6].map(|()| asks(6, "192.0.2.1", Some(7)));
    assert_eq!(verified, [true, true, true, true, true, false]);
}
