//! A policy that decides, and that clients are not told of.

use http::StatusCode;
use tower_ratelimit::key::Secret;
use tower_ratelimit::middleware::RateLimitLayerBuilder;
use tower_ratelimit::policy::Http;
use tower_ratelimit::response::{Dialect, Refusal, RefusalBody, Reset};
use tower_ratelimit::{FixedWindow, ManualClock, MemoryStore, Policy, RateLimitLayer};

use crate::exchange::{Behind, Hello, ask, get, global};

/// A quota of nine a day that clients are told of, and two a minute that they are not.
fn quota_and_flood() -> RateLimitLayerBuilder {
    RateLimitLayer::builder()
        .policy(global("daily", FixedWindow::per_day(9)))
        .policy(global("flood", FixedWindow::per_minute(2)).unannounced())
        .store(MemoryStore::new().clock(ManualClock::new()))
}

#[test]
fn it_refuses_with_the_true_wait_and_no_response_names_it() {
    let service = Hello::behind(&quota_and_flood().build().unwrap());
    for left in [8, 7] {
        let answer = ask(&service, get());
        assert_eq!(answer.status, StatusCode::OK);
        let policies = answer.field("ratelimit-policy").unwrap();
        assert_eq!(policies, r#""daily";q=9;w=86400"#);
        let limits = answer.field("ratelimit").unwrap();
        assert_eq!(limits, format!(r#""daily";r={left};t=86400"#));
    }
    let answer = ask(&service, get());
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.field("retry-after"), Some("60"));
    assert_eq!(answer.field("ratelimit"), None);
    assert_eq!(answer.field("ratelimit-policy"), None);
    let body = answer.text();
    assert!(body.ends_with("Retry after 60 seconds.\"}"), "{body}");
    let Some(Refusal::Denied(decision)) = answer.refusal else {
        panic!("{:?}", answer.refusal);
    };
    assert_eq!(decision.binding().unwrap().0, "flood");
}

#[test]
fn a_refusal_by_it_and_by_others_names_the_others() {
    let layer = RateLimitLayer::builder()
        .policy(global("flood", FixedWindow::per_minute(1)).unannounced())
        .policy(global("hourly", FixedWindow::per_hour(1)))
        .policy(global("daily", FixedWindow::per_day(1)))
        .refusal_body(RefusalBody::BareProblem)
        .store(MemoryStore::new().clock(ManualClock::new()));
    let service = Hello::behind(&layer.build().unwrap());
    assert_eq!(ask(&service, get()).status, StatusCode::OK);
    let answer = ask(&service, get());
    assert!(
        answer
            .text()
            .ends_with(r#""status":429,"violated-policies":["hourly","daily"]}"#)
    );
    assert_eq!(
        answer.field("ratelimit"),
        Some(r#""hourly";r=0;t=3600, "daily";r=0;t=86400"#)
    );
}

#[test]
fn dialects_with_room_for_one_policy_tell_the_one_that_binds_of_those_they_may() {
    let dialects = [Dialect::Draft06, Dialect::XRateLimit(Reset::DeltaSeconds)];
    let layer = quota_and_flood().dialects(dialects).build().unwrap();
    let service = Hello::behind(&layer);
    let answer = ask(&service, get());
    assert_eq!(answer.field("ratelimit-limit"), Some("9"));
    assert_eq!(answer.field("ratelimit-policy"), Some("9;w=86400"));
    assert_eq!(answer.field("x-ratelimit-remaining"), Some("8"));
    ask(&service, get());
    let answer = ask(&service, get());
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.field("x-ratelimit-limit"), Some("9"));
    assert_eq!(answer.field("x-ratelimit-remaining"), Some("7"));
    assert_eq!(answer.field("ratelimit-policy"), Some("9;w=86400"));
}

#[test]
fn a_layer_of_such_policies_alone_sends_no_limits() {
    let hidden = global("flood", FixedWindow::per_minute(1)).unannounced();
    let layer = RateLimitLayer::builder().policy(hidden);
    let layer = layer.store(MemoryStore::new().clock(ManualClock::new()));
    let service = Hello::behind(&layer.build().unwrap());
    ask(&service, get()).assert_no_fields();
    let answer = ask(&service, get());
    assert_eq!(answer.field("ratelimit"), None);
    assert_eq!(answer.field("ratelimit-policy"), None);
    assert_eq!(answer.field("retry-after"), Some("60"));
}

#[test]
fn partition_keys_stay_with_their_policies() {
    let secret = Secret::new(b"0123456789abcdef0123456789abcdef").unwrap();
    let told = || global("daily", FixedWindow::per_day(9));
    let with = |policies: Vec<Policy<Http>>| {
        let layer = RateLimitLayer::builder()
            .policies(policies)
            .partition_keys(&secret)
            .store(MemoryStore::new().clock(ManualClock::new()));
        let answer = ask(&Hello::behind(&layer.build().unwrap()), get());
        answer.field("ratelimit").unwrap().to_owned()
    };
    let hidden = global("flood", FixedWindow::per_minute(2)).unannounced();
    let alone = with(vec![told()]);
    assert!(alone.contains(";pk=:"), "{alone}");
    assert_eq!(with(vec![hidden, told()]), alone);
}
