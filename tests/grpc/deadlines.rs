//! Calls with a deadline.

use std::time::Duration;

use tonic::{Code, Request};
use tonic_types::StatusExt;
use tower_ratelimit::policy::Http;
use tower_ratelimit::{AnchoredWindow, LeakyQueue, Policy, RateLimitLayer};

use crate::echo::{Running, UNARY, global, still};

/// A call that would be held for an hour, and whose caller waits for a minute.
async fn is_refused_at_once(patient: Policy<Http>) {
    let (_, store) = still();
    let layer = RateLimitLayer::builder().policy(patient).store(store);
    let server = Running::echo(layer.build().unwrap()).await;
    let mut client = server.client().await;
    assert!(client.say("a").await.is_ok());

    let mut request = Request::new("b".to_owned());
    request.set_timeout(Duration::from_secs(60));
    let refused = client.call(UNARY, request).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let wait = refused
        .get_details_retry_info()
        .unwrap()
        .retry_delay
        .unwrap();
    assert!(wait <= Duration::from_secs(3_600), "{wait:?}");
    assert!(wait >= Duration::from_secs(3_540), "{wait:?}");
    let quota = refused.get_details_quota_failure().unwrap();
    assert!(quota.violations[0].description.starts_with("held: "));
}

#[tokio::test]
async fn a_call_that_a_queue_would_hold_beyond_its_timeout_is_refused_at_once() {
    is_refused_at_once(global("held", LeakyQueue::per_hour(1).places(5))).await;
}

#[tokio::test]
async fn a_call_that_would_wait_beyond_its_timeout_is_refused_at_once() {
    let window = AnchoredWindow::per_hour(1);
    let held = global("held", window).wait_up_to(Duration::from_secs(7_200));
    is_refused_at_once(held).await;
}
