//! Refusals of gRPC, made by tonic.

use std::time::Duration;

use http::{Request, Response};
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};
use tower::Layer;
use tower_ratelimit::client::ClientThrottleLayer;

use crate::client::server::{Scripted, answer, call, client_of};

/// Returns the head of a response that tonic makes of a status.
fn failed(status: Status) -> Response<()> {
    status.into_http::<()>().map(|()| ())
}

fn refused(code: Code, wait: Option<Duration>) -> Response<()> {
    let details = ErrorDetails::with_retry_info(wait);
    failed(Status::with_error_details(code, "too many", details))
}

async fn held_by(response: Response<()>) -> Duration {
    let client = client_of(&Scripted::new([response]));
    let start = Instant::now();
    for _ in 0..2 {
        assert_eq!(call(&client, "/a.Service/Method").await.unwrap(), 200);
    }
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn retry_info_is_waited_for_to_the_millisecond() {
    let wait = Duration::from_millis(1_040);
    assert_eq!(
        held_by(refused(Code::ResourceExhausted, Some(wait))).await,
        wait
    );
    assert_eq!(held_by(refused(Code::Unavailable, Some(wait))).await, wait);
    // Neither status says that a limit was reached.
    assert_eq!(
        held_by(refused(Code::ResourceExhausted, None)).await,
        Duration::ZERO
    );
    assert_eq!(
        held_by(refused(Code::NotFound, Some(wait))).await,
        Duration::ZERO
    );
}

#[tokio::test(start_paused = true)]
async fn details_that_are_malformed_are_ignored() {
    // The longest delay that can be told, the least number of seconds, and what is no base64.
    let forever = refused(Code::ResourceExhausted, Some(Duration::MAX));
    assert_eq!(held_by(forever).await, Duration::from_secs(3_600));
    for details in [
        "!",
        "=",
        "AAAA",
        "CAgSAA",
        "====",
        "gICA",
        &"A".repeat(5_000),
        &least_seconds(),
    ] {
        let fields = [("grpc-status", "8"), ("grpc-status-details-bin", details)];
        assert_eq!(
            held_by(answer(200, &fields)).await,
            Duration::ZERO,
            "{details}"
        );
    }
}

/// Returns a `RetryInfo` of the least number of seconds that its type holds.
fn least_seconds() -> String {
    use base64::Engine as _;
    let delay: &[u8] = &[
        0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01,
    ];
    let field =
        |tag: u8, value: &[u8]| [&[tag, u8::try_from(value.len()).unwrap()], value].concat();
    let info = field(0x0a, delay);
    let name = field(0x0a, b"type.googleapis.com/google.rpc.RetryInfo");
    let detail = [name, field(0x12, &info)].concat();
    base64::engine::general_purpose::STANDARD.encode(field(0x1a, &detail))
}

#[tokio::test(start_paused = true)]
async fn padded_details_are_read_too() {
    use base64::Engine as _;
    let refused = refused(Code::ResourceExhausted, Some(Duration::from_secs(3)));
    let details = refused.headers()["grpc-status-details-bin"]
        .to_str()
        .unwrap();
    let base64 = base64::engine::general_purpose::STANDARD_NO_PAD;
    let details = base64.decode(details).unwrap();
    let padded = base64::engine::general_purpose::STANDARD.encode(details);
    assert!(padded.ends_with('='), "it would not be another form");
    let fields = [("grpc-status", "8"), ("grpc-status-details-bin", &padded)];
    assert_eq!(held_by(answer(200, &fields)).await, Duration::from_secs(3));
}

/// What a generated client is made with.
#[tokio::test]
async fn a_channel_can_be_wrapped() {
    fn serves_grpc<S>(_: &S)
    where
        S: tonic::client::GrpcService<tonic::body::Body>
            + tower::Service<Request<tonic::body::Body>>,
        <S as tower::Service<Request<tonic::body::Body>>>::Future: Send,
    {
    }
    let channel = Channel::from_static("http://127.0.0.1:1").connect_lazy();
    serves_grpc(&ClientThrottleLayer::new().layer(channel));
}
