//! Other rate limiters behind axum, for the load tester: five requests a second and ten at once, in the terms
//! of each of them. `make loadtest` sends them requests.
//!
//! `cargo run --release -p tower-ratelimit-benches --bin peers-server`, with `ADDR` (default 127.0.0.1:3000).

use std::error::Error;
use std::net::SocketAddr;
use std::num::NonZeroU32;

use axum::{Router, routing::get};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let hello = || get(async || "hello");
    let governor = GovernorConfigBuilder::default()
        .per_millisecond(200)
        .burst_size(10)
        .use_headers()
        .finish()
        .ok_or("a rate of tower_governor")?;
    let [five, ten] = [5, 10].map(NonZeroU32::new);
    let (five, ten) = five.zip(ten).ok_or("a rate of axum-governor")?;
    let quota = axum_governor::Quota::requests_per_second(five).burst(ten);
    let axum_governor = axum_governor::GovernorConfigBuilder::default()
        .with_extractor(axum_governor::PeerIp::default())
        .expect_connect_info()
        .quota_default(quota)
        .finish()?;
    let app = Router::new()
        .route(
            "/tower-governor",
            hello().layer(GovernorLayer::new(governor)),
        )
        .route(
            "/axum-governor",
            hello().layer(axum_governor::GovernorLayer::new(axum_governor)),
        );

    let address = std::env::var("ADDR").unwrap_or_else(|_| String::from("127.0.0.1:3000"));
    let listener = tokio::net::TcpListener::bind(&address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}
