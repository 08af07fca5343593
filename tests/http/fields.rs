//! The headers of draft 11, byte by byte.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tower::{Layer, service_fn};
use tower_ratelimit::diagnostics::Diagnostic;
use tower_ratelimit::key::{Head, Key, Missing};
use tower_ratelimit::{
    Algorithm, FixedWindow, LeakyBucket, ManualClock, MemoryStore, Policy, RateLimitLayer,
    TokenBucket,
};

use crate::exchange::{
    Behind, Hello, Received, ask, cost, cost_in, get, get_of_cost, get_with, global, limit,
    limited_hello,
};

/// Status, `RateLimit-Policy`, `RateLimit` and `Retry-After`.
type StatusAndFields<'a> = (u16, Option<&'a str>, Option<&'a str>, Option<&'a str>);

fn told(answer: &Received) -> StatusAndFields<'_> {
    (
        answer.status.as_u16(),
        answer.field("ratelimit-policy"),
        answer.field("ratelimit"),
        answer.field("retry-after"),
    )
}

fn allowed<'a>(policy: &'a str, limit: &'a str) -> StatusAndFields<'a> {
    (200, Some(policy), Some(limit), None)
}

fn denied<'a>(
    policy: &'a str,
    limit: &'a str,
    retry_after: Option<&'a str>,
) -> StatusAndFields<'a> {
    (429, Some(policy), Some(limit), retry_after)
}

fn a_hundred_a_minute() -> (tower_ratelimit::ManualClock, Hello) {
    let policy = global("default", FixedWindow::per_minute(100)).cost(cost);
    let (clock, service) = limited_hello([policy]);
    clock.advance(Duration::from_millis(10_800));
    (clock, service)
}

#[test]
fn the_headers_of_a_fixed_window_until_its_end() {
    let policy = r#""default";q=100;w=60"#;
    let (_, service) = a_hundred_a_minute();

    let answer = ask(&service, get());
    assert_eq!(told(&answer), allowed(policy, r#""default";r=99;t=50"#));
    ask(&service, get_of_cost(98));
    let answer = ask(&service, get());
    assert_eq!(told(&answer), allowed(policy, r#""default";r=0;t=50"#));
    let answer = ask(&service, get());
    let expected = denied(policy, r#""default";r=0;t=50"#, Some("50"));
    assert_eq!(told(&answer), expected);
}

#[test]
fn a_wait_below_a_second_is_sent_as_one_second() {
    let (clock, service) = limited_hello([global("burst", TokenBucket::per_second(10))]);
    for _ in 0..10 {
        assert_eq!(ask(&service, get()).status, StatusCode::OK);
    }
    clock.advance(Duration::from_millis(60));
    let answer = ask(&service, get());
    let expected = denied(r#""burst";q=10;w=1"#, r#""burst";r=0;t=1"#, Some("1"));
    assert_eq!(told(&answer), expected);
}

#[test]
fn all_policies_that_applied_are_listed_on_success() {
    let burst = global("burst", TokenBucket::per_second(10)).cost(cost_in("x-burst"));
    let daily = global("daily", FixedWindow::per_day(5000)).cost(cost_in("x-daily"));
    let (clock, service) = limited_hello([burst, daily]);
    clock.advance(Duration::from_secs(14 * 3600));

    ask(&service, get_with([("x-daily", 4899)]));
    let answer = ask(&service, get_with([("x-burst", 3), ("x-daily", 1)]));
    let expected = allowed(
        r#""burst";q=10;w=1, "daily";q=5000;w=86400"#,
        r#""burst";r=7;t=1, "daily";r=100;t=36000"#,
    );
    assert_eq!(told(&answer), expected);
}

#[test]
fn only_the_violated_policies_are_listed_on_a_refusal() {
    let hour = global("hour", FixedWindow::per_hour(1000)).cost(cost_in("x-hour"));
    let day = global("day", FixedWindow::per_day(5000)).cost(cost);
    let (clock, service) = limited_hello([hour, day]);
    clock.advance(Duration::from_secs(14 * 3600));

    let answer = ask(&service, get_of_cost(5000));
    assert_eq!(answer.status, StatusCode::OK);
    let answer = ask(&service, get_with([("x-hour", 1)]));
    let expected = denied(
        r#""hour";q=1000;w=3600, "day";q=5000;w=86400"#,
        r#""day";r=0;t=36000"#,
        Some("36000"),
    );
    assert_eq!(told(&answer), expected);
}

#[test]
fn no_time_is_sent_where_no_wait_helps() {
    let algorithms: [Algorithm; 3] = [
        FixedWindow::new(10, Duration::from_secs(10))
            .unwrap()
            .into(),
        TokenBucket::per_second(1).burst(10).into(),
        LeakyBucket::per_second(1).capacity(10).into(),
    ];
    for algorithm in algorithms {
        let (_, service) = limited_hello([global("api", algorithm).cost(cost)]);
        let answer = ask(&service, get_of_cost(50));
        let expected = denied(r#""api";q=10;w=10"#, r#""api";r=10"#, None);
        assert_eq!(told(&answer), expected, "{algorithm}");
    }
}

#[test]
fn a_limit_of_0_is_told_without_any_time() {
    let (_, service) = limited_hello([global("closed", FixedWindow::per_day(0))]);
    let answer = ask(&service, get());
    assert_eq!(
        told(&answer),
        denied(r#""closed";q=0"#, r#""closed";r=0"#, None)
    );
}

/// The IETF draft leaves the window of a bucket open. In our reading, `t` is the time in which the rate of the bucket
/// gives `r` units.
#[test]
fn the_window_of_a_bucket_is_the_time_in_which_its_rate_gives_the_remaining_units() {
    let state = |spent, rested| {
        let policy = global("c", TokenBucket::per_minute(100)).cost(cost);
        let (clock, service) = limited_hello([policy]);
        assert_eq!(ask(&service, get_of_cost(spent)).status, StatusCode::OK);
        clock.advance(Duration::from_millis(rested));
        service
    };
    let policy = r#""c";q=100;w=60"#;
    for (id, spent, rested, limit) in [
        ("C1", 0, 0, r#""c";r=100;t=60"#),
        ("C2", 1, 0, r#""c";r=99;t=60"#),
        ("C3", 50, 300, r#""c";r=50;t=30"#),
        ("C4", 99, 120, r#""c";r=1;t=1"#),
    ] {
        let answer = ask(&state(spent, rested), get_of_cost(0));
        assert_eq!(told(&answer), allowed(policy, limit), "{id}");
    }
    let answer = ask(&state(100, 240), get());
    let expected = denied(policy, r#""c";r=0;t=1"#, Some("1"));
    assert_eq!(told(&answer), expected, "C5");
}

#[test]
fn the_quickstart_says_nine_to_zero_and_then_refuses_for_a_second() {
    let bucket = TokenBucket::per_second(5).burst(10);
    let (_, service) = limited_hello([global("default", bucket)]);
    let policy = r#""default";q=10;w=2"#;
    for (r, t) in [
        (9, 2),
        (8, 2),
        (7, 2),
        (6, 2),
        (5, 1),
        (4, 1),
        (3, 1),
        (2, 1),
        (1, 1),
        (0, 1),
    ] {
        let limit = format!(r#""default";r={r};t={t}"#);
        assert_eq!(told(&ask(&service, get())), allowed(policy, &limit));
    }
    let expected = denied(policy, r#""default";r=0;t=1"#, Some("1"));
    assert_eq!(told(&ask(&service, get())), expected);
}

#[test]
fn retry_after_is_capped_at_what_31_bits_hold() {
    // Ten days more than 2^31 s are a hundred years of 366 days.
    let bucket = TokenBucket::new(1, Duration::from_secs(366 * 86_400)).unwrap();
    let policy = global("century", bucket.burst(100)).cost(cost);
    let (_, service) = limited_hello([policy]);
    assert_eq!(ask(&service, get_of_cost(100)).status, StatusCode::OK);
    let answer = ask(&service, get_of_cost(100));
    assert_eq!(answer.field("retry-after"), Some("2147483647"));
    // No time that is told with it is longer.
    let limits = answer.field("ratelimit");
    assert_eq!(limits, Some(r#""century";r=0;t=2147483647"#));
}

#[test]
fn where_one_policy_can_never_pass_no_wait_of_another_is_told() {
    let (_, service) = limited_hello([
        global("minute", FixedWindow::per_minute(1)),
        global("never", FixedWindow::per_minute(5)).cost(|_| 6),
    ]);
    let answer = ask(&service, get());
    assert_eq!(answer.field("retry-after"), None);
    assert_eq!(answer.field("ratelimit"), Some(r#""never";r=5"#));

    let (_, service) = limited_hello([
        global("minute", FixedWindow::per_minute(1)),
        global("dear", FixedWindow::per_minute(5)).cost(cost),
    ]);
    assert_eq!(ask(&service, get_of_cost(1)).status, StatusCode::OK);
    let answer = ask(&service, get_of_cost(6));
    assert_eq!(answer.field("retry-after"), None);
    assert_eq!(
        answer.field("ratelimit"),
        Some(r#""minute";r=0, "dear";r=4"#)
    );
}

/// Returns a service behind the layer that answers with this status and these fields.
fn answering(
    layer: &RateLimitLayer,
    status: u16,
    fields: &[(&'static str, &'static str)],
) -> Received {
    let mut inner = Response::builder().status(status);
    for (name, value) in fields {
        inner = inner.header(*name, *value);
    }
    let inner = inner.body(Full::<Bytes>::default()).unwrap();
    let service = service_fn(|_: Request<()>| {
        let inner = inner.clone();
        async { Ok::<_, std::convert::Infallible>(inner) }
    });
    ask(&layer.layer(service), get())
}

fn h1() -> RateLimitLayer {
    let (clock, layer) = limit([global("default", FixedWindow::per_minute(100))]);
    clock.advance(Duration::from_millis(10_800));
    layer
}

#[test]
fn a_redirect_gets_no_headers_and_not_modified_does() {
    for status in [300, 301, 302, 303, 307, 308] {
        let answer = answering(&h1(), status, &[]);
        assert_eq!(answer.status, status);
        answer.assert_no_fields();
    }
    for status in [200, 204, 206, 304, 400, 404, 500, 503] {
        let answer = answering(&h1(), status, &[]);
        assert_eq!(answer.status, status);
        assert_eq!(answer.field("ratelimit"), Some(r#""default";r=99;t=50"#));
        assert_eq!(
            answer.field("ratelimit-policy"),
            Some(r#""default";q=100;w=60"#)
        );
    }
}

#[test]
fn an_informational_response_gets_no_fields() {
    let answer = answering(&h1(), 101, &[]);
    assert_eq!(answer.status, StatusCode::SWITCHING_PROTOCOLS);
    answer.assert_no_fields();
}

#[test]
fn headers_of_the_inner_service_stay_before_ours() {
    let inner = [
        ("ratelimit", r#""inner";r=1;t=1"#),
        ("ratelimit-policy", r#""inner";q=1;w=1"#),
    ];
    let answer = answering(&h1(), 200, &inner);
    assert_eq!(
        answer.lines("ratelimit"),
        [r#""inner";r=1;t=1"#, r#""default";r=99;t=50"#]
    );
    assert_eq!(
        answer.lines("ratelimit-policy"),
        [r#""inner";q=1;w=1"#, r#""default";q=100;w=60"#]
    );
}

#[test]
fn the_retry_after_of_the_inner_service_is_kept() {
    let answer = answering(&h1(), 429, &[("retry-after", "120")]);
    let expected = denied(
        r#""default";q=100;w=60"#,
        r#""default";r=99;t=50"#,
        Some("120"),
    );
    assert_eq!(told(&answer), expected);
    assert_eq!(answer.field("cache-control"), None);
}

#[test]
fn a_response_that_is_not_ours_keeps_its_own_fields_as_they_are() {
    let inner = [("cache-control", "max-age=60"), ("content-type", "x/y")];
    let answer = answering(&h1(), 200, &inner);
    assert_eq!(answer.field("cache-control"), Some("max-age=60"));
    assert_eq!(answer.field("content-type"), Some("x/y"));
    assert_eq!(answer.field("retry-after"), None);
}

#[test]
fn an_outer_layer_tells_its_numbers_when_an_inner_one_fails() {
    const MISSING: Diagnostic = Diagnostic::new("TEST001", "a test", "no key", "none");
    let keyless = |_: &Head<'_>| Err::<Key, _>(Missing::ByServer(MISSING));
    let (_, inner) = limit([Policy::new("inner", FixedWindow::per_minute(1)).key(keyless)]);
    let (_, outer) = limit([global("outer", FixedWindow::per_minute(5))]);
    let answer = ask(&outer.layer(Hello::behind(&inner)), get());
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(answer.lines("ratelimit"), [r#""outer";r=4;t=60"#]);
}

#[test]
fn two_layers_each_write_a_line_and_a_refusal_of_the_inner_one_passes_the_outer() {
    let (_, inner) = limit([global("inner", FixedWindow::per_minute(1))]);
    let (_, outer) = limit([global("outer", FixedWindow::per_minute(5))]);
    let stacked = outer.layer(Hello::behind(&inner));

    let answer = ask(&stacked, get());
    assert_eq!(
        answer.lines("ratelimit"),
        [r#""inner";r=0;t=60"#, r#""outer";r=4;t=60"#]
    );
    let answer = ask(&stacked, get());
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        answer.lines("ratelimit"),
        [r#""inner";r=0;t=60"#],
        "a refusal lists what was violated, and nothing else"
    );
    assert_eq!(answer.field("retry-after"), Some("60"));
    assert_eq!(answer.field("cache-control"), Some("no-store"));
}

#[test]
fn the_share_of_a_limit_of_several_nodes_is_told_as_the_limit() {
    let policy = global("api", TokenBucket::per_minute(100).burst(50));
    let layer = RateLimitLayer::builder().policy(policy).nodes(3);
    let store = MemoryStore::new().clock(ManualClock::new());
    let layer = layer.store(store).build().unwrap();
    let answer = ask(&Hello::behind(&layer), get());
    let expected = allowed(r#""api";q=17;w=30"#, r#""api";r=16;t=29"#);
    assert_eq!(told(&answer), expected);
}
