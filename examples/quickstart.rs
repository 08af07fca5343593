//! An axum service that is rate limited in one line.
//!
//! Run `cargo run --example quickstart`. It prints commands to try. `ADDR` is the address.

use std::net::SocketAddr;

use axum::{Router, routing::get};
use tower_ratelimit::{RateLimitLayer, TokenBucket, key};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();

    let limit = RateLimitLayer::new(key::client_ip(), TokenBucket::per_second(5).burst(10));
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(limit);

    let address = std::env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".into());
    let listener = tokio::net::TcpListener::bind(&address)
        .await
        .map_err(|error| format!("cannot listen on ADDR={address}: {error}"))?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}: 5 requests a second for each address, 10 at once");
    println!();
    println!("  one request and what is left:  curl -i http://{address}/");
    println!(
        "  twelve, of which ten pass:     curl -s -o /dev/null -w '%{{http_code}}\\n' 'http://{address}/?[1-12]'"
    );
    println!("  what a refusal says:           curl -i 'http://{address}/?[1-12]'");

    // The layer counts clients by address, which axum provides only on request.
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}
