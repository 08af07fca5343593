//! Routes with their own limits, a limit for all of them, and probes without a limit.
//!
//! Run `cargo run --example per_route`. It prints commands to try. `ADDR` is the address.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::{get, post};
use tower_ratelimit::{ConfigError, Policy, RateLimitLayer, TokenBucket, key};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();

    // One layer on two routes is one limit for both: a client that searches has less left for exports. `route_layer`
    // skips requests that match no route, so a mistyped path costs nothing.
    let costly = Router::new()
        .route("/search", get(|| async { "found\n" }))
        .route("/export", get(|| async { "exported\n" }))
        .route_layer(limit("costly", TokenBucket::per_minute(6).burst(3))?);

    // Only `POST`: the `get` that is added after the layer is outside it.
    let login = post(|| async { "welcome\n" })
        .layer(limit("login", TokenBucket::per_minute(2).burst(2))?)
        .get(|| async { "a form\n" });

    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .route("/login", login)
        .merge(costly)
        .route("/health", get(|| async { "ok\n" }))
        .layer(everything()?);

    let address = std::env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".into());
    let listener = tokio::net::TcpListener::bind(&address)
        .await
        .map_err(|error| format!("cannot listen on ADDR={address}: {error}"))?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}: for each address 60 requests at once, and of them");
    println!("3 searches or exports, 2 logins, and as many probes as it likes");
    println!();
    let curl = "curl -s -o /dev/null -w '%{http_code}\\n'";
    println!("  both limits of one request:  curl -i http://{address}/search");
    println!("  three pass, with that one:   {curl} 'http://{address}/{{search,export}}?[1-2]'");
    println!("  two logins pass:             {curl} -X POST 'http://{address}/login?[1-3]'");
    println!("  the form is not a login:     curl -i http://{address}/login");
    println!("  probes have no limit:        {curl} 'http://{address}/health?[1-80]'");

    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}

/// Each layer needs its own name. Clients see it, and could not distinguish two layers of the same name.
fn limit(name: &str, bucket: TokenBucket) -> Result<RateLimitLayer, ConfigError> {
    RateLimitLayer::builder()
        .policy(Policy::new(name, bucket).key(key::client_ip()))
        .build()
}

/// Outside the other layers. A layer around the probes must exempt them, or the load balancer removes a node whose
/// clients are busy.
fn everything() -> Result<RateLimitLayer, ConfigError> {
    RateLimitLayer::builder()
        .policy(Policy::new("address", TokenBucket::per_second(1).burst(60)).key(key::client_ip()))
        .exempt_paths(["/health"])
        .build()
}
