//! The options for refusals of calls.

use std::time::Duration;

use http::{Request, StatusCode};
use tonic::Status;
use tonic_types::StatusExt;
use tower_ratelimit::response::Grpc;
use tower_ratelimit::{AnchoredWindow, FixedWindow, RateLimitLayer, key};

use crate::echo::{answered, global, post, still};

async fn refused(grpc: Grpc, request: Request<String>) -> http::Response<String> {
    let nothing = global("calls", FixedWindow::per_day(0));
    let layer = RateLimitLayer::builder().policy(nothing).grpc(grpc);
    answered(&layer.build().unwrap(), request).await
}

#[tokio::test]
async fn forced_every_request_is_a_call() {
    for (request, content_type) in [
        (Request::new(String::new()), "application/grpc"),
        (post("application/json"), "application/grpc"),
        (
            post("application/grpc-web+proto"),
            "application/grpc-web+proto",
        ),
    ] {
        let refused = refused(Grpc::always(), request).await;
        assert_eq!(refused.status(), StatusCode::OK);
        assert_eq!(refused.headers()["grpc-status"], "8");
        assert_eq!(refused.headers()["content-type"], content_type);
    }
}

#[tokio::test]
async fn switched_off_no_request_is_a_call() {
    let refused = refused(Grpc::never(), post("application/grpc")).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(!refused.headers().contains_key("grpc-status"));
}

#[tokio::test]
async fn a_message_of_any_characters_arrives_as_it_is() {
    let message = "zu viele Aufrufe: 100 % voll\r\ngrpc-status: 0 \u{1f980}";
    let refused = refused(Grpc::detected().message(message), post("application/grpc")).await;
    let sent = refused.headers()["grpc-message"].to_str().unwrap();
    assert!(
        sent.bytes().all(|byte| (0x20..=0x7e).contains(&byte)),
        "{sent}"
    );
    let status = Status::from_header_map(refused.headers()).unwrap();
    assert_eq!(status.message(), message);
    assert!(status.get_error_details().retry_info().is_none());
}

#[test]
fn a_message_that_is_too_long_is_refused() {
    let build = |length| {
        let calls = global("calls", FixedWindow::per_day(1));
        let grpc = Grpc::detected().message("a".repeat(length));
        RateLimitLayer::builder().policy(calls).grpc(grpc).build()
    };
    assert!(build(512).is_ok());
    let error = build(513).unwrap_err();
    assert_eq!(error.field(), "message");
}

/// Returns the answer to a call that would have to wait for ten seconds.
async fn told(grpc: Grpc, jitter: Duration) -> http::Response<String> {
    let (_, store) = still();
    let window = AnchoredWindow::new(1, Duration::from_secs(10)).unwrap();
    let layer = RateLimitLayer::builder()
        .policy(global("calls", window))
        .store(store)
        .retry_jitter(jitter)
        .grpc(grpc)
        .build()
        .unwrap();
    answered(&layer, post("application/grpc")).await;
    answered(&layer, post("application/grpc")).await
}

#[tokio::test]
async fn pushback_is_sent_if_asked_for_and_never_before_the_wait() {
    let without = told(Grpc::detected(), Duration::ZERO).await;
    assert!(!without.headers().contains_key("grpc-retry-pushback-ms"));

    let pushback = |answer: http::Response<String>| -> i32 {
        let lines: Vec<_> = answer
            .headers()
            .get_all("grpc-retry-pushback-ms")
            .iter()
            .collect();
        let [line] = lines[..] else {
            panic!("{lines:?}")
        };
        line.to_str().unwrap().parse().unwrap()
    };
    let exact = Grpc::detected().retry_pushback(Duration::ZERO);
    assert_eq!(pushback(told(exact, Duration::ZERO).await), 10_000);
    let spread = Grpc::detected().retry_pushback(Duration::from_millis(500));
    let spread = pushback(told(spread, Duration::ZERO).await);
    assert!((10_000..=10_500).contains(&spread), "{spread}");
    let longest = Grpc::detected().retry_pushback(Duration::MAX);
    assert!(pushback(told(longest, Duration::ZERO).await) >= 10_000);

    // The limit is 0: no wait helps.
    let never = Grpc::detected().retry_pushback(Duration::ZERO);
    assert_eq!(pushback(refused(never, post("application/grpc")).await), -1);
}

#[tokio::test]
async fn the_jitter_of_retry_after_is_that_of_retry_info() {
    let most = 1_000_000;
    let refused = told(Grpc::detected(), Duration::from_secs(most)).await;
    let status = Status::from_header_map(refused.headers()).unwrap();
    let wait = status
        .get_details_retry_info()
        .unwrap()
        .retry_delay
        .unwrap();
    let seconds: u64 = refused.headers()["retry-after"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(wait, Duration::from_secs(seconds));
    assert!((10..=most + 10).contains(&seconds), "{seconds}");
    // `t` is the wait without jitter.
    assert_eq!(refused.headers()["ratelimit"], "\"calls\";r=0;t=10");

    let longest = told(Grpc::detected(), Duration::from_secs(u64::MAX)).await;
    let status = Status::from_header_map(longest.headers()).unwrap();
    let wait = status
        .get_details_retry_info()
        .unwrap()
        .retry_delay
        .unwrap();
    assert!(wait <= Duration::from_secs(2_147_483_647));
}

#[tokio::test]
async fn a_long_subject_is_cut_between_two_characters() {
    let subject = |_: &key::Head<'_>, _: &str| Some("\u{20ac}".repeat(5_000));
    let refused = refused(Grpc::detected().subject(subject), post("application/grpc")).await;
    let status = Status::from_header_map(refused.headers()).unwrap();
    let quota = status.get_details_quota_failure().unwrap();
    assert_eq!(quota.violations[0].subject, "\u{20ac}".repeat(85));
}
