//! An operator names a client, and changes exactly the key under which its requests are counted.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get as route_get;
use http::{Request, StatusCode};
use proptest::prelude::*;
use tower::ServiceExt;
use tower_ratelimit::key::{
    self, Extract, Forwarding, Head, IntoKey, Key, KeyOf, Missing, Proxies, Secret, Source,
};
use tower_ratelimit::{FixedWindow, Policy, RateLimitLayer};

use crate::exchange::{Behind, Hello, ask, limit, now};
use crate::extractors::{read, sent};

const HOUR: Duration = Duration::from_secs(3_600);

fn secret() -> Secret {
    Secret::new([7; 32]).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[derive(Clone)]
struct User {
    id: u64,
}

/// Returns a request with a value for each extractor.
fn request() -> Request<()> {
    let mut request = sent(&[
        ("x-api-key", b"k3y"),
        ("x-tenant", b"acme"),
        ("authorization", b"Bearer t0ken"),
        ("cookie", b"sid=\"s1d\""),
        ("x-forwarded-for", b"2001:db8:1:2::3"),
    ]);
    *request.uri_mut() = "/?page=a%20b".parse().unwrap();
    let proxy = SocketAddr::new(ip("10.0.0.1"), 40_000);
    request.extensions_mut().insert(proxy);
    request.extensions_mut().insert(User { id: 7 });
    request.extensions_mut().insert(String::from("ann"));
    request
}

/// An operator inspects the key of the request and blocks it, and the request is refused. After the block is ended,
/// the request goes on.
#[track_caller]
fn assert_names(extractor: impl Extract, key: Result<Key, Missing>, request: &Request<()>) {
    let key = key.unwrap();
    let (_, layer) = limit([Policy::new("a", FixedWindow::per_day(9)).key(extractor)]);
    let (service, limiter) = (Hello::behind(&layer), layer.limiter());
    let status = || ask(&service, request.clone()).status;
    let used = || {
        let inspection = now(limiter.inspect(key)).unwrap();
        inspection.policies().next().unwrap().1.used()
    };
    assert_eq!(used(), 0);
    assert_eq!(status(), StatusCode::OK);
    assert_eq!(used(), 1, "the request is counted under another key");
    now(limiter.block(key, HOUR)).unwrap();
    assert_eq!(status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(now(limiter.inspect(key)).unwrap().blocked_for(), Some(HOUR));
    now(limiter.unblock(key)).unwrap();
    assert_eq!(status(), StatusCode::OK);
}

/// An operator blocked the text of a leaked API key without an error, and the client went on, because the extractor
/// counts a hash.
#[test]
fn a_text_is_another_key_than_what_an_extractor_makes_of_it() {
    let layer = RateLimitLayer::new(key::api_key(), FixedWindow::per_day(9));
    let (service, limiter) = (Hello::behind(&layer), layer.limiter());
    now(limiter.block("k3y", HOUR)).unwrap();
    assert_eq!(ask(&service, request()).status, StatusCode::OK);
    now(limiter.block(key::api_key().key_of("k3y").unwrap(), HOUR)).unwrap();
    assert_eq!(
        ask(&service, request()).status,
        StatusCode::TOO_MANY_REQUESTS
    );
}

macro_rules! assert_each_names {
    ($($extractor:expr => $value:expr),+ $(,)?) => {$(
        let extractor = $extractor;
        let key = extractor.key_of($value);
        assert_names(extractor, key, &request());
    )+};
}

#[test]
fn an_operator_names_the_key_under_which_a_request_counts() {
    let header = || key::header("x-tenant");
    let user = || key::extension::<User>().map(|user: &User| user.id);
    assert_each_names!(
        header() => "acme",
        key::api_key() => "k3y",
        key::api_key().hashed(&secret()) => "k3y",
        key::api_key().from_header("x-tenant") => "acme",
        key::bearer_token() => "t0ken",
        key::bearer_token().hashed(&secret()) => "t0ken",
        key::cookie("sid") => "s1d",
        key::cookie("sid").hashed(&secret()) => "s1d",
        key::query("page") => "a b",
        key::extension::<String>() => &String::from("ann"),
        key::method() => "GET",
        key::global() => (),
        key::peer_ip() => ip("10.0.0.1"),
        key::peer_ip() => ip("::ffff:10.0.0.1"),
        key::client_ip() => ip("10.0.0.1"),
        // The extractors of combined keys.
        header().prefix("app") => "acme",
        header().hashed(&secret()) => "acme",
        header().prefix("app").hashed(&secret()).prefix(1_u8) => "acme",
        user() => &User { id: 7 },
        user().hashed(&secret()) => &User { id: 7 },
        header().map(str::to_uppercase) => "acme",
        key::api_key().map(str::len) => "k3y",
        key::cookie("sid").map(|sid| sid.chars().next().map(|first| first.to_string())) => "s1d",
        key::query("page").map(|page| page.len()) => "a b".into(),
        key::client_ip().map(|address: IpAddr| u8::from(address.is_ipv4())) => ip("10.0.0.1"),
        user().and(header()) => (&User { id: 7 }, "acme"),
        key::client_ip().and(key::method()).and(header()) => ((ip("10.0.0.1"), "GET"), "acme"),
        key::api_key().or(key::client_ip()) => Source::First("k3y"),
        key::header("y").or(key::client_ip()) => Source::Second(ip("10.0.0.1")),
        key::header("y").or(key::api_key().or(key::peer_ip())).hashed(&secret())
            => Source::Second(Source::First("k3y")),
        // A closure has no `key_of`, but the operator can make up a request.
        key::from_fn(|head| head.header("x-tenant").map(IntoKey::into_key)).named() => &request(),
    );
}

/// A key without a value is found by a request like that of the client.
trait Named: Sized {
    fn named(self) -> OfRequest<Self> {
        OfRequest(self)
    }
}

impl<E: Extract> Named for E {}

struct OfRequest<E>(E);

impl<E: Extract> OfRequest<E> {
    fn key_of(&self, request: &Request<()>) -> Result<Key, Missing> {
        read(&self.0, request)
    }
}

impl<E: Extract> Extract for OfRequest<E> {
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing> {
        self.0.extract(head)
    }
}

#[test]
fn a_client_behind_proxies_is_named_by_its_own_address() {
    let client = || key::client_ip().behind(Proxies::hops(1), Forwarding::XForwardedFor);
    let trusting = Proxies::in_networks(["10.0.0.0/8"]);
    let trusting = key::client_ip().behind(trusting, Forwarding::XForwardedFor);
    assert_each_names!(
        client() => ip("2001:db8:1:2::3"),
        // Any address of the network that shares the quota.
        client() => ip("2001:db8:1:2:ffff::1"),
        client().ipv6_prefix(48) => ip("2001:db8:1:ffff::1"),
        client().ipv6_prefix(128).prefix("a") => ip("2001:db8:1:2::3"),
        trusting => ip("2001:db8:1:2::3"),
    );
    let narrow = client().ipv6_prefix(128);
    assert_ne!(
        narrow.key_of(ip("2001:db8:1:2::3")),
        narrow.key_of(ip("2001:db8:1:2::4"))
    );
    let translated = key::client_ip().unwrap_ipv4(["64:ff9b::/96"]);
    assert_eq!(
        translated.key_of(ip("64:ff9b::192.0.2.1")),
        translated.key_of(ip("192.0.2.1"))
    );
}

#[test]
fn a_route_is_named_by_its_method_and_path() {
    let layer = RateLimitLayer::new(key::route(), FixedWindow::per_day(9));
    let limiter = layer.limiter();
    let app: Router = Router::new().route("/users/{id}", route_get(|| async {}));
    let app = app.layer(layer);
    let request = || Request::get("/users/7").body(Body::empty()).unwrap();
    let status = || now(app.clone().oneshot(request())).unwrap().status();
    assert_eq!(status(), StatusCode::OK);
    let route = key::route().key_of(("GET", "/users/{id}")).unwrap();
    now(limiter.block(route, HOUR)).unwrap();
    assert_eq!(status(), StatusCode::TOO_MANY_REQUESTS);
    let path = key::matched_path().key_of("/users/{id}");
    assert_eq!(path, Ok("/users/{id}".into_key()));
}

/// If an operator pastes a whole `Authorization` header, the answer must not be that nothing was used.
#[test]
fn a_value_that_no_request_can_have_has_no_key() {
    let token = key::bearer_token();
    for wrong in ["Bearer t0ken", "", "t0ken\n"] {
        assert_eq!(token.key_of(wrong), Err(Missing::ByClient), "{wrong:?}");
    }
    let number = key::header("n").map(|value| value.parse::<u64>().ok());
    assert_eq!(number.key_of("seven"), Err(Missing::ByClient));
    assert_eq!(number.key_of("7"), Ok(7_u64.into_key()));
    let both = key::global().and(number);
    assert_eq!(both.key_of(((), "seven")), Err(Missing::ByClient));
    let error: Box<dyn std::error::Error> = Missing::ByClient.into();
    assert_eq!(error.to_string(), "the client has left the key out");
}

fn same<'a>(
    extractor: &(impl Extract + KeyOf<Value<'a> = &'a str>),
    text: &'a str,
    request: &Request<()>,
) -> bool {
    read(extractor, request) == extractor.make(text)
}

proptest! {
    #[test]
    fn any_text_is_named_as_it_is_read(text in "[ -~]{0,60}") {
        // HTTP takes the spaces around a value away.
        let text = text.trim();
        let request = sent(&[("x-api-key", text.as_bytes())]);
        let header = key::header("x-api-key");
        prop_assert!(same(&header, text, &request));
        prop_assert!(same(&key::api_key(), text, &request));
        prop_assert!(same(&header.clone().prefix("a"), text, &request));
        prop_assert!(same(&header.hashed(&secret()), text, &request));
    }

    #[test]
    fn any_address_is_named_as_it_is_read(address: IpAddr, prefix in 32_u8..=128) {
        let mut request = Request::new(());
        request.extensions_mut().insert(SocketAddr::new(address, 1));
        let client = key::client_ip().ipv6_prefix(prefix).unwrap_ipv4(["64:ff9b::/96"]);
        prop_assert_eq!(read(&client, &request), client.key_of(address));
        let peer = key::peer_ip();
        prop_assert_eq!(read(&peer, &request), peer.key_of(address));
    }
}
