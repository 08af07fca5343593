//! The number of allocations of a decision and of a response.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use allocation_counter::measure;
use axum::body::Body;
use axum::extract::ConnectInfo;
use http::{HeaderValue, Request, Response, StatusCode};
use tower::{Layer, Service, service_fn};
use tower_ratelimit::key::{Extract, Forwarding, Head, IntoKey, Key, Proxies, Secret};
use tower_ratelimit::policy::{Fair, Settle};
use tower_ratelimit::{
    Algorithm, Concurrency, Limiter, LocalLimiter, Policy, RateLimitLayer, TokenBucket, key,
};
use tower_ratelimit::{RedisStore, store::Lease};
use tower_ratelimit_testing::servers::redis::Server;

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// Returns the number of allocations of a closure when everything is warm.
fn allocations(mut act: impl FnMut()) -> u64 {
    act();
    measure(act).count_total
}

fn limiter(names: &[&str], algorithm: &str) -> LocalLimiter {
    let algorithm: Algorithm = algorithm.parse().unwrap();
    let policies = names.iter().map(|name| Policy::new(*name, algorithm));
    Limiter::builder().policies(policies).build_local().unwrap()
}

#[test]
fn a_decision_on_a_known_key_allocates_nothing() {
    for algorithm in [
        "fixed-window 1000000/day",
        "anchored-window 1000000/day",
        "sliding-window 1000000/day",
        "sliding-slots 1000000/day",
        "token-bucket 1000000/day",
        "token-bucket-interval 1000000/day",
        "leaky-bucket 1000000/day",
        "gcra 1000000/day",
    ] {
        let limiter = limiter(&["a"], algorithm);
        let count = allocations(|| assert!(limiter.check(ADDRESS, 1).now().is_allowed()));
        assert_eq!(count, 0, "{algorithm}");
    }
}

#[test]
fn a_share_of_a_thousand_tenants_allocates_nothing() {
    let bucket = TokenBucket::per_hour(1_000_000);
    let policy = Policy::new("a", bucket).fair(Fair::new());
    let limiter = Limiter::builder().policy(policy).build_local().unwrap();
    let keys: Vec<_> = (0..1_000_u64)
        .map(|tenant| Key::branch(Key::GLOBAL, &[tenant.into_key()]))
        .collect();
    let ask = || keys.iter().map(|key| limiter.check(*key, 1).now());
    let count = allocations(|| assert!(ask().all(|decision| decision.is_allowed())));
    assert_eq!(count, 0);
}

/// Each has a turn then.
#[test]
fn a_refusal_of_one_of_a_thousand_tenants_allocates_nothing() {
    let bucket = TokenBucket::per_hour(10_000).burst(100);
    let policy = Policy::new("a", bucket).fair(Fair::new());
    let limiter = Limiter::builder().policy(policy).build_local().unwrap();
    let keys: Vec<_> = (0..1_000_u64)
        .map(|tenant| Key::branch(Key::GLOBAL, &[tenant.into_key()]))
        .collect();
    let mut refused = 0;
    let count = allocations(|| {
        let ask = keys.iter().map(|key| limiter.check(*key, 1).now());
        refused = ask.filter(|decision| !decision.is_allowed()).count();
    });
    assert!(refused > 900, "{refused}");
    assert_eq!(count, 0);
}

#[test]
fn slots_of_a_thousand_tenants_allocate_nothing() {
    let policy = Policy::new("a", Concurrency::of(10)).fair(Fair::new());
    let limiter = Limiter::builder().policy(policy).build_local().unwrap();
    let keys: Vec<_> = (0..1_000_u64)
        .map(|tenant| Key::branch(Key::GLOBAL, &[tenant.into_key()]))
        .collect();
    // Each gives its slot back before the next one asks.
    let ask = || keys.iter().map(|key| limiter.reserve(*key, 1).now());
    let count = allocations(|| assert!(ask().all(|reservation| reservation.is_allowed())));
    assert_eq!(count, 0);
}

/// A leasing node decides by itself while it has units.
#[tokio::test]
async fn a_request_whose_unit_is_leased_allocates_nothing() {
    let server = Server::start(&[]);
    for algorithm in ["fixed-window 4000000/day", "gcra 4000000/day"] {
        let algorithm: Algorithm = algorithm.parse().unwrap();
        let store = RedisStore::builder()
            .deadline(Duration::from_secs(20))
            .lease(Lease::up_to(Duration::from_secs(60)))
            .open(server.url())
            .unwrap();
        let limiter = Limiter::builder()
            .policy(Policy::new("a", algorithm))
            .store(store)
            .build()
            .unwrap();
        let held = || limiter.snapshot().store.leases.unwrap().held;
        while held() < 100 {
            assert!(limiter.check(ADDRESS, 1).await.unwrap().is_allowed());
        }
        let count = allocations(|| {
            let mut checked = pin!(limiter.check(ADDRESS, 1).into_future());
            match checked
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
            {
                Poll::Ready(told) => assert!(told.unwrap().is_allowed()),
                Poll::Pending => panic!("it holds units"),
            }
        });
        assert_eq!(count, 0, "{algorithm}");
    }
}

#[test]
fn the_denial_of_a_blocked_key_allocates_nothing() {
    let limiter = limiter(&["a", "b", "c"], "token-bucket 1000000/day");
    limiter.block(ADDRESS, Duration::from_secs(86_400)).now();
    let count = allocations(|| assert!(!limiter.check(ADDRESS, 1).now().is_allowed()));
    assert_eq!(count, 0);
}

#[test]
fn a_block_takes_some_100_bytes() {
    const BLOCKS: u64 = 10_000;
    let limiter = limiter(&["a"], "token-bucket 1000000/day");
    let taken = measure(|| {
        for key in 0..BLOCKS {
            limiter.block(key, Duration::from_secs(86_400)).now();
        }
    });
    let each = taken.bytes_current / i64::try_from(BLOCKS).unwrap();
    assert!((40..=100).contains(&each), "{each} bytes");
}

#[test]
fn a_denial_allocates_nothing() {
    for algorithm in [
        "fixed-window 1/day",
        "anchored-window 1/day",
        "sliding-log 1/day",
        "sliding-window 1/day",
        "sliding-slots 1/day",
        "token-bucket 1/day",
        "token-bucket-interval 1/day",
        "leaky-bucket 1/day",
        "gcra 1/day",
    ] {
        let limiter = limiter(&["a"], algorithm);
        assert!(limiter.check(ADDRESS, 1).now().is_allowed());
        let count = allocations(|| assert!(!limiter.check(ADDRESS, 1).now().is_allowed()));
        assert_eq!(count, 0, "{algorithm}");
    }
}

#[test]
fn up_to_eight_policies_are_decided_and_told_without_allocating() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for policies in 1..=8 {
        let limiter = limiter(&names[..policies], "token-bucket 1000000/day");
        let count = allocations(|| {
            let decision = limiter.check("ann", 1).now();
            assert!(decision.is_allowed());
            assert_eq!(decision.policies().len(), policies);
        });
        assert_eq!(count, 0, "{policies} policies");
    }
}

#[test]
fn the_verdict_of_eight_policies_allocates_nothing() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for algorithm in ["gcra 1000000/day", "fixed-window 1/day"] {
        let limiter = limiter(&names, algorithm);
        let is_first_admitted = limiter.admit(ADDRESS, 1).now();
        assert!(is_first_admitted);
        let expected = limiter.admit(ADDRESS, 1).now();
        let count = allocations(|| assert_eq!(limiter.admit(ADDRESS, 1).now(), expected));
        assert_eq!(count, 0, "{algorithm}");
    }
}

#[test]
fn a_client_behind_proxies_is_found_without_allocating() {
    let networks = || Proxies::in_networks(["10.0.0.0/8", "192.0.2.0/24", "fd00::/8"]);
    let two_hops = || Proxies::hops(2);
    for (proxies, forwarding, name, value) in [
        (
            networks(),
            Forwarding::XForwardedFor,
            "x-forwarded-for",
            "198.51.100.9, [2001:db8::1]:443, 10.0.0.1",
        ),
        (
            two_hops(),
            Forwarding::Forwarded,
            "forwarded",
            r#"for="[2001:db8::1]:443";proto=https, for="10.0.0.1\:80""#,
        ),
        (
            networks(),
            Forwarding::CF_CONNECTING_IP,
            "cf-connecting-ip",
            "2001:db8::1",
        ),
    ] {
        let key = key::client_ip().behind(proxies, forwarding);
        let mut request = Request::new(());
        let peer = ConnectInfo(SocketAddr::from((ADDRESS, 4711)));
        request.extensions_mut().insert(peer);
        request.headers_mut().insert(name, value.parse().unwrap());
        let client = Ok("2001:db8::1".parse::<IpAddr>().unwrap().into_key());
        let count = allocations(|| assert_eq!(key.extract(&Head::of(&request)), client));
        assert_eq!(count, 0, "{name}");
    }
}

/// Returns the number of allocations of a request with this status, without those of the service.
fn layer_allocations(layer: &RateLimitLayer, status: StatusCode) -> u64 {
    let bare = service_fn(|_| async { Ok::<_, Infallible>(Response::new(String::new())) });
    let mut service = layer.layer(bare);
    let mut cx = Context::from_waker(Waker::noop());
    let mut send = || {
        let mut request = Request::new(Body::empty());
        let peer = SocketAddr::from((ADDRESS, 4711));
        request.extensions_mut().insert(ConnectInfo(peer));
        assert!(service.poll_ready(&mut cx).is_ready());
        let mut answer = None;
        let info = measure(|| {
            let mut future = pin!(service.call(request));
            match future.as_mut().poll(&mut cx) {
                // The request ends with its body.
                Poll::Ready(Ok(response)) => answer = Some(response.status()),
                Poll::Ready(Err(never)) => match never {},
                Poll::Pending => panic!("the service waits"),
            }
        });
        assert_eq!(answer, Some(status));
        info.count_total
    };
    send();
    send()
}

#[test]
fn an_allowed_request_with_its_fields_allocates_three_times() {
    let plenty = RateLimitLayer::new(key::client_ip(), TokenBucket::per_day(1_000_000));
    // The allocations are two values, and the map that they are the first entries of.
    assert_eq!(layer_allocations(&plenty, StatusCode::OK), 3);
}

#[test]
fn an_allowed_request_with_the_fields_of_four_policies_allocates_three_times() {
    let names = ["a", "b", "c", "d"];
    let policy = |name| Policy::new(name, TokenBucket::per_day(1_000_000)).key(key::client_ip());
    let layer = RateLimitLayer::builder().policies(names.map(policy));
    let layer = layer.build().unwrap();
    assert_eq!(layer_allocations(&layer, StatusCode::OK), 3);
}

#[test]
fn an_allowed_request_without_headers_allocates_nothing() {
    let plenty = Policy::new("a", TokenBucket::per_day(1_000_000)).key(key::client_ip());
    let layer = RateLimitLayer::builder().policy(plenty).without_headers();
    let layer = layer.build().unwrap();
    assert_eq!(layer_allocations(&layer, StatusCode::OK), 0);
}

#[test]
fn to_settle_a_request_allocates_nothing_more() {
    let plenty = Policy::new("a", TokenBucket::per_day(1_000_000)).key(key::client_ip());
    let settled = plenty.estimate(50).settle(Settle::from_bytes());
    let builder = || RateLimitLayer::builder().policy(settled.clone());
    let with_fields = builder().build().unwrap();
    assert_eq!(layer_allocations(&with_fields, StatusCode::OK), 3);
    let without = builder().without_headers().build().unwrap();
    assert_eq!(layer_allocations(&without, StatusCode::OK), 0);
    let limiter = without.limiter();
    let told = limiter.peek(ADDRESS, 0).into_future();
    let told = pin!(told).poll(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(Ok(told)) = told else {
        panic!("there is no answer yet")
    };
    assert_eq!(told.binding().unwrap().1.used(), 0, "it was not settled");
}

#[test]
fn to_reserve_and_to_settle_allocates_nothing() {
    for algorithm in [
        "fixed-window 1000000/day",
        "anchored-window 1000000/day",
        "sliding-window 1000000/day",
        "token-bucket 1000000/day",
        "gcra 1000000/day",
    ] {
        let limiter = limiter(&["a", "b"], algorithm);
        for cost in [0, 20, 40] {
            let count = allocations(|| limiter.reserve(ADDRESS, 20).now().settle(cost));
            assert_eq!(count, 0, "{algorithm}");
        }
    }
}

#[test]
fn a_request_that_no_policy_is_about_allocates_nothing() {
    let none = RateLimitLayer::new(key::client_ip(), Algorithm::Unlimited);
    assert_eq!(layer_allocations(&none, StatusCode::OK), 0);
}

/// Returns the number of allocations that extract a key from a request with short parts.
fn key_allocations(extractor: &impl Extract) -> u64 {
    let mut request = Request::get("/?q=a").body(()).unwrap();
    for (name, value) in [
        ("x-key", "ann"),
        ("cookie", "a=b; sid=0123456789abcdef"),
        ("authorization", "Bearer 0123456789abcdef"),
    ] {
        let value = HeaderValue::from_static(value);
        request.headers_mut().insert(name, value);
    }
    request
        .extensions_mut()
        .insert(SocketAddr::from((ADDRESS, 4711)));
    allocations(|| assert!(extractor.extract(&Head::of(&request)).is_ok()))
}

#[test]
fn no_extractor_and_no_combination_allocates() {
    let secret = Secret::new([7; 32]).unwrap();
    let x = || key::header("x-key");
    for (name, count) in [
        ("header", key_allocations(&x())),
        ("cookie", key_allocations(&key::cookie("sid"))),
        ("bearer", key_allocations(&key::bearer_token())),
        ("query", key_allocations(&key::query("q"))),
        ("method", key_allocations(&key::method())),
        ("or", key_allocations(&key::header("y").or(x()))),
        ("and", key_allocations(&key::client_ip().and(x()))),
        ("map", key_allocations(&x().map(str::len))),
        ("prefix", key_allocations(&x().prefix("tenant"))),
        ("hashed", key_allocations(&x().hashed(&secret))),
    ] {
        assert_eq!(count, 0, "{name}");
    }
}

#[test]
fn conditions_allocate_nothing() {
    let mut request = Request::new(());
    request
        .extensions_mut()
        .insert(SocketAddr::from((ADDRESS, 4711)));
    let inside = key::client_ip().within(["10.0.0.0/8", "192.0.2.0/24"]);
    let listed = key::client_ip().one_of([ADDRESS]);
    let count = allocations(|| {
        let head = Head::of(&request);
        assert!(inside(&head) && listed(&head));
    });
    assert_eq!(count, 0);
}

#[test]
fn a_refusal_allocates_six_times() {
    let nothing = RateLimitLayer::new(key::client_ip(), TokenBucket::per_day(0));
    // The allocations are the problem and a box for it, a value, the map for it, and the typed reason.
    let count = layer_allocations(&nothing, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(count, 6);
}
