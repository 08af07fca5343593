//! A tonic server in which each peer has five calls a second, and a burst of five.
//!
//! Run `cargo run --example grpc --features tonic`. It serves the standard health service over gRPC, and over
//! gRPC-Web on HTTP/1.1. With grpcurl, try six times at once: `grpcurl -plaintext 127.0.0.1:50051
//! grpc.health.v1.Health/Check`. `ADDR` is the address.

use std::error::Error;

use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::transport::server::TcpConnectInfo;
use tonic_web::GrpcWebLayer;
use tower_ratelimit::response::Grpc;
use tower_ratelimit::{ConfigError, Policy, RateLimitLayer, TokenBucket, key};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();

    let (_reporter, health) = tonic_health::server::health_reporter();

    let address = std::env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:50051".into());
    let listener = TcpListener::bind(&address)
        .await
        .map_err(|error| format!("cannot listen on ADDR={address}: {error}"))?;
    println!(
        "listening on http://{}: 5 calls at once for each peer, and 5 a second",
        listener.local_addr()?
    );

    Server::builder()
        // gRPC-Web needs this, and gRPC does not.
        .accept_http1(true)
        .layer(limit()?)
        .layer(GrpcWebLayer::new())
        .add_service(health)
        .serve_with_incoming(TcpListenerStream::new(listener))
        .await?;
    Ok(())
}

fn limit() -> Result<RateLimitLayer, ConfigError> {
    // A client may learn its own limits.
    let grpc = Grpc::detected().subject(|head, _policy| {
        let peer = head.extension::<TcpConnectInfo>()?.remote_addr()?;
        Some(format!("clientip:{}", peer.ip()))
    });
    RateLimitLayer::builder()
        .policy(Policy::new("peer", TokenBucket::per_second(5).burst(5)).key(key::peer_ip()))
        .grpc(grpc)
        .build()
}
