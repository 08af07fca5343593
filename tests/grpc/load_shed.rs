//! The layer beside tower's `LoadShed`, whose error tonic converts into a status.

use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Code, Status};
use tonic_types::StatusExt;
use tower::ServiceBuilder;
use tower_ratelimit::{FixedWindow, RateLimitLayer};

use crate::echo::{Echo, Running, global, still};

fn two_a_day() -> RateLimitLayer {
    let (_, store) = still();
    let calls = global("calls", FixedWindow::per_day(2));
    let layer = RateLimitLayer::builder().policy(calls).store(store);
    layer.build().unwrap()
}

/// Returns whether the call was shed, which only the message shows.
fn is_shed(status: &Status) -> bool {
    assert_eq!(status.code(), Code::ResourceExhausted);
    let is_shed = status.message() == "Too many active requests for the connection";
    assert_eq!(status.get_details_retry_info().is_none(), is_shed);
    assert_eq!(status.metadata().get("ratelimit").is_none(), is_shed);
    assert_eq!(status.metadata().get("retry-after").is_none(), is_shed);
    is_shed
}

#[tokio::test]
async fn a_request_shed_inside_of_the_layer_counts() {
    let server = Running::start(|listener| async move {
        // Never ready, so that each call is shed.
        let layers = ServiceBuilder::new()
            .layer(two_a_day())
            .load_shed()
            .concurrency_limit(0);
        let server = Server::builder().layer(layers).add_service(Echo);
        let incoming = TcpListenerStream::new(listener);
        server.serve_with_incoming(incoming).await.unwrap();
    })
    .await;
    let mut client = server.client().await;
    let mut shed = Vec::new();
    for _ in 0..4 {
        shed.push(is_shed(&client.say("a").await.unwrap_err()));
    }
    assert_eq!(shed, [true, true, false, false]);
}

#[tokio::test]
async fn a_request_shed_before_the_layer_costs_nothing() {
    let limit = two_a_day();
    let layer = limit.clone();
    let server = Running::start(|listener| async move {
        let server = Server::builder()
            .load_shed(true)
            .concurrency_limit_per_connection(0);
        let server = server.layer(layer).add_service(Echo);
        let incoming = TcpListenerStream::new(listener);
        server.serve_with_incoming(incoming).await.unwrap();
    })
    .await;
    let mut client = server.client().await;
    for _ in 0..4 {
        assert!(is_shed(&client.say("a").await.unwrap_err()));
    }

    // The same budget in a server where nothing is shed.
    let server = Running::echo(limit).await;
    let mut client = server.client().await;
    for _ in 0..2 {
        assert_eq!(client.say("a").await.unwrap(), "a");
    }
    assert!(!is_shed(&client.say("a").await.unwrap_err()));
}
