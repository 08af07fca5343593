//! A reset and an HTTP status have no details. A client has to tell a limit from a lost connection or a large message
//! by the code alone.

use axum::Router;
use h2::Reason;
use http::{HeaderValue, StatusCode};
use tonic::{Code, Status};
use tonic_types::StatusExt;
use tower_ratelimit::response::{Grpc, RefusalBody};
use tower_ratelimit::{FixedWindow, RateLimitLayer};

use crate::echo::{Running, global};

/// Returns a server that resets each stream with this code.
async fn resetting(reason: Reason) -> Running {
    Running::start(move |listener| async move {
        while let Ok((socket, _)) = listener.accept().await {
            let mut connection = h2::server::handshake(socket).await.unwrap();
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                respond.send_reset(reason);
            }
        }
    })
    .await
}

/// Returns the status that a client gets from a layer that lets no call pass.
async fn refused(grpc: Grpc, status: StatusCode, body: RefusalBody) -> Status {
    let nothing = global("calls", FixedWindow::per_day(0));
    let layer = RateLimitLayer::builder().policy(nothing).grpc(grpc);
    let layer = layer.refusal_status(status).refusal_body(body);
    let server = Running::echo(layer.build().unwrap()).await;
    server.client().await.say("a").await.unwrap_err()
}

#[tokio::test]
async fn a_stream_that_is_reset_has_the_code_of_a_refusal_and_none_of_its_details() {
    for (reason, code) in [
        (Reason::ENHANCE_YOUR_CALM, Code::ResourceExhausted),
        // The call was not processed.
        (Reason::REFUSED_STREAM, Code::Unavailable),
    ] {
        let server = resetting(reason).await;
        let mut client = server.client().await;
        // The second call uses the same connection.
        for _ in 0..2 {
            let reset = client.say("a").await.unwrap_err();
            assert_eq!(reset.code(), code, "{reset:?}");
            assert_eq!(reset.details(), b"");
        }
    }
    let too_many = StatusCode::TOO_MANY_REQUESTS;
    let refused = refused(Grpc::detected(), too_many, RefusalBody::Problem).await;
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.get_details_quota_failure().is_some());
}

#[tokio::test]
async fn a_status_of_http_is_for_clients_of_grpc_to_read_only_if_calls_are_not_told_apart() {
    let empty = RefusalBody::custom(HeaderValue::from_static("text/plain"), |_| "");
    for status in [
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::SERVICE_UNAVAILABLE,
    ] {
        let told = refused(Grpc::never(), status, empty.clone()).await;
        assert_eq!(told.code(), Code::Unavailable, "{status}");
        assert_eq!(told.details(), b"");
        // tonic reads the problem as a message, and reports a malformed one.
        let told = refused(Grpc::never(), status, RefusalBody::Problem).await;
        assert_eq!(told.code(), Code::Internal, "{status}");

        let told = refused(Grpc::detected(), status, RefusalBody::Problem).await;
        assert_eq!(told.code(), Code::ResourceExhausted, "{status}");
    }
}

#[tokio::test]
async fn a_status_of_grpc_counts_more_than_that_of_http() {
    let both = || async { (StatusCode::TOO_MANY_REQUESTS, [("grpc-status", "8")]) };
    let app: Router = Router::new().fallback(both);
    let serve = |listener| async { axum::serve(listener, app).await.unwrap() };
    let server = Running::start(serve).await;
    let refused = server.client().await.say("a").await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
}
