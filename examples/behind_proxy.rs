//! Clients behind a trusted proxy, with rate limit headers in two dialects, an allow list and a deny list.
//!
//! Run `cargo run --example behind_proxy`. It prints commands to try: this machine acts as the proxy, which appends
//! the address of the client to `X-Forwarded-For`. `ADDR` is the address.

use std::net::SocketAddr;

use axum::{Router, routing::get};
use tower_ratelimit::key::{self, ClientIp, Extractor, Forwarding, Proxies};
use tower_ratelimit::response::{Dialect, RefusalBody, Reset};
use tower_ratelimit::{ConfigError, Policy, RateLimitLayer, TokenBucket};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();

    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(limit()?);

    let address = std::env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".into());
    let listener = tokio::net::TcpListener::bind(&address)
        .await
        .map_err(|error| format!("cannot listen on ADDR={address}: {error}"))?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}: 3 requests at once for each client");
    println!();
    let curl = "curl -s -o /dev/null -w '%{http_code}\\n' -H 'x-forwarded-for:";
    println!(
        "  what one is told:        curl -i -H 'x-forwarded-for: 192.0.2.1' http://{address}/"
    );
    println!("  another, of whom 3 pass: {curl} 192.0.2.2' 'http://{address}/?[1-4]'");
    println!("  a forger is itself:      {curl} 10.1.1.1, 192.0.2.2' 'http://{address}/'");
    println!("  one /64 is one client:   {curl} 2001:db8::1' 'http://{address}/?[1-3]'");
    println!("  and has no fourth:       {curl} 2001:db8::2' 'http://{address}/'");
    println!("  our own, without limit:  {curl} 10.1.1.1' 'http://{address}/?[1-9]'");
    println!("  403:                     {curl} 203.0.113.5' 'http://{address}/'");

    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}

/// Returns the last address that is not one of our proxies. The layer ignores all addresses to the left of it, which a client
/// can invent, and the header of a request that did not come through the proxy.
fn client() -> Extractor<ClientIp> {
    let proxies = Proxies::in_networks(["127.0.0.0/8", "::1"]);
    key::client_ip().behind(proxies, Forwarding::XForwardedFor)
}

fn limit() -> Result<RateLimitLayer, ConfigError> {
    RateLimitLayer::builder()
        .policy(Policy::new("client", TokenBucket::per_minute(6).burst(3)).key(client()))
        // Draft 11, and the headers that older clients read.
        .dialects([Dialect::Draft11, Dialect::XRateLimit(Reset::DeltaSeconds)])
        .refusal_body(RefusalBody::Json)
        .allow(client().within(["10.0.0.0/8"]))
        .deny(client().within(["203.0.113.0/24"]))
        .build()
}
