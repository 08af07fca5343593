//! The details of a refusal, byte by byte.

use std::time::Duration;

use http::{Request, StatusCode};
use tonic::{Code, Status};
use tonic_types::StatusExt;
use tower_ratelimit::response::{Dialect, Grpc, Refusal, RefusalBody};
use tower_ratelimit::{AnchoredWindow, FixedWindow, Policy, RateLimitLayer, SlidingLog, key};

use crate::echo::{answered, global, post, still};

const G1: &str = "CAgSE3JhdGUgbGltaXQgZXhjZWVkZWQaNgoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIKCggIARCAyrXuAQ";
const G7: &str = "CAgSE3JhdGUgbGltaXQgZXhjZWVkZWQaNgoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIKCggIARCAyrXuARphCit0eXBlLmdvb2dsZWFwaXMuY29tL2dvb2dsZS5ycGMuUXVvdGFGYWlsdXJlEjIKMAoSY2xpZW50OjIwMy4wLjExMy43EhpidXJzdDogMTAgcmVxdWVzdHMgcGVyIDEgcw";

/// Ten a second, of which a key is blocked for a second and a half.
async fn blocked(grpc: Grpc) -> http::Response<String> {
    let (_, store) = still();
    let burst = Policy::new("burst", FixedWindow::per_second(10)).key(key::metadata("who"));
    let layer = RateLimitLayer::builder()
        .policy(burst)
        .store(store)
        .grpc(grpc)
        .build()
        .unwrap();
    let limiter = layer.limiter();
    let block = limiter.block("203.0.113.7", Duration::from_millis(1_500));
    block.await.unwrap();
    let mut request = post("application/grpc");
    let who = "203.0.113.7".parse().unwrap();
    request.headers_mut().insert("who", who);
    answered(&layer, request).await
}

#[tokio::test]
async fn retry_info_alone() {
    let refused = blocked(Grpc::detected().without_quota_failure()).await;
    assert_eq!(refused.status(), StatusCode::OK);
    assert_eq!(refused.headers()["grpc-status"], "8");
    assert_eq!(refused.headers()["grpc-message"], "rate%20limit%20exceeded");
    assert_eq!(refused.headers()["grpc-status-details-bin"], G1);
    assert_eq!(refused.headers()["retry-after"], "2");
    assert_eq!(refused.headers()["cache-control"], "no-store");
    assert_eq!(refused.body(), "");
}

#[tokio::test]
async fn retry_info_and_quota_failure_with_the_users_subject() {
    let subject = |head: &key::Head<'_>, policy: &str| {
        assert_eq!(policy, "burst");
        Some(format!("client:{}", head.header("who")?))
    };
    let refused = blocked(Grpc::detected().subject(subject)).await;
    assert_eq!(refused.headers()["grpc-status-details-bin"], G7);
}

#[tokio::test]
async fn unless_it_is_given_no_subject_is_told() {
    let refused = blocked(Grpc::detected()).await;
    let status = Status::from_header_map(refused.headers()).unwrap();
    let quota = status.get_details_quota_failure().unwrap();
    assert_eq!(quota.violations.len(), 1);
    assert_eq!(quota.violations[0].subject, "");
    assert_eq!(
        quota.violations[0].description,
        "burst: 10 requests per 1 s"
    );
}

/// Returns the status of the second of two calls, and its response.
async fn second(layer: &RateLimitLayer) -> (Status, http::Response<String>) {
    let first = answered(layer, post("application/grpc")).await;
    assert_eq!(first.body(), "hello");
    let refused = answered(layer, post("application/grpc")).await;
    (Status::from_header_map(refused.headers()).unwrap(), refused)
}

#[tokio::test]
async fn a_wait_is_told_to_the_microsecond() {
    let (clock, store) = still();
    let window = AnchoredWindow::new(1, Duration::from_millis(2_500)).unwrap();
    let layer = RateLimitLayer::builder()
        .policy(global("calls", window))
        .store(store)
        .build()
        .unwrap();
    answered(&layer, post("application/grpc")).await;
    clock.advance(Duration::from_micros(1_234_567));
    let refused = answered(&layer, post("application/grpc")).await;
    let status = Status::from_header_map(refused.headers()).unwrap();
    let retry = status.get_details_retry_info().unwrap();
    assert_eq!(retry.retry_delay, Some(Duration::from_micros(1_265_433)));
    assert_eq!(refused.headers()["retry-after"], "2");
    let quota = status.get_details_quota_failure().unwrap();
    assert_eq!(
        quota.violations[0].description,
        "calls: 1 requests per 2500 ms"
    );
}

/// February has 28 days in 2026, and the longest month has 31.
#[tokio::test]
async fn the_length_of_the_present_month_is_told() {
    let (clock, store) = still();
    // 2026-02-10.
    clock.set_micros(tower_ratelimit::Micros::new(1_770_681_600_000_000));
    let layer = RateLimitLayer::builder()
        .policy(global("monthly", FixedWindow::per_calendar_month(1)))
        .store(store)
        .build()
        .unwrap();
    let (status, _) = second(&layer).await;
    let quota = status.get_details_quota_failure().unwrap();
    assert_eq!(
        quota.violations[0].description,
        "monthly: 1 requests per 2419200 s"
    );
}

#[tokio::test]
async fn where_no_wait_can_help_there_is_no_retry_info() {
    let costly = global("calls", FixedWindow::per_hour(10)).cost(|_| 50);
    let layer = RateLimitLayer::builder().policy(costly).build().unwrap();
    let refused = answered(&layer, post("application/grpc")).await;
    let status = Status::from_header_map(refused.headers()).unwrap();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.get_details_retry_info().is_none());
    assert!(status.get_details_quota_failure().is_some());
    assert!(!refused.headers().contains_key("retry-after"));
}

#[tokio::test]
async fn each_policy_that_denied_is_named_unless_it_is_unannounced_and_no_other() {
    let (_, store) = still();
    let layer = RateLimitLayer::builder()
        .policy(global("hour", FixedWindow::per_hour(1)))
        .policy(global("loose", FixedWindow::per_hour(100)))
        .policy(global("flood", FixedWindow::per_minute(1)).unannounced())
        .policy(global(
            "none",
            SlidingLog::up_to(1, "1/day".parse().unwrap()).unwrap(),
        ))
        .store(store)
        .build()
        .unwrap();
    let (status, refused) = second(&layer).await;
    let violations = status.get_details_quota_failure().unwrap().violations;
    let told: Vec<_> = violations
        .iter()
        .map(|told| told.description.as_str())
        .collect();
    assert_eq!(
        told,
        [
            "hour: 1 requests per 3600 s",
            "none: 1 requests per 86400 s"
        ]
    );
    assert!(matches!(
        refused.extensions().get(),
        Some(Refusal::Denied(decision)) if !decision.is_allowed()
    ));
}

#[tokio::test]
async fn a_layer_without_headers_names_its_policies_and_tells_no_limit() {
    let layer = RateLimitLayer::builder()
        .policy(global("calls", FixedWindow::per_day(1)))
        .without_headers()
        .build()
        .unwrap();
    let (status, refused) = second(&layer).await;
    let quota = status.get_details_quota_failure().unwrap();
    assert_eq!(quota.violations[0].description, "calls");
    assert!(status.get_details_retry_info().is_some());
    assert!(refused.headers().contains_key("retry-after"));
    assert!(!refused.headers().contains_key("ratelimit"));
    assert!(!refused.headers().contains_key("ratelimit-policy"));
}

#[tokio::test]
async fn every_dialect_goes_into_the_metadata_and_bodies_and_statuses_of_http_do_not() {
    let body = RefusalBody::custom(http::HeaderValue::from_static("text/html"), |_| -> String {
        panic!("asked for the body of a call")
    });
    let layer = RateLimitLayer::builder()
        .policy(global("calls", FixedWindow::per_day(1)))
        .dialects([Dialect::Draft11, Dialect::GitHub])
        .refusal_status(StatusCode::SERVICE_UNAVAILABLE)
        .refusal_body(body)
        .build()
        .unwrap();
    let (status, refused) = second(&layer).await;
    assert_eq!(refused.status(), StatusCode::OK);
    assert_eq!(refused.headers()["content-type"], "application/grpc");
    assert_eq!(refused.body(), "");
    assert_eq!(status.code(), Code::ResourceExhausted);
    let metadata = status.metadata();
    assert_eq!(metadata.get("x-ratelimit-remaining").unwrap(), "0");
    assert_eq!(metadata.get("x-ratelimit-resource").unwrap(), "calls");
    assert!(metadata.get("ratelimit").is_some());
}

#[tokio::test]
async fn on_the_same_layer_http_is_answered_as_http() {
    let layer = RateLimitLayer::builder()
        .policy(global("calls", FixedWindow::per_day(0)))
        .build()
        .unwrap();
    for request in [
        Request::new(String::new()),
        post("application/json"),
        post("application/grpcx"),
    ] {
        let refused = answered(&layer, request).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(
            refused.headers()["content-type"],
            "application/problem+json"
        );
        assert!(!refused.headers().contains_key("grpc-status"));
        assert!(refused.body().contains("quota-exceeded"));
    }
}
