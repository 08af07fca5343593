//! Refusals for reasons other than a policy's limit.

use http::StatusCode;
use tonic::{Code, Status};
use tonic_types::StatusExt;
use tower_ratelimit::__internal::Sealed;
use tower_ratelimit::decision::Outcomes;
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::policy::OnMissingKey;
use tower_ratelimit::response::Refusal;
use tower_ratelimit::store::{Backend, Charge, Charged, Store, Wanted};
use tower_ratelimit::{
    ConfigError, FixedWindow, LeakyQueue, Policy, RateLimitLayer, StoreError, key,
};

use crate::echo::{Running, answered, global, post};

/// A service that never answers in time.
#[derive(Clone, Copy, Debug)]
struct Broken;

impl Sealed for Broken {}

impl Store for Broken {
    type Backend = Self;

    fn open(&self, _: &[tower_ratelimit::policy::Rule]) -> Result<Self, ConfigError> {
        Ok(*self)
    }
}

impl Backend for Broken {
    fn charge(&self, _: &[Charge], _: Wanted, _: &mut Outcomes) -> Charged {
        let failed = StoreError::new(StoreErrorKind::Unavailable);
        Charged::later(async { Err(failed.caused_by("redis://10.0.0.1: no route")) })
    }
}

#[tokio::test]
async fn a_store_that_fails_is_unavailable_and_never_the_clients_fault() {
    let layer = RateLimitLayer::builder()
        .policy(global("calls", FixedWindow::per_day(1)))
        .store(Broken)
        .build()
        .unwrap();
    let server = Running::echo(layer).await;
    let refused = server.client().await.say("a").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert_eq!(refused.message(), "the rate limiter is unavailable");
    let wait = refused.get_details_retry_info().unwrap().retry_delay;
    assert_eq!(wait, Some(std::time::Duration::from_secs(5)));
    assert!(refused.get_details_quota_failure().is_none());
    assert_eq!(refused.metadata().get("retry-after").unwrap(), "5");
    assert_eq!(refused.metadata().get("cache-control").unwrap(), "no-store");
    assert!(refused.metadata().get("ratelimit").is_none());
}

#[tokio::test]
async fn a_client_on_the_deny_list_gets_permission_denied() {
    let layer = RateLimitLayer::builder()
        .policy(global("calls", FixedWindow::per_day(1)))
        .deny(key::grpc_method().one_of(["test.Echo/Unary"]))
        .build()
        .unwrap();
    let server = Running::echo(layer.clone()).await;
    let refused = server.client().await.say("a").await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert_eq!(refused.message(), "Forbidden");
    assert_eq!(refused.details(), b"");

    let refused = answered(&layer, post("application/grpc-web+proto")).await;
    assert_eq!(refused.status(), StatusCode::OK);
    assert_eq!(
        refused.headers()["content-type"],
        "application/grpc-web+proto"
    );
    assert!(matches!(
        refused.extensions().get(),
        Some(Refusal::Forbidden)
    ));
}

/// Returns the answer to a call without a key, if its policy refuses such calls with this status.
async fn keyless(status: StatusCode) -> Status {
    let token = Policy::new("token", FixedWindow::per_day(1))
        .key(key::metadata("token"))
        .on_missing_key(OnMissingKey::Refuse(status));
    let layer = RateLimitLayer::builder().policy(token).build().unwrap();
    let refused = answered(&layer, post("application/grpc")).await;
    assert_eq!(refused.status(), StatusCode::OK);
    assert_eq!(refused.body(), "");
    assert!(matches!(
        refused.extensions().get(),
        Some(Refusal::MissingKey(_))
    ));
    Status::from_header_map(refused.headers()).unwrap()
}

#[tokio::test]
async fn each_status_of_a_missing_key_has_its_code() {
    for (status, code) in [
        (400, Code::InvalidArgument),
        (401, Code::Unauthenticated),
        (402, Code::InvalidArgument),
        (403, Code::PermissionDenied),
        (404, Code::NotFound),
        (408, Code::InvalidArgument),
        (409, Code::Aborted),
        (412, Code::FailedPrecondition),
        (422, Code::InvalidArgument),
        (428, Code::FailedPrecondition),
        (429, Code::ResourceExhausted),
        (499, Code::Cancelled),
        (500, Code::Internal),
        (501, Code::Unimplemented),
        (502, Code::Unavailable),
        (503, Code::Unavailable),
        (504, Code::DeadlineExceeded),
        (511, Code::Internal),
        (599, Code::Internal),
    ] {
        let refused = keyless(StatusCode::from_u16(status).unwrap()).await;
        assert_eq!(refused.code(), code, "{status}");
    }
    assert_eq!(
        keyless(StatusCode::UNAUTHORIZED).await.message(),
        "Unauthorized"
    );
}

#[tokio::test]
async fn a_key_that_the_server_does_not_provide_is_internal() {
    let by_address = Policy::new("address", FixedWindow::per_day(1)).key(key::peer_ip());
    let layer = RateLimitLayer::builder()
        .policy(by_address)
        .build()
        .unwrap();
    let refused = answered(&layer, post("application/grpc")).await;
    let status = Status::from_header_map(refused.headers()).unwrap();
    assert_eq!(status.code(), Code::Internal);
    assert_eq!(status.message(), "Internal Server Error");
}

#[test]
fn a_call_that_nothing_would_wake_is_internal() {
    use std::task::{Context, Poll, Waker};

    let layer = RateLimitLayer::new(key::global(), LeakyQueue::per_second(1).places(5));
    let mut codes = Vec::new();
    for _ in 0..2 {
        let asked = std::pin::pin!(answered(&layer, post("application/grpc")));
        match asked.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => codes.push(answer.headers().get("grpc-status").cloned()),
            Poll::Pending => panic!("there is no answer"),
        }
    }
    assert_eq!(codes, [None, Some("13".parse().unwrap())]);
}
