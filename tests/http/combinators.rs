//! Keys that combine other keys, and conditions on them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use http::Request;
use proptest::collection::vec;
use proptest::prelude::*;
use tower_ratelimit::key::{self, Extract, Head, IntoKey, Key, Missing, Secret};
use tower_ratelimit::{Policy, RateLimitLayer, TokenBucket};

use crate::exchange::{Behind, Hello, ask, get};
use crate::extractors::{read, sent};

/// A value that is not a key by itself, and is not `Clone`.
#[derive(Debug)]
struct User {
    id: u64,
}

impl Clone for User {
    fn clone(&self) -> Self {
        panic!("user {} is cloned", self.id)
    }
}

fn of_user(id: u64) -> Request<()> {
    let mut request = get();
    request.extensions_mut().insert(User { id });
    request
}

fn from(address: &str, fields: &[(&'static str, &[u8])]) -> Request<()> {
    let mut request = sent(fields);
    let address: IpAddr = address.parse().unwrap();
    request
        .extensions_mut()
        .insert(SocketAddr::new(address, 40_000));
    request
}

#[test]
fn a_value_is_mapped_in_its_own_type() {
    let lower = key::header("x").map(|value: &str| value.to_lowercase());
    assert_eq!(read(&lower, &sent(&[("x", b"Ann")])), Ok("ann".into_key()));
    let first = key::header("x").map(|value| value.split('.').next().map(IntoKey::into_key));
    assert_eq!(read(&first, &sent(&[("x", b"a.b")])), Ok("a".into_key()));

    let network = key::client_ip().map(|address: IpAddr| match address {
        IpAddr::V4(address) => address.octets()[0],
        IpAddr::V6(_) => 6,
    });
    assert_eq!(read(&network, &from("10.1.2.3", &[])), Ok(10_u8.into_key()));
    let loopback = key::peer_ip().map(|address| u8::from(address.is_loopback()));
    assert_eq!(
        read(&loopback, &from("127.0.0.1", &[])),
        Ok(1_u8.into_key())
    );

    let user = key::extension::<User>().map(|user: &User| user.id);
    assert_eq!(read(&user, &of_user(7)), Ok(7_u64.into_key()));

    let number = key::query("n").map(|value| value.parse::<u64>().ok());
    let ask = |target: &str| read(&number, &Request::get(target).body(()).unwrap());
    assert_eq!(ask("/?n=7"), Ok(7_u64.into_key()));
    assert_eq!(ask("/?n=x"), Err(Missing::ByClient), "the closure says so");

    let writes = key::method().map(|method| u8::from(method == "GET"));
    assert_eq!(read(&writes, &get()), Ok(1_u8.into_key()));
}

#[test]
fn an_absent_key_is_not_mapped() {
    let unreachable = |_: &str| -> Key { panic!("there is nothing to map") };
    let mapped = key::header("x").map(unreachable);
    assert_eq!(read(&mapped, &get()), Err(Missing::ByClient));
    let not_text = sent(&[("x", b"\xff")]);
    assert_eq!(read(&mapped, &not_text), Err(Missing::ByClient));
    let mapped = key::cookie("x").map(unreachable);
    let not_text = sent(&[("cookie", b"x=\xff")]);
    assert_eq!(read(&mapped, &not_text), Err(Missing::ByClient));

    let user = key::extension::<User>().map(|user: &User| user.id);
    assert!(matches!(read(&user, &get()), Err(Missing::ByServer(_))));
    let user = key::extension::<User>().optional();
    let user = user.map(|user: &User| user.id);
    assert_eq!(read(&user, &get()), Err(Missing::ByClient));
    assert_eq!(read(&user, &of_user(7)), Ok(7_u64.into_key()));
}

#[test]
fn a_closure_can_be_combined() {
    let tenant = key::from_fn(|head| head.header("x").map(IntoKey::into_key));
    let path = |head: &Head<'_>| head.path().to_owned();
    let both = tenant.and(path);
    let request = sent(&[("x", b"a")]);
    assert_eq!(read(&both, &request), Ok(("a", "/").into_key()));
    assert_eq!(read(&both, &get()), Err(Missing::ByClient));
}

#[test]
fn no_request_is_counted_as_another_by_the_servers_fault() {
    let by_server = |answer| matches!(answer, Err(Missing::ByServer(_)));
    let user = || key::extension::<User>().map(|user: &User| user.id);
    let request = from("192.0.2.1", &[]);
    assert!(by_server(read(&user().or(key::client_ip()), &request)));
    assert!(by_server(read(&key::header("x").or(user()), &request)));
    // Also for a part, and for each part that the client leaves out.
    let x = || key::header("x");
    assert!(by_server(read(&x().and(user()), &request)));
    assert!(by_server(read(&user().and(x()), &request)));
    assert!(by_server(read(&key::client_ip().and(user()), &request)));

    let optional = key::extension::<User>().optional();
    let or_address = optional.map(|user: &User| user.id).or(key::client_ip());
    assert!(read(&or_address, &request).is_ok());
}

#[test]
fn without_either_source_the_key_is_missing() {
    let either = key::header("a").or(key::header("b"));
    assert_eq!(read(&either, &get()), Err(Missing::ByClient));
    let both = key::header("a").and(key::header("b"));
    for fields in [&[][..], &[("a", &b"1"[..])], &[("b", &b"1"[..])]] {
        assert_eq!(read(&both, &sent(fields)), Err(Missing::ByClient));
    }
}

#[test]
fn a_client_that_forges_an_address_does_not_spend_its_quota() {
    let address = key::from_fn(|head| {
        let address: Option<IpAddr> = head.header("x-key")?.parse().ok();
        address
    });
    let layer = RateLimitLayer::new(address.or(key::client_ip()), TokenBucket::per_day(1));
    let service = Hello::behind(&layer);
    let status = |request| ask(&service, request).status;
    let forged = [("x-key", &b"192.0.2.1"[..])];
    assert_eq!(status(from("198.51.100.9", &forged)), 200);
    assert_eq!(status(from("198.51.100.9", &forged)), 429);
    assert_eq!(status(from("192.0.2.1", &[])), 200, "it has its own");
    assert_eq!(status(from("192.0.2.1", &[])), 429);
}

#[test]
fn each_of_several_sources_has_keys_of_its_own() {
    let three = key::header("a")
        .or(key::header("b"))
        .or(key::header("c").or(key::header("d")));
    let keys = ["a", "b", "c", "d"].map(|name| read(&three, &sent(&[(name, b"v")])).unwrap());
    for (index, key) in keys.iter().enumerate() {
        assert!(!keys[..index].contains(key), "{index}");
    }
}

#[test]
fn a_prefix_keeps_values_apart() {
    let request = sent(&[("x", b"a")]);
    let tenant = key::header("x").prefix("tenant");
    assert_eq!(read(&tenant, &request), Ok(("tenant", "a").into_key()));
    let project = key::header("x").prefix("project");
    assert_ne!(read(&tenant, &request), read(&project, &request));
    assert_eq!(read(&tenant, &get()), Err(Missing::ByClient));
}

#[test]
fn every_extractor_has_the_methods_of_all() {
    fn is_extractor(_: impl Extract + Clone) {}
    let secret = Secret::new([7; 16]).unwrap();
    macro_rules! all {
        ($($extractor:expr),+ $(,)?) => {$(
            is_extractor($extractor.or(key::global()).and($extractor).prefix("x").hashed(&secret));
            let _ = $extractor.one_of(["a"]);
        )+};
    }
    all!(
        key::api_key(),
        key::bearer_token(),
        key::client_ip(),
        key::cookie("x"),
        key::extension::<String>(),
        key::from_fn(|_| "x"),
        key::global(),
        key::header("x"),
        key::header("x").map(|_| "x"),
        key::header("x").hashed(&secret),
        key::header("x").or(key::global()),
        key::header("x").and(key::global()),
        key::header("x").prefix("x"),
        key::matched_path(),
        key::method(),
        key::peer_ip(),
        key::query("x"),
        key::route(),
    );
    let _ = key::matched_path().map(|path: &str| path.len());
}

fn holds(condition: impl Fn(&Head<'_>) -> bool, request: &Request<()>) -> bool {
    condition(&Head::of(request))
}

#[test]
fn a_list_holds_what_is_on_it() {
    let ann_or_bob = key::header("x").one_of(["ann", "bob"]);
    for (value, expected) in [("ann", true), ("bob", true), ("Ann", false), ("", false)] {
        let request = sent(&[("x", value.as_bytes())]);
        assert_eq!(holds(&ann_or_bob, &request), expected, "{value}");
    }
    assert!(!holds(&ann_or_bob, &get()), "no client is on a list");
    let none: [&str; 0] = [];
    assert!(!holds(key::header("x").one_of(none), &get()));

    let long = "x".repeat(1000);
    let listed = key::header("x").one_of([long.clone()]);
    assert!(holds(&listed, &sent(&[("x", long.as_bytes())])));

    let addresses = key::client_ip().one_of([IpAddr::from(Ipv4Addr::LOCALHOST)]);
    assert!(holds(&addresses, &from("127.0.0.1", &[])));
    assert!(holds(&addresses, &from("::ffff:127.0.0.1", &[])));
    assert!(!holds(&addresses, &from("127.0.0.2", &[])));

    let users = key::extension::<User>().map(|user: &User| user.id);
    let users = users.one_of([7_u64]);
    assert!(holds(&users, &of_user(7)));
    assert!(!holds(&users, &of_user(8)));
}

#[test]
fn a_list_names_what_was_sent_also_where_that_is_hashed_or_combined() {
    let secret = Secret::new([7; 16]).unwrap();
    let request = from(
        "192.0.2.1",
        &[
            ("authorization", b"Bearer root"),
            ("cookie", b"sid=root"),
            ("x", b"root"),
        ],
    );
    macro_rules! on_the_list {
        ($($extractor:expr),+ $(,)?) => {$(
            let extractor = $extractor;
            assert!(holds(extractor.clone().one_of(["user", "root"]), &request));
            assert!(!holds(extractor.one_of(["user", "roo"]), &request));
        )+};
    }
    let x = || key::header("x");
    on_the_list!(
        key::api_key().from_header("x"),
        key::bearer_token(),
        key::bearer_token().hashed(&secret),
        key::bearer_token().map(str::to_owned),
        key::cookie("sid"),
        x().hashed(&secret),
        x().prefix("x"),
        x().hashed(&secret).prefix("x").hashed(&secret),
        x().or(key::client_ip()),
        key::header("y").or(x().hashed(&secret)),
        key::header("y").or(key::bearer_token()).prefix("y"),
    );
    let both = key::bearer_token().and(x().hashed(&secret));
    assert!(holds(both.one_of([("root", "root")]), &request));
}

#[test]
fn a_condition_selects_the_requests_of_a_policy() {
    let inside = key::client_ip().within(["10.0.0.0/8", "2001:db8::/32"]);
    let outside = move |head: &Head<'_>| !inside(head);
    let policy = Policy::new("strangers", TokenBucket::per_day(1)).key(key::client_ip());
    let layer = RateLimitLayer::builder().policy(policy.when(outside));
    let service = Hello::behind(&layer.build().unwrap());
    let status = |address| ask(&service, from(address, &[])).status;
    for address in ["10.1.2.3", "::ffff:10.1.2.3", "2001:db8::1"] {
        assert_eq!(status(address), 200);
        assert_eq!(status(address), 200, "{address} is not counted");
    }
    for address in ["11.1.2.3", "2001:db9::1"] {
        assert_eq!(status(address), 200);
        assert_eq!(status(address), 429, "{address} is counted");
    }
}

#[test]
fn networks_are_checked_at_start_up() {
    let error = key::peer_ip().try_within(["10.0.0.0/33"]).err().unwrap();
    let error = (error.field(), error.value().to_owned());
    assert_eq!(error, ("within", r#""10.0.0.0/33""#.to_owned()));
    assert!(std::panic::catch_unwind(|| key::client_ip().within(["10.0.0/8"])).is_err());
    assert!(!holds(key::peer_ip().within(["0.0.0.0/0"]), &get()));
}

/// Any value of a header field, of a length around that from which on keys are digests too.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(b'a'), Just(b':'), 0x20..=0x7e_u8, 0x80..=0xff_u8];
    prop_oneof![vec(byte.clone(), 0..4), vec(byte, 0..60)]
}

/// One more level of `or` on each side.
fn sources() -> impl Extract {
    let left = key::header("a").or(key::header("b"));
    left.or(key::header("c").or(key::header("d")))
}

proptest! {
    #[test]
    fn pairs_are_equal_only_if_their_parts_are(
        [a, b, c, d] in [value(), value(), value(), value()],
    ) {
        let pair = key::header("a").and(key::header("b"));
        let key = |a: &[u8], b: &[u8]| read(&pair, &sent(&[("a", a), ("b", b)])).unwrap();
        prop_assert_eq!(key(&a, &b) == key(&c, &d), (&a, &b) == (&c, &d));

        // The same text, cut in two places.
        let text = [&a[..], &b].concat();
        let (first, second) = (a.len(), text.len().min(c.len()));
        let cut = |at: usize| key(&text[..at], &text[at..]);
        prop_assert_eq!(cut(first) == cut(second), first == second);
    }

    #[test]
    fn triples_are_not_nested_otherwise(
        [a, b, c, d] in [value(), value(), value(), value()],
    ) {
        let part = key::header;
        let left = part("a").and(part("b")).and(part("c"));
        let right = part("a").and(part("b").and(part("c")));
        let request = sent(&[("a", &a), ("b", &b), ("c", &c)]);
        prop_assert_ne!(read(&left, &request), read(&right, &request));
        let pair = part("a").and(part("d"));
        let request_of_two = sent(&[("a", &a), ("d", &d)]);
        prop_assert_ne!(read(&left, &request), read(&pair, &request_of_two));
    }

    #[test]
    fn keys_of_different_sources_are_never_equal(
        [a, b] in [value(), value()],
        same in any::<bool>(),
        from in 0..4_usize,
        to in 0..4_usize,
    ) {
        let b = if same { a.clone() } else { b };
        let names = ["a", "b", "c", "d"];
        let first = read(&sources(), &sent(&[(names[from], &a)])).unwrap();
        let second = read(&sources(), &sent(&[(names[to], &b)])).unwrap();
        prop_assert_eq!(first == second, from == to && a == b);
        prop_assert_ne!(first, Key::MISSING);
        // Nor does any key equal that of its value alone, or of a pair.
        prop_assert_ne!(first, read(&key::header("a"), &sent(&[("a", &a)])).unwrap());
        prop_assert_ne!(first, (b.as_slice(), a.as_slice()).into_key());
    }
}
