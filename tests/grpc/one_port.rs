//! axum and tonic in one server, with one budget.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;
use tonic::service::Routes;
use tonic_types::StatusExt;
use tower_ratelimit::{FixedWindow, Policy, RateLimitLayer, key};

use crate::echo::{Echo, Running, still};

/// Sends `GET /`, and returns the head of the response.
async fn page(server: &Running) -> String {
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let request = b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
    socket.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

/// Three a day for each address, HTTP requests and calls together.
async fn both() -> Running {
    let (_, store) = still();
    let address = Policy::new("address", FixedWindow::per_day(3)).key(key::client_ip());
    let limit = RateLimitLayer::builder().policy(address).store(store);
    let app: Router = Routes::new(Echo)
        .into_axum_router()
        .route("/", get(|| async { "hello" }))
        .layer(limit.build().unwrap());
    Running::start(|listener| async move {
        let app = app.into_make_service_with_connect_info::<SocketAddr>();
        axum::serve(listener, app).await.unwrap();
    })
    .await
}

#[tokio::test]
async fn pages_and_calls_share_a_budget_and_each_is_refused_in_its_own_language() {
    let server = both().await;
    let mut client = server.client().await;
    assert!(page(&server).await.starts_with("HTTP/1.1 200"));
    assert_eq!(client.say("a").await.unwrap(), "a");
    assert!(
        page(&server)
            .await
            .contains("\r\nratelimit: \"address\";r=0;")
    );

    let refused = page(&server).await;
    assert!(refused.starts_with("HTTP/1.1 429"), "{refused}");
    assert!(refused.contains("\r\ncontent-type: application/problem+json\r\n"));
    assert!(!refused.contains("grpc-"), "{refused}");

    let refused = client.say("a").await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.get_details_retry_info().is_some());
}
