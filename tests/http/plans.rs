//! The headers of clients under limits by plan, key and operation.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::key::{self, Head, Secret};
use tower_ratelimit::plan::{KeyLimits, Operations, Plan, Plans};
use tower_ratelimit::policy::{Http, Mode};
use tower_ratelimit::{
    Algorithm, AnchoredWindow, Decision, FixedWindow, ManualClock, MemoryStore, Policy,
    RateLimitLayer, TokenBucket,
};

use crate::exchange::{Behind, Hello, Received, answer, ask, now};

/// The extension of the authentication layer.
#[derive(Clone)]
struct Customer {
    id: u32,
    plan: Option<&'static str>,
}

fn request(id: u32, plan: Option<&'static str>) -> Request<()> {
    let customer = Customer { id, plan };
    Request::builder().extension(customer).body(()).unwrap()
}

fn by_customer(name: &str, algorithm: impl Into<Algorithm>) -> Policy<Http> {
    let id = |customer: &Customer| customer.id;
    Policy::new(name, algorithm).key(key::extension::<Customer>().map(id))
}

fn layer(
    plan_of: impl Fn(&Head<'_>) -> Option<&'static str> + Send + Sync + 'static,
) -> RateLimitLayer {
    let plans = Plans::new([
        Plan::new("free")
            .limit("minute", AnchoredWindow::per_minute(2))
            .limit("rate", TokenBucket::per_second(1).burst(5)),
        Plan::new("pro")
            .limit("minute", AnchoredWindow::per_minute(100))
            .limit("rate", TokenBucket::per_second(2).burst(50)),
        Plan::new("closed").limit("minute", AnchoredWindow::per_minute(0)),
        Plan::new("everything")
            .unlimited("minute")
            .unlimited("rate"),
    ]);
    let built = RateLimitLayer::builder()
        .policy(by_customer("minute", AnchoredWindow::per_minute(2)))
        .policy(by_customer("rate", TokenBucket::per_second(1).burst(5)))
        .plans(plans, plan_of)
        .store(MemoryStore::new().clock(ManualClock::new()))
        .build();
    built.unwrap()
}

fn plan_of(head: &Head<'_>) -> Option<&'static str> {
    head.extension::<Customer>()?.plan
}

fn told(answer: &Received) -> (u16, Option<&str>, Option<&str>) {
    let policy = answer.field("ratelimit-policy");
    (answer.status.as_u16(), policy, answer.field("ratelimit"))
}

#[test]
fn no_plan_is_looked_for_while_all_policies_are_off() {
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&looks);
    let layer = layer(move |head| {
        counted.fetch_add(1, Ordering::Relaxed);
        plan_of(head)
    });
    let service = Hello::behind(&layer);
    let modes = layer.limiter().modes();
    modes.set_all(Mode::Off);
    assert_eq!(ask(&service, request(1, Some("closed"))).status, 200);
    assert_eq!(looks.load(Ordering::Relaxed), 0);
    modes.unset_all();
    assert_eq!(ask(&service, request(1, Some("closed"))).status, 429);
    assert_eq!(looks.load(Ordering::Relaxed), 1);
}

#[test]
fn a_client_is_told_the_limits_of_its_plan() {
    let service = Hello::behind(&layer(plan_of));
    let answer = ask(&service, request(1, Some("pro")));
    let (policy, limit) = (
        r#""minute";q=100;w=60, "rate";q=50;w=25"#,
        r#""minute";r=99;t=60, "rate";r=49;t=25"#,
    );
    assert_eq!(told(&answer), (200, Some(policy), Some(limit)));
    let answer = ask(&service, request(2, None));
    let (policy, limit) = (
        r#""minute";q=2;w=60, "rate";q=5;w=5"#,
        r#""minute";r=1;t=60, "rate";r=4;t=4"#,
    );
    assert_eq!(told(&answer), (200, Some(policy), Some(limit)));
}

#[test]
fn a_limit_of_0_says_never() {
    let service = Hello::behind(&layer(plan_of));
    let answer = ask(&service, request(1, Some("closed")));
    assert_eq!(
        told(&answer),
        (429, Some(r#""minute";q=0"#), Some(r#""minute";r=0"#))
    );
    assert_eq!(answer.field("retry-after"), None);
}

#[test]
fn a_plan_without_limits_goes_on_without_headers() {
    let service = Hello::behind(&layer(plan_of));
    let answer = ask(&service, request(1, Some("everything")));
    assert_eq!(answer.status, StatusCode::OK);
    answer.assert_no_fields();
}

/// A client is refused under the lower plan, with an exact wait, and goes on at once under the higher plan.
#[test]
fn a_change_of_plan_counts_from_the_next_request() {
    let service = Hello::behind(&layer(plan_of));
    for _ in 0..2 {
        assert_eq!(
            ask(&service, request(1, Some("free"))).status,
            StatusCode::OK
        );
    }
    let refused = ask(&service, request(1, Some("free")));
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.field("retry-after"), Some("60"));
    let answer = ask(&service, request(1, Some("pro")));
    assert_eq!(
        answer.field("ratelimit"),
        Some(r#""minute";r=97;t=60, "rate";r=47;t=24"#)
    );
    assert_eq!(
        ask(&service, request(1, Some("free"))).status,
        StatusCode::TOO_MANY_REQUESTS
    );
}

#[test]
fn a_request_reads_one_plan_for_all_its_policies() {
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reads);
    // Each reading returns another plan: no request may mix two.
    let plan_of =
        move |_: &Head<'_>| Some(["free", "pro"][counted.fetch_add(1, Ordering::Relaxed) % 2]);
    let service = Hello::behind(&layer(plan_of));
    for (id, policy) in [
        (1, r#""minute";q=2;w=60, "rate";q=5;w=5"#),
        (2, r#""minute";q=100;w=60, "rate";q=50;w=25"#),
    ] {
        assert_eq!(
            ask(&service, request(id, None)).field("ratelimit-policy"),
            Some(policy)
        );
    }
    assert_eq!(reads.load(Ordering::Relaxed), 2);
}

fn by_header(name: &str, value: &str) -> Request<()> {
    Request::builder().header(name, value).body(()).unwrap()
}

#[test]
fn limits_by_key_compare_a_hashed_key_as_the_client_sends_it() {
    let secret = Secret::new("a secret of sixteen bytes").unwrap();
    let limits = KeyLimits::new()
        .key("k-1", FixedWindow::per_minute(50))
        .prefix("k-", FixedWindow::per_minute(20))
        .other(FixedWindow::per_minute(5));
    let policy = Policy::new("a", FixedWindow::per_minute(1))
        .key_limits(limits)
        .key(key::api_key().hashed(&secret));
    let layer = RateLimitLayer::builder().policy(policy).build().unwrap();
    let service = Hello::behind(&layer);
    for (key, told) in [("k-1", "50"), ("k-2", "20"), ("other", "5")] {
        let answer = ask(&service, by_header("x-api-key", key));
        assert_eq!(
            answer.field("ratelimit-policy"),
            Some(&*format!(r#""a";q={told};w=60"#))
        );
    }
}

#[test]
fn a_closure_over_the_head_gives_the_limit_and_the_decision_names_it() {
    #[derive(Clone)]
    struct PerMinute(u32);

    let policy = by_customer("minute", FixedWindow::per_minute(10)).limit_by(|head| {
        let PerMinute(limit) = head.extension()?;
        Some(FixedWindow::per_minute(*limit))
    });
    let layer = RateLimitLayer::builder()
        .policy(policy)
        .plans(
            Plans::new([Plan::new("free").limit("minute", FixedWindow::per_minute(5))]),
            |_| None::<&str>,
        )
        .store(MemoryStore::new().clock(ManualClock::new()))
        .build()
        .unwrap();
    let service = Hello::behind(&layer);
    let of = |limit: Option<u32>| {
        let mut request = request(7, None);
        if let Some(limit) = limit {
            request.extensions_mut().insert(PerMinute(limit));
        }
        request
    };
    // One state, whatever gives the limit.
    for (limit, quota, left) in [
        (Some(3), 3, 2),
        (None, 5, 3),
        (Some(100), 100, 97),
        (None, 5, 1),
    ] {
        let answer = ask(&service, of(limit));
        let policy = format!(r#""minute";q={quota};w=60"#);
        assert_eq!(answer.field("ratelimit-policy"), Some(&*policy));
        let told = answer.field("ratelimit").unwrap();
        assert!(
            told.starts_with(&format!(r#""minute";r={left};"#)),
            "{told}"
        );
    }
    let denied = ask(&service, of(Some(3)));
    assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(ask(&service, of(Some(0))).field("retry-after"), None);
}

/// The rule compares the value that the client sends, and not its hash.
#[test]
fn a_closure_over_the_key_sees_it_before_it_is_hashed() {
    let policy = Policy::new("a", FixedWindow::per_minute(1)).limit_by(|key| {
        key.starts_with("partner-")
            .then(|| FixedWindow::per_minute(50))
    });
    let secret = Secret::new("a secret of this test").unwrap();
    let service = by_method(policy.key(key::api_key().hashed(&secret)));
    for (key, told) in [("partner-7", 50), ("ann", 1)] {
        let answer = ask(&service, by_header("x-api-key", key));
        let policy = format!(r#""a";q={told};w=60"#);
        assert_eq!(answer.field("ratelimit-policy"), Some(&*policy));
    }
}

fn operations() -> Operations {
    Operations::new()
        .limit("GET", FixedWindow::per_minute(100))
        .limit("POST", FixedWindow::per_minute(2))
}

fn by_method(policy: Policy<Http>) -> Hello {
    let layer = RateLimitLayer::builder().policy(policy).build();
    Hello::behind(&layer.unwrap())
}

fn of_method(method: &str) -> Request<()> {
    Request::builder().method(method).body(()).unwrap()
}

#[test]
fn a_method_is_an_operation_and_invented_ones_share_a_state() {
    let policy = Policy::new("api", FixedWindow::per_minute(3)).operations(operations());
    let service = by_method(policy.key(key::global()).operation(key::method()));
    for (method, told) in [
        ("POST", r#""api";r=1"#),
        ("GET", r#""api";r=99"#),
        ("POST", r#""api";r=0"#),
        ("DELETE", r#""api";r=2"#),
        ("INVENTED", r#""api";r=1"#),
        ("INVENTED-TOO", r#""api";r=0"#),
    ] {
        let answer = ask(&service, of_method(method));
        let limit = answer.field("ratelimit").unwrap();
        assert!(limit.starts_with(told), "{method}: {limit}");
    }
    assert_eq!(
        ask(&service, of_method("PATCH")).status,
        StatusCode::TOO_MANY_REQUESTS
    );
    assert_eq!(ask(&service, of_method("GET")).status, StatusCode::OK);
}

#[test]
fn a_path_is_the_operation_with_the_longest_prefix() {
    let operations = Operations::new()
        .limit("/bulk", FixedWindow::per_minute(10))
        .limit("/bulk/import", FixedWindow::per_minute(2))
        .other(FixedWindow::per_minute(50));
    let policy = Policy::new("api", FixedWindow::per_minute(1)).operations(operations);
    let service = by_method(policy.key(key::global()).operation_by_path());
    for (path, limit) in [
        ("/bulk", 10),
        ("/bulk/7", 10),
        ("/bulk/import/7", 2),
        ("/bulky", 50),
        ("/", 50),
    ] {
        let answer = ask(&service, of_path(path));
        let told = format!(r#""api";q={limit};w=60"#);
        assert_eq!(answer.field("ratelimit-policy"), Some(&*told), "{path}");
    }
}

/// The names are routes and calls, and contain nothing of a client's path.
#[test]
fn a_matched_path_is_an_operation_and_so_is_a_grpc_method() {
    let operations = Operations::new()
        .limit("/users/{id}", FixedWindow::per_minute(10))
        .limit("shop.Orders/Export", FixedWindow::per_minute(2))
        .other(FixedWindow::per_minute(50));
    let policy = || {
        let policy = Policy::new("api", FixedWindow::per_minute(1));
        policy.operations(operations.clone()).key(key::global())
    };
    let builder = || RateLimitLayer::builder().policy(policy().operation(key::matched_path()));
    let routes = Router::new()
        .route("/users/{id}", get(async || "hello"))
        .route("/", get(async || "hello"))
        .layer(builder().build().unwrap());
    let calls = by_method(policy().operation(key::grpc_method()));
    let asked = |path: &str| Request::get(path).body(Body::empty()).unwrap();
    for (answer, told) in [
        (ask(&routes, asked("/users/7")), r#""api";r=9"#),
        (ask(&routes, asked("/users/8")), r#""api";r=8"#),
        (ask(&routes, asked("/")), r#""api";r=49"#),
        (ask(&calls, of_path("/shop.Orders/Export")), r#""api";r=1"#),
        (ask(&calls, of_path("/shop.Orders/List")), r#""api";r=49"#),
        (ask(&calls, of_path("/invented/List")), r#""api";r=48"#),
    ] {
        let limit = answer.field("ratelimit").unwrap();
        assert!(limit.starts_with(told), "{limit}");
    }
}

fn of_path(path: &str) -> Request<()> {
    Request::builder().uri(path).body(()).unwrap()
}

#[test]
fn operations_without_a_way_to_tell_them_are_a_mistake() {
    let policy = || Policy::new("api", FixedWindow::per_minute(3));
    let error = |policy: Policy<Http>| {
        let built = RateLimitLayer::builder().policy(policy).build();
        built.unwrap_err().to_string()
    };
    assert_eq!(
        error(policy().operations(operations()).key(key::global())),
        r#"`operations` cannot be "api": say which operation a request is, `.operation(key::method())`"#,
    );
    assert_eq!(
        error(policy().key(key::global()).operation(key::method())),
        r#"`operations` cannot be "api": give it limits by operation, `.operations(Operations::new()…)`"#,
    );
}

#[test]
fn the_decision_names_the_rule() {
    let plans = Plans::new([Plan::new("free").limit("a", FixedWindow::per_minute(9))]);
    let layer = RateLimitLayer::builder()
        .policy(Policy::new("a", FixedWindow::per_minute(9)).key(key::global()))
        .plans(plans, |_: &Head<'_>| None::<&str>)
        .expose_decision()
        .build()
        .unwrap();
    let service = layer.layer(service_fn(async |request: Request<()>| {
        let decision = request.extensions().get::<Decision>().unwrap();
        let rule = decision.rule().unwrap().to_string();
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(rule)))
    }));
    let response = now(service.oneshot(Request::new(()))).unwrap();
    assert_eq!(answer(response).text(), "plan free");
}
