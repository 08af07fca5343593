//! Fair shares in a layer: who is a tenant, what responses tell, and tenants without a key.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use tower::{Layer, service_fn};
use tower_ratelimit::plan::{Plan, Plans};
use tower_ratelimit::policy::{Fair, Http, NoKey};
use tower_ratelimit::{
    FixedWindow, ManualClock, MemoryStore, Policy, RateLimitLayer, SharedStore, TokenBucket, key,
};

use crate::exchange::{Received, ask, get};
use crate::support::items::Map;

async fn empty(_: Request<()>) -> Result<Response<Empty<bytes::Bytes>>, Infallible> {
    Ok(Response::new(Empty::new()))
}

fn upstream() -> Policy<Http> {
    Policy::new("upstream", TokenBucket::per_second(10).burst(20))
        .key(key::global())
        .fair(key::header("x-tenant"))
}

fn get_by<const N: usize>(fields: [(&'static str, &str); N]) -> Request<()> {
    let mut request = get();
    for (name, value) in fields {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    request
}

/// Asks as a tenant.
fn asks(
    policies: impl IntoIterator<Item = Policy<Http>>,
) -> (impl Fn(&str) -> Received, ManualClock) {
    let clock = ManualClock::new();
    let layer = RateLimitLayer::builder()
        .policies(policies)
        .store(MemoryStore::new().clock(clock.clone()))
        .build()
        .unwrap();
    let service = layer.layer(service_fn(empty));
    let asks = move |tenant: &str| match tenant {
        "" => ask(&service, get()),
        tenant => ask(&service, get_by([("x-tenant", tenant)])),
    };
    (asks, clock)
}

fn count(times: usize, asks: impl Fn() -> Received) -> usize {
    (0..times)
        .filter(|_| asks().status == StatusCode::OK)
        .count()
}

#[test]
fn a_hog_leaves_the_others_their_share() {
    let (asks, clock) = asks([upstream()]);
    assert_eq!(count(30, || asks("hog")), 20);
    let mut had = [0; 2];
    for _ in 0..1_000 {
        clock.advance(Duration::from_millis(10));
        had[0] += count(5, || asks("hog"));
        had[1] += count(1, || asks("ann"));
    }
    assert!((48..=52).contains(&had[0]), "{had:?}");
    assert!((48..=52).contains(&had[1]), "{had:?}");
}

#[test]
fn a_response_tells_what_is_left_for_the_tenant() {
    let (asks, clock) = asks([upstream()]);
    let left = |received: &Received| {
        let field = received.field("ratelimit").unwrap();
        let (_, left) = field.split_once(";r=").unwrap();
        left.split(';').next().unwrap().parse::<u32>().unwrap()
    };
    assert_eq!(left(&asks("ann")), 19);
    assert_eq!(left(&asks("bob")), 18);
    for _ in 0..17 {
        asks("bob");
    }
    clock.advance(Duration::from_millis(500));
    // Five units came back.
    asks("ann");
    let refused = loop {
        let received = asks("bob");
        if received.status == StatusCode::TOO_MANY_REQUESTS {
            break received;
        }
    };
    assert_eq!(left(&refused), 0);
    assert_eq!(refused.field("retry-after"), Some("1"));
    assert_eq!(asks("ann").status, StatusCode::OK, "hers was kept for her");
    clock.advance(Duration::from_secs(1));
    assert_eq!(asks("bob").status, StatusCode::OK);
}

#[test]
fn requests_without_a_tenant_are_one_tenant() {
    let (asks, clock) = asks([upstream()]);
    assert_eq!(count(30, || asks("")), 20);
    let mut had = [0; 2];
    for _ in 0..1_000 {
        clock.advance(Duration::from_millis(10));
        had[0] += count(5, || asks(""));
        had[1] += count(1, || asks("ann"));
    }
    assert!(had.iter().all(|one| (48..=52).contains(one)), "{had:?}");
}

#[test]
fn requests_without_a_tenant_may_be_refused_or_not_counted() {
    let (asks, _) = asks([upstream().no_key(NoKey::Refuse(StatusCode::UNAUTHORIZED))]);
    assert_eq!(asks("").status, StatusCode::UNAUTHORIZED);
    assert_eq!(count(30, || asks("ann")), 20);
    let (asks, _) = self::asks([upstream().no_key(NoKey::Skip)]);
    assert_eq!(count(30, || asks("")), 30);
}

#[test]
fn each_shared_key_has_tenants_of_its_own() {
    let by_region = Policy::new("upstream", TokenBucket::per_second(10))
        .key(key::header("x-region"))
        .fair(key::header("x-tenant"));
    let layer = RateLimitLayer::builder().policy(by_region).build().unwrap();
    let service = layer.layer(service_fn(empty));
    let asks = |region| {
        let request = get_by([("x-region", region), ("x-tenant", "ann")]);
        ask(&service, request)
    };
    assert_eq!(count(12, || asks("east")), 10);
    assert_eq!(count(12, || asks("west")), 10);
}

#[test]
fn of_two_tenants_the_last_one_counts() {
    let policy = upstream().fair(key::header("x-user"));
    let layer = RateLimitLayer::builder().policy(policy).build().unwrap();
    let service = layer.layer(service_fn(empty));
    let asks = |tenant| ask(&service, get_by([("x-tenant", tenant), ("x-user", "ann")]));
    // They share one limit, whatever the first extractor finds.
    assert_eq!(count(15, || asks("a")) + count(15, || asks("b")), 20);
}

#[test]
fn plans_of_requests_have_weights() {
    let clock = ManualClock::new();
    let policy = Policy::new("upstream", TokenBucket::per_second(100))
        .key(key::global())
        .fair_by(key::header("x-tenant"), Fair::new().weight("pro", 3));
    let plan_of = |head: &key::Head<'_>| {
        let plan = head.headers().get("x-plan")?;
        plan.to_str().ok().map(str::to_owned)
    };
    let layer = RateLimitLayer::builder()
        .policy(policy)
        .plans(Plans::new([Plan::new("free"), Plan::new("pro")]), plan_of)
        .store(MemoryStore::new().clock(clock.clone()))
        .build()
        .unwrap();
    let service = layer.layer(service_fn(empty));
    let asks = |plan| ask(&service, get_by([("x-plan", plan), ("x-tenant", plan)]));
    let mut had = [0; 2];
    for round in 0..2_000 {
        clock.advance(Duration::from_millis(10));
        let passed = [count(3, || asks("free")), count(2, || asks("pro"))];
        if round >= 500 {
            had = [had[0] + passed[0], had[1] + passed[1]];
        }
    }
    assert!((370..=385).contains(&had[0]), "{had:?}");
    assert!((1_115..=1_130).contains(&had[1]), "{had:?}");
}

#[test]
fn a_limit_of_its_own_stands_beside_the_share() {
    let own = Policy::new("own", FixedWindow::per_hour(3)).key(key::header("x-tenant"));
    let (asks, _) = asks([upstream(), own]);
    assert_eq!(count(9, || asks("ann")), 3);
    assert_eq!(count(9, || asks("bob")), 3);
}

#[test]
fn a_store_that_cannot_divide_is_refused() {
    let store = SharedStore::new(Map::new(&ManualClock::new()));
    let built = RateLimitLayer::builder()
        .policy(upstream())
        .store(store)
        .build();
    let error = built.unwrap_err().to_string();
    assert!(error.contains("MemoryStore"), "{error}");
}
