//! What a client is told that has a limit of its own for a while.

use std::time::Duration;

use http::StatusCode;
use tower_ratelimit::key::Key;
use tower_ratelimit::response::Dialect;
use tower_ratelimit::{
    FixedWindow, ManualClock, MemoryStore, RateLimitLayer, SlidingWindow, TokenBucket,
};

use crate::exchange::{Behind, Hello, ask, cost, everybody, get, get_of_cost, limit, now};

const HOUR: Duration = Duration::from_secs(3_600);

#[test]
fn it_is_told_its_own_limit_until_that_ends() {
    let (clock, layer) = limit([
        everybody("a", FixedWindow::per_minute(10)).cost(cost),
        everybody("b", TokenBucket::per_second(5).burst(100)),
    ]);
    let service = Hello::behind(&layer);
    let limiter = layer.limiter();
    let own = limiter.override_limit("a", Key::EVERYBODY, FixedWindow::per_minute(20), HOUR);
    now(own.unwrap()).unwrap();
    let own = TokenBucket::per_second(1).burst(50);
    let own = limiter.override_limit("b", Key::EVERYBODY, own, HOUR);
    now(own.unwrap()).unwrap();

    let answer = ask(&service, get_of_cost(15));
    assert_eq!(answer.status, StatusCode::OK);
    let told = r#""a";q=20;w=60, "b";q=50;w=50"#;
    assert_eq!(answer.field("ratelimit-policy"), Some(told));
    let told = r#""a";r=5;t=60, "b";r=49;t=49"#;
    assert_eq!(answer.field("ratelimit"), Some(told));
    let answer = ask(&service, get_of_cost(15));
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.field("retry-after"), Some("60"));

    clock.advance(HOUR);
    let answer = ask(&service, get());
    let told = r#""a";q=10;w=60, "b";q=100;w=20"#;
    assert_eq!(answer.field("ratelimit-policy"), Some(told));
}

#[test]
fn one_of_a_limit_of_0_has_no_window() {
    let (_, layer) = limit([everybody("a", FixedWindow::per_minute(10))]);
    let service = Hello::behind(&layer);
    let nothing = FixedWindow::per_minute(0);
    let limiter = layer.limiter();
    now(limiter
        .override_limit("a", Key::EVERYBODY, nothing, HOUR)
        .unwrap())
    .unwrap();
    let answer = ask(&service, get());
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.field("ratelimit-policy"), Some(r#""a";q=0"#));
    assert_eq!(answer.field("retry-after"), None);
}

#[test]
fn every_dialect_tells_it() {
    for (dialect, name, before, after) in [
        (Dialect::Draft07, "ratelimit-policy", "10;w=60", "20;w=60"),
        (Dialect::Draft06, "ratelimit-policy", "10;w=60", "20;w=60"),
        (
            Dialect::Draft03,
            "ratelimit-limit",
            "10, 10;w=60",
            "20, 20;w=60",
        ),
        (Dialect::GitHub, "x-ratelimit-limit", "10", "20"),
    ] {
        let layer = RateLimitLayer::builder()
            .policy(everybody("a", SlidingWindow::per_minute(10)))
            .store(MemoryStore::new().clock(ManualClock::new()))
            .dialects([dialect])
            .build()
            .unwrap();
        let service = Hello::behind(&layer);
        assert_eq!(
            ask(&service, get()).field(name),
            Some(before),
            "{dialect:?}"
        );
        let limiter = layer.limiter();
        let own = SlidingWindow::per_minute(20);
        now(limiter
            .override_limit("a", Key::EVERYBODY, own, HOUR)
            .unwrap())
        .unwrap();
        assert_eq!(ask(&service, get()).field(name), Some(after), "{dialect:?}");
    }
}
