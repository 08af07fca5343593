//! A slow upstream behind a queue: a burst arrives at once, and goes on at the pace of the upstream.
//!
//! Run `cargo run --example shaping`. It sends the burst within the process, and ends after a second.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode, header};
use axum::{Extension, Router, routing::get};
use tokio::task::JoinSet;
use tower::ServiceExt;
use tower_ratelimit::{Decision, LeakyQueue, Policy, RateLimitLayer, key};

/// Ten turns a second, 100 ms apart; eight requests may wait.
const QUEUE: LeakyQueue = LeakyQueue::per_second(10).places(8);
const BURST: u32 = 12;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();

    // One queue for all clients, because the limit protects the upstream. With `key::client_ip()`, each client would
    // have its own queue.
    let limit = RateLimitLayer::builder()
        .policy(Policy::new("upstream", QUEUE).key(key::global()))
        .expose_decision()
        .build()?;
    let start = Arc::new(Instant::now());
    let app = Router::new()
        .route("/", get(upstream))
        .layer(limit)
        .with_state(Arc::clone(&start));

    let interval = QUEUE.interval().unwrap_or_default();
    println!("{BURST} requests at once; one goes on each {interval:?}, and");
    println!("{} may wait:", QUEUE.place_count());
    println!();

    let mut burst = JoinSet::new();
    for _ in 0..BURST {
        let app = app.clone();
        burst.spawn(async move { app.oneshot(Request::new(Body::empty())).await });
    }
    let mut refused = 0;
    while let Some(answer) = burst.join_next().await {
        let answer = answer??;
        if answer.status() == StatusCode::TOO_MANY_REQUESTS {
            refused += 1;
            let wait = answer.headers().get(header::RETRY_AFTER);
            let wait = wait.and_then(|wait| wait.to_str().ok()).unwrap_or("?");
            println!("           refused at once, to come back after {wait} s");
        }
    }
    println!();
    println!("{} went on, {refused} were refused", BURST - refused);
    Ok(())
}

/// Prints when each request reaches it, and works on it for a while.
async fn upstream(State(start): State<Arc<Instant>>, Extension(decision): Extension<Decision>) {
    let at = start.elapsed().as_millis();
    let told = decision.delay().as_millis();
    println!("  {at:>4} ms  went on, having been held for {told} ms");
    tokio::time::sleep(Duration::from_millis(80)).await;
}
