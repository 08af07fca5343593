//! Layers in the wrong place, or with a timeout or a cost that does not fit.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use tokio::time::{sleep, timeout};
use tower::ServiceExt;
use tower_http::timeout::TimeoutLayer;
use tower_ratelimit::key::{self, Head};
use tower_ratelimit::policy::Settle;
use tower_ratelimit::{FixedWindow, LeakyQueue, MemoryStore, Policy, RateLimitLayer, TokenBucket};

use super::{assert_warns_once, block_on, hello, limit, statuses};
use crate::support::log::{Log, LogLine};
use crate::support::tokio_clock::TokioClock;

#[test]
fn a_layer_that_stands_on_a_route_twice_is_warned_of_once() {
    let constant = |_: &Head<'_>| "all";
    let many = || RateLimitLayer::new(constant, TokenBucket::per_second(100));
    let (once, twice) = (many(), many());

    // Two layers, one inside the other, and one layer on two routes, are intended.
    let fine = Router::new()
        .route("/other", get(|| async { "other" }).layer(twice.clone()))
        .merge(hello().layer(twice.clone()))
        .layer(once.clone());
    let (_, lines) = statuses(&fine, 3);
    assert!(lines.is_empty(), "{lines:?}");

    // One layer added to a route and to the router around it, with another between.
    let doubled = hello()
        .layer(twice.clone())
        .layer(once.clone())
        .layer(twice);
    let (_, lines) = statuses(&doubled, 3);
    assert_warns_once(&lines, "TRL004", "RateLimitLayer");
}

#[test]
fn layers_that_are_built_for_each_request_are_warned_of_once() {
    // More than reloads of a configuration ever make.
    let ((), lines) = Log::of(|| {
        for _ in 0..300 {
            let app = hello().layer(limit(|_: &Head<'_>| "all"));
            assert_eq!(statuses(&app, 1).0, [StatusCode::OK]);
        }
    });
    assert_warns_once(&lines, "TRL005", "RateLimitLayer");
}

#[test]
fn requests_that_keep_leaving_a_line_before_their_turn_are_warned_of_once() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let queue = Policy::new("queue", LeakyQueue::per_second(1).places(1_000));
    let patient = Policy::new("bucket", TokenBucket::per_second(1))
        .wait_up_to(Duration::from_secs(3_600))
        .wait_places(1_000);
    for policy in [queue, patient] {
        let subject = format!("policy {:?}", policy.name());
        let policy = policy.key(|_: &Head<'_>| "all");
        let limit = RateLimitLayer::builder().policy(policy).build().unwrap();
        let app = hello().layer(limit);
        let ((), lines) = Log::of(|| {
            runtime.block_on(async {
                for _ in 0..300 {
                    let sent = app.clone().oneshot(Request::new(Body::empty()));
                    let _ = timeout(Duration::ZERO, sent).await;
                }
            });
        });
        assert_warns_once(&lines, "TRL014", &subject);
    }
}

/// Returns a queue of ten a second, and twenty requests a second that are dropped after this time.
fn logged_of_a_queue_under(name: &str, patience: Duration) -> Vec<LogLine> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let scene = async {
        let queue = Policy::new(name, LeakyQueue::per_second(10).places(50));
        let limit = RateLimitLayer::builder()
            .policy(queue.key(key::global()))
            .store(MemoryStore::new().clock(TokioClock::new()));
        let timeout = TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, patience);
        let app = hello().layer(limit.build().unwrap()).layer(timeout);
        for _ in 0..200 {
            tokio::spawn(app.clone().oneshot(Request::new(Body::empty())));
            sleep(Duration::from_millis(50)).await;
        }
    };
    Log::of(|| runtime.block_on(scene)).1
}

#[test]
fn a_timeout_outside_that_is_shorter_than_the_longest_wait_is_warned_of_once() {
    let lines = logged_of_a_queue_under("in time", Duration::from_secs(6));
    assert!(lines.is_empty(), "{lines:?}");
    let lines = logged_of_a_queue_under("too late", Duration::from_millis(700));
    assert_warns_once(&lines, "TRL014", r#"policy "too late""#);
}

#[test]
fn a_response_that_does_not_tell_its_cost_is_warned_of() {
    let untold = Policy::new("cost that is untold", FixedWindow::per_hour(100))
        .key(key::global())
        .settle(Settle::from_header("x-cost"));
    let layer = RateLimitLayer::builder().policy(untold).build().unwrap();
    let app = |status: StatusCode, cost: &'static str| -> Router {
        let answer = move || async move { (status, [("x-cost", cost)], "hello") };
        Router::new().route("/", get(answer)).layer(layer.clone())
    };
    let send = |app: Router| {
        let response = block_on(app.oneshot(Request::new(Body::empty()))).unwrap();
        block_on(response.into_body().collect()).unwrap();
    };
    let ((), lines) = Log::of(|| {
        send(app(StatusCode::OK, "3"));
        send(app(StatusCode::NOT_FOUND, "none"));
    });
    assert!(lines.is_empty(), "{lines:?}");
    let ((), lines) = Log::of(|| (0..3).for_each(|_| send(app(StatusCode::OK, "none"))));
    assert_warns_once(&lines, "TRL025", "policy \"cost that is untold\"");
}

#[test]
fn a_usage_that_cannot_be_read_is_warned_of() {
    let unread = Policy::new("usage that is unread", FixedWindow::per_hour(100))
        .key(key::global())
        .settle(tower_ratelimit::usage::openai());
    let layer = RateLimitLayer::builder().policy(unread).build().unwrap();
    let send = |body: &'static str| {
        let answer = move || async move { ([("content-type", "application/json")], body) };
        let app: Router = Router::new().route("/", get(answer)).layer(layer.clone());
        let response = block_on(app.oneshot(Request::new(Body::empty()))).unwrap();
        block_on(response.into_body().collect()).unwrap();
    };
    let ((), lines) = Log::of(|| send(r#"{"usage":{"total_tokens":1}}"#));
    assert!(lines.is_empty(), "{lines:?}");
    let ((), lines) = Log::of(|| (0..3).for_each(|_| send("{}")));
    assert_warns_once(&lines, "TRL038", "policy \"usage that is unread\"");
}

/// A service may name any number of models. The first without a price is told.
#[test]
fn a_model_without_a_price_is_warned_of_by_its_name() {
    use tower_ratelimit::usage::{self, Money, Price, Prices};
    let price = Price::new(Money::whole(1), Money::whole(2));
    let prices = Prices::new([("priced", price)]).unwrap();
    let send = |prices: &Prices, body: &'static str| {
        let spend = Policy::new("spend", FixedWindow::per_hour(100))
            .key(key::global())
            .settle(usage::openai().priced(prices));
        let layer = RateLimitLayer::builder().policy(spend).build().unwrap();
        let answer = move || async move { ([("content-type", "application/json")], body) };
        let app: Router = Router::new().route("/", get(answer)).layer(layer);
        let response = block_on(app.oneshot(Request::new(Body::empty()))).unwrap();
        block_on(response.into_body().collect()).unwrap();
    };
    let first = r#"{"model":"unpriced\n1","usage":{"total_tokens":1}}"#;
    let second = r#"{"model":"unpriced 2","usage":{"total_tokens":1}}"#;
    let known = r#"{"model":"priced","usage":{"total_tokens":1}}"#;
    let all = prices.clone().other(price);
    let ((), lines) = Log::of(|| {
        send(&prices, known);
        send(&all, first);
    });
    assert!(lines.is_empty(), "{lines:?}");
    let ((), lines) = Log::of(|| {
        for body in [first, second, first] {
            send(&prices, body);
        }
    });
    assert_warns_once(&lines, "TRL040", "model \"unpriced\\n1\"");
}
