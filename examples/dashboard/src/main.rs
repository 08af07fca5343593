//! A service with plans, a queue and an adaptive limit, and a page that shows all of it live.
//!
//! Run `cargo run -p dashboard`, and open the page that it prints: `http://127.0.0.1:3000/dashboard`.
//!
//! - `GET /` answers with the decision as JSON, and `GET /report` waits for its turn. The header `x-api-key`
//!   identifies the customer. Its prefix, `free-`, `pro-` or `ent-`, stands for the plan that a real service looks
//!   up.
//! - `/dashboard` is the page, `/dashboard/events` its events, and `/dashboard/snapshot` one of them. `POST
//!   /dashboard/limits` with `{"policy":"minute","plan":"free","limit":20}` changes a limit. All of them accept
//!   requests from this machine alone.
//! - `/metrics` has the same numbers for Prometheus; `examples/dashboard/prometheus.yml` is its configuration.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `ADDR` | the address; the default is 127.0.0.1:3000 |
//! | `TRAFFIC` | `0` turns off the customers that this program simulates |
//! | `REDIS_URL` | the server that keeps the state; the default is this process |
//! | `SECRET` | hashes API keys before they are stored |

mod limits;
mod traffic;

use std::env;
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Extension, Router};
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tower_ratelimit::Decision;
use tower_ratelimit_ops::admin::{self, Access, Handle};
use tower_ratelimit_ops::metrics::Publisher;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();

    let limit = limits::layer()?;
    // Only counters and gauges, which need no upkeep.
    let recorder = PrometheusBuilder::new().install_recorder()?;
    let publisher = Publisher::new(limit.monitor());
    let metrics = move || async move {
        publisher.publish();
        (
            [(CONTENT_TYPE, "text/plain; version=0.0.4")],
            recorder.render(),
        )
    };
    let (stop, stopping) = watch::channel(false);
    let page = Handle::from(&limit)
        .client(limits::request_of)
        .until(stopped(stopping.clone()));
    let app = Router::new()
        .route("/", get(decision))
        .route("/report", get(|| async { "a report\n" }))
        .layer(limit)
        .route("/metrics", get(metrics))
        // Added after the layer, so that the operator is not limited.
        .nest(
            "/dashboard",
            admin::router(page, Access::loopback().writable()),
        );

    let address = env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".into());
    let listener = TcpListener::bind(&address).await;
    let listener = listener.map_err(|error| format!("cannot listen on ADDR={address}: {error}"))?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}");
    println!();
    println!("  the page:  http://{address}/dashboard");
    println!("  a request: curl -i -H 'x-api-key: free-ann' http://{address}/");
    if env::var("TRAFFIC").as_deref() != Ok("0") {
        tokio::spawn(traffic::customers(address));
    }

    tokio::spawn(async move {
        signal().await;
        let _ = stop.send(true);
    });
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    let serving = axum::serve(listener, service).with_graceful_shutdown(stopped(stopping.clone()));
    tokio::select! {
        served = serving.into_future() => served?,
        // Does not wait for a client that does not read its answer.
        () = longest(stopping) => {}
    }
    Ok(())
}

async fn stopped(mut stopping: watch::Receiver<bool>) {
    // If the sender is dropped, the service stops too.
    let _ = stopping.wait_for(|stop| *stop).await;
}

async fn longest(stopping: watch::Receiver<bool>) {
    stopped(stopping).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
}

/// The interrupt signal or, on Unix, `SIGTERM`.
async fn signal() {
    let interrupt = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let terminate = async {
            match signal(SignalKind::terminate()) {
                Ok(mut signal) => drop(signal.recv().await),
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! { () = interrupt => {}, () = terminate => {} }
    }
    #[cfg(not(unix))]
    interrupt.await;
}

async fn decision(decision: Option<Extension<Decision>>) -> impl IntoResponse {
    let told = decision.map_or(Value::Null, |Extension(decision)| {
        let policies = decision.policies().map(|(name, outcome)| {
            let numbers = json!({
                "limit": outcome.limit(),
                "used": outcome.used(),
                "remaining": outcome.remaining(),
            });
            (name.to_owned(), numbers)
        });
        json!({
            "policy": decision.binding().map(|(name, _)| name),
            "rule": decision.rule().map(|rule| rule.to_string()),
            "policies": policies.collect::<serde_json::Map<_, _>>(),
        })
    });
    ([(CONTENT_TYPE, "application/json")], told.to_string())
}
