//! Limits from a file, which can change while the service runs.
//!
//! Run `cargo run --example from_file`, with `LIMITS` (default `examples/limits.toml`) and `ADDR` (default
//! 127.0.0.1:3000). The header `x-api-key` identifies a customer. `GET /` answers with the decision as JSON. `GET
//! /status`, outside the limits, answers with `{"version", "sha256", "since", "error"}`.
//!
//! If the file names another one in `shadow`, `/status` also has the differences.
//!
//! Change the file, and the limits follow within two seconds. A file with a mistake changes nothing: `/status` has the error.

use std::error::Error;
use std::net::SocketAddr;
use std::time::UNIX_EPOCH;

use axum::routing::get;
use axum::{Extension, Json, Router};
use serde_json::{Value, json};
use tower_ratelimit::Decision;
use tower_ratelimit_config::{Config, Watched};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();

    let limits = std::env::var("LIMITS").unwrap_or_else(|_| "examples/limits.toml".to_owned());
    let config = Config::read(&limits)?;
    for warning in config.warnings() {
        eprintln!("warning: {warning}");
    }
    let watched = config.watch()?;
    // Outside the limits, so that an operator sees the error of a bad file while clients are refused.
    let status = watched.clone();
    let app = Router::new()
        .route("/", get(decision))
        .layer(watched.layer())
        .route("/status", get(async move || Json(told_of(&status))));

    let address = std::env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(&address).await;
    let listener = listener.map_err(|error| format!("ADDR {address}: {error}"))?;
    println!(
        "listening on http://{}, with the limits of {limits}",
        listener.local_addr()?
    );
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}

fn told_of(watched: &Watched) -> Value {
    let status = watched.status();
    let since = status
        .since()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let mut told = json!({
        "version": status.version(),
        "sha256": status.sha256(),
        "since": since.as_secs(),
        "error": status.error().map(ToString::to_string),
    });
    if let Some(shadow) = watched.shadow() {
        told["shadow"] = json!({
            "compared": shadow.compared(),
            "would_refuse": shadow.would_refuse(),
            "would_allow": shadow.would_allow(),
            "differences": shadow.differences().iter().map(ToString::to_string).collect::<Vec<_>>(),
            "error": shadow.error().map(ToString::to_string),
        });
    }
    told
}

async fn decision(decision: Option<Extension<Decision>>) -> Json<Option<Decision>> {
    Json(decision.map(|Extension(decision)| decision))
}
