//! The headers of a client with an override.

use std::time::Duration;

use http::StatusCode;
use tower_ratelimit::key::Key;
use tower_ratelimit::response::Dialect;
use tower_ratelimit::{
    Algorithm, AnchoredWindow, FixedWindow, Gcra, LeakyQueue, ManualClock, MemoryStore,
    RateLimitLayer, SlidingLog, SlidingSlots, SlidingWindow, TokenBucket,
};

use crate::arrivals::{Arrivals, behind, request, send};
use crate::exchange::{Behind, Hello, ask, cost, get, get_of_cost, global, limit, now};
use crate::waiting::{SECOND, by_user, costing, layer, the_wait_told_behind_a_line_works, told};

const HOUR: Duration = Duration::from_secs(3_600);

#[test]
fn it_is_told_its_own_limit_until_that_ends() {
    let (clock, layer) = limit([
        global("a", FixedWindow::per_minute(10)).cost(cost),
        global("b", TokenBucket::per_second(5).burst(100)),
    ]);
    let service = Hello::behind(&layer);
    let limiter = layer.limiter();
    let own = limiter.override_limit("a", Key::GLOBAL, FixedWindow::per_minute(20), HOUR);
    now(own.unwrap()).unwrap();
    let own = TokenBucket::per_second(1).burst(50);
    let own = limiter.override_limit("b", Key::GLOBAL, own, HOUR);
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
    let (_, layer) = limit([global("a", FixedWindow::per_minute(10))]);
    let service = Hello::behind(&layer);
    let nothing = FixedWindow::per_minute(0);
    let limiter = layer.limiter();
    now(limiter
        .override_limit("a", Key::GLOBAL, nothing, HOUR)
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
            .policy(global("a", SlidingWindow::per_minute(10)))
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
        now(limiter.override_limit("a", Key::GLOBAL, own, HOUR).unwrap()).unwrap();
        assert_eq!(ask(&service, get()).field(name), Some(after), "{dialect:?}");
    }
}

fn give(layer: &RateLimitLayer, own: impl Into<Algorithm>) {
    let limiter = layer.limiter();
    let given = limiter.override_limit("a", "1", own, HOUR);
    now(given.unwrap()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_key_with_a_smaller_limit_is_told_the_wait_behind_all_others() {
    let patient = by_user("a", TokenBucket::per_second(100)).wait_up_to(3 * SECOND);
    let layer = layer([patient]);
    give(&layer, TokenBucket::per_second(1));
    let service = behind(&layer, &Arrivals::new());
    let mut sent = Vec::new();
    for number in 0..4 {
        sent.push(send(&service, request(1, number)).await);
    }
    let refused = send(&service, request(1, 4)).await.await.unwrap();
    assert_eq!(told(&refused), Some(4 * SECOND));
    for sent in sent {
        assert_eq!(sent.await.unwrap().status, StatusCode::OK);
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_with_a_greater_limit_is_not_refused_by_that_of_the_policy() {
    let policy = by_user("a", TokenBucket::per_second(1)).cost(cost);
    let layer = layer([policy.wait_up_to(SECOND)]);
    give(&layer, TokenBucket::per_second(100));
    let service = behind(&layer, &Arrivals::new());
    let mut sent = vec![send(&service, costing(0, 100)).await];
    for number in 1..=100 {
        sent.push(send(&service, costing(number, 1)).await);
    }
    for sent in sent {
        assert_eq!(sent.await.unwrap().status, StatusCode::OK);
    }
}

#[tokio::test(start_paused = true)]
async fn each_wait_that_is_told_behind_a_line_works_by_a_limit_of_ones_own_too() {
    fn algorithms(few: u16) -> [Algorithm; 9] {
        let limit = u32::from(few);
        [
            FixedWindow::per_second(limit).into(),
            AnchoredWindow::per_second(limit).into(),
            SlidingLog::per_second(few).into(),
            SlidingSlots::per_second(limit).slots(4).unwrap().into(),
            SlidingWindow::per_second(limit).into(),
            TokenBucket::per_second(limit).into(),
            TokenBucket::per_second(limit).by_interval().into(),
            TokenBucket::per_second(limit).burst(5).by_interval().into(),
            Gcra::per_second(limit).burst(2).into(),
        ]
    }
    for limit in [1, 9] {
        for (policys, own) in algorithms(limit).into_iter().zip(algorithms(3)) {
            let patient = by_user("a", policys).wait_up_to(5 * SECOND);
            let layer = layer([patient.wait_places(8)]);
            give(&layer, own);
            the_wait_told_behind_a_line_works(&layer, own).await;
        }
    }
    let queue = LeakyQueue::per_second(3);
    let patient = by_user("a", queue.places(9)).wait_up_to(5 * SECOND);
    let layer = layer([patient.wait_places(8)]);
    give(&layer, queue.places(1));
    the_wait_told_behind_a_line_works(&layer, queue.places(1).into()).await;
}
