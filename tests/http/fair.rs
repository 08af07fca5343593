//! Fair shares in a layer: who is a tenant, what responses tell, and tenants without a key.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::factor::{Class, Factor, FactorCell};
use tower_ratelimit::middleware::Deadline;
use tower_ratelimit::plan::{Plan, Plans};
use tower_ratelimit::policy::{Fair, Http, OnMissingKey};
use tower_ratelimit::{
    Concurrency, FixedWindow, LeakyQueue, ManualClock, MemoryStore, Policy, RateLimitLayer,
    SharedStore, TokenBucket, key,
};

use crate::exchange::{Received, ask, get, now};
use crate::support::items::{Map, OneByOne};

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

/// Critical and sheddable requests under 100 a second, so many of each in 20 seconds, and how many of each pass. The load leaves 0.3 of
/// another policy, of which critical requests take no notice.
fn classes(upstream: Policy<Http>, [critical, sheddable]: [u64; 2]) -> [usize; 2] {
    let factor = FactorCell::new();
    factor.set(Factor::thousandths(300), "a test");
    let load = Policy::new("load", TokenBucket::per_second(100))
        .key(key::header("x-class"))
        .factor(&factor)
        .class(|head| match head.headers().get("x-class") {
            Some(class) if class == "critical" => Class::CriticalPlus,
            _ => Class::Sheddable,
        });
    let clock = ManualClock::new();
    let layer = RateLimitLayer::builder()
        .policies([upstream, load])
        .plans(
            Plans::new([Plan::new("critical"), Plan::new("sheddable")]),
            |head| Some(head.headers().get("x-class")?.to_str().ok()?.to_owned()),
        )
        .store(MemoryStore::new().clock(clock.clone()))
        .build()
        .unwrap();
    let service = layer.layer(service_fn(empty));
    let passes = |class| {
        let received = ask(&service, get_by([("x-class", class)]));
        usize::from(received.status == StatusCode::OK)
    };
    let (mut admitted, step) = ([0; 2], Duration::from_micros(500));
    for number in 0..40_000 {
        clock.advance(step);
        // The less important ones come first.
        if number % (40_000 / sheddable) == 0 {
            admitted[1] += passes("sheddable");
        }
        if number % (40_000 / critical) == 0 {
            admitted[0] += passes("critical");
        }
    }
    admitted
}

#[test]
fn an_important_class_has_its_share_first() {
    let divided = |fair| {
        let policy = Policy::new("upstream", TokenBucket::per_second(100));
        policy
            .key(key::global())
            .fair_by(key::header("x-class"), fair)
    };
    // Fifty a second of each: a half of the limit is all that the critical ones need.
    let [critical, sheddable] = classes(divided(Fair::new()), [1_000, 1_000]);
    assert_eq!(critical, 1_000);
    assert!((200..=320).contains(&sheddable), "{sheddable}");
    // However many others come.
    let [critical, sheddable] = classes(divided(Fair::new()), [1_000, 40_000]);
    assert_eq!(critical, 1_000);
    assert!((200..=320).contains(&sheddable), "{sheddable}");
    // Eighty a second are above a half, and the share of weight 4.
    let weighted = Fair::new().weight("critical", 4);
    let [critical, _] = classes(divided(weighted), [1_600, 40_000]);
    assert_eq!(critical, 1_600);
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
    let (asks, _) =
        asks([upstream().on_missing_key(OnMissingKey::Refuse(StatusCode::UNAUTHORIZED))]);
    assert_eq!(asks("").status, StatusCode::UNAUTHORIZED);
    assert_eq!(count(30, || asks("ann")), 20);
    let (asks, _) = self::asks([upstream().on_missing_key(OnMissingKey::Skip)]);
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

/// A response that is not read to its end holds its slot, and the next one that is free is for the tenant that has none.
#[test]
fn slots_are_given_back_with_the_response() {
    let reports = Policy::new("reports", Concurrency::of(4))
        .key(key::global())
        .fair(key::header("x-tenant"));
    let store = MemoryStore::new().clock(ManualClock::new());
    let layer = RateLimitLayer::builder().policy(reports).store(store);
    let service = layer.build().unwrap().layer(service_fn(empty));
    let ask = |tenant| {
        let request = get_by([("x-tenant", tenant)]);
        now(service.clone().oneshot(request)).unwrap()
    };
    let mut hog: Vec<_> = (0..4).map(|_| ask("hog")).collect();
    assert!(
        hog.iter()
            .all(|response| response.status() == StatusCode::OK)
    );
    let refused = ask("ann");
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(!refused.headers().contains_key("retry-after"));
    hog.pop();
    assert_eq!(ask("hog").status(), StatusCode::TOO_MANY_REQUESTS);
    let ann = ask("ann");
    assert_eq!(ann.status(), StatusCode::OK);
    assert_eq!(ann.headers()["ratelimit"], r#""reports";r=0"#);
}

/// Six requests of a hog wait, a second each. That of another tenant goes on in two seconds, and one of the hog in seven.
#[tokio::test]
async fn a_deadline_is_that_of_the_turn_among_tenants() {
    let clock = ManualClock::new();
    let queue = Policy::new("queue", LeakyQueue::per_second(1).places(20))
        .key(key::global())
        .fair(key::header("x-tenant"));
    let layer = RateLimitLayer::builder()
        .policy(queue)
        .store(MemoryStore::new().clock(clock.clone()))
        .build()
        .unwrap();
    let service = layer.layer(service_fn(empty));
    #[expect(
        clippy::async_yields_async,
        reason = "whether it has ended is looked at later"
    )]
    let send = async |tenant: &str, within: Option<Duration>| {
        let mut request = get_by([("x-tenant", tenant)]);
        if let Some(within) = within {
            request.extensions_mut().insert(Deadline::after(within));
        }
        let sent = tokio::spawn(service.clone().oneshot(request));
        settle().await;
        sent
    };
    for _ in 0..7 {
        send("hog", None).await;
    }
    for (tenant, within, wait) in [("ann", 1_500, 1), ("hog", 6_500, 1)] {
        let refused = send(tenant, Some(Duration::from_millis(within))).await;
        let answer = refused.await.unwrap().unwrap();
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS, "{tenant}");
        assert_eq!(
            answer.headers()["retry-after"],
            wait.to_string(),
            "{tenant}"
        );
    }
    let ann = send("ann", Some(Duration::from_millis(2_500))).await;
    let hog = send("hog", Some(Duration::from_millis(8_500))).await;
    for (seconds, are_gone) in [
        (1, [false, false]),
        (1, [true, false]),
        (5, [true, false]),
        (1, [true, true]),
    ] {
        clock.advance(Duration::from_secs(seconds));
        settle().await;
        assert_eq!(
            [&ann, &hog].map(tokio::task::JoinHandle::is_finished),
            are_gone
        );
    }
    assert_eq!(ann.await.unwrap().unwrap().status(), StatusCode::OK);
}

/// Lets all that can be done be done: nothing here waits for real time.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
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
    let store = SharedStore::new(OneByOne(Map::new(&ManualClock::new())));
    let built = RateLimitLayer::builder()
        .policy(upstream())
        .store(store)
        .build();
    let error = built.unwrap_err().to_string();
    assert!(error.contains("MemoryStore"), "{error}");
}
