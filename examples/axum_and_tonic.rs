//! axum routes and gRPC calls on one port, with one budget. Each refusal has the form of its protocol.
//!
//! Run `cargo run --example axum_and_tonic --features tonic`. It prints commands to try. `ADDR` is the address.

use std::error::Error;
use std::net::SocketAddr;

use axum::{Router, routing::get};
use tonic::service::Routes;
use tower_ratelimit::{RateLimitLayer, TokenBucket, key};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();

    let (_reporter, health) = tonic_health::server::health_reporter();

    // One layer for both. It detects a gRPC call by the content type of the request.
    let limit = RateLimitLayer::new(key::client_ip(), TokenBucket::per_minute(6).burst(3));
    let app: Router = Routes::new(health)
        .into_axum_router()
        .route("/", get(|| async { "hello\n" }))
        .layer(limit);

    let address = std::env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".into());
    let listener = tokio::net::TcpListener::bind(&address)
        .await
        .map_err(|error| format!("cannot listen on ADDR={address}: {error}"))?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}: 3 requests at once for each client, pages and calls");
    println!();
    println!("  a page: curl -i http://{address}/");
    println!("  a call: grpcurl -plaintext {address} grpc.health.v1.Health/Check");

    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}
