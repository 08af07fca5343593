//! Metrics by OpenTelemetry: instruments that read a snapshot when they are collected.
//!
//! ```sh
//! cargo run -p tower-ratelimit-figures --example opentelemetry
//! ```
//!
//! It sends a few requests through a layer, and prints the metrics that an exporter gets. Replace the printing
//! exporter by that of your collector.

use std::error::Error;
use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::connect_info::MockConnectInfo;
use axum::http::Request;
use axum::{Router, routing::get};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Meter, MeterProvider};
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_stdout::MetricExporter;
use tower::ServiceExt;
use tower_ratelimit::observe::{Monitor, PolicyStats};
use tower_ratelimit::{FixedWindow, RateLimitLayer, key};

/// An outcome under a policy, and its count.
type Outcome = (&'static str, fn(&PolicyStats) -> u64);

const OUTCOMES: [Outcome; 7] = [
    ("allowed", |policy| policy.allowed),
    ("refused", |policy| policy.refused),
    ("shadow_refused", |policy| policy.shadow_refused),
    ("soft", |policy| policy.soft),
    ("uncharged", |policy| policy.uncharged),
    ("failed", |policy| policy.failed),
    ("skipped", |policy| policy.skipped),
];

/// Instruments that observe this monitor, for as long as the provider lives.
fn observe(meter: &Meter, monitor: &Monitor) {
    let of_decisions = monitor.clone();
    let _decisions = meter
        .u64_observable_counter("ratelimit.decisions")
        .with_description("Requests under a policy, by what became of them")
        .with_unit("{request}")
        .with_callback(move |observer| {
            for policy in &of_decisions.snapshot().policies {
                for (outcome, count) in OUTCOMES {
                    let labels = [
                        KeyValue::new("policy", policy.name.clone()),
                        KeyValue::new("outcome", outcome),
                    ];
                    observer.observe(count(policy), &labels);
                }
            }
        })
        .build();
    let of_store = monitor.clone();
    let _store = meter
        .u64_observable_gauge("ratelimit.store.up")
        .with_description("Whether the store answers: 1 or 0")
        .with_callback(move |observer| {
            let snapshot = of_store.snapshot();
            let store = &snapshot.store;
            let labels = [KeyValue::new("store", store.kind)];
            observer.observe(u64::from(store.is_up), &labels);
        })
        .build();
    let of_factors = monitor.clone();
    let _factors = meter
        .f64_observable_gauge("ratelimit.adapt.factor")
        .with_description("The share of the limit that is in force: 1 is all of it")
        .with_callback(move |observer| {
            for policy in &of_factors.snapshot().policies {
                if let Some(factor) = &policy.factor {
                    let labels = [KeyValue::new("policy", policy.name.clone())];
                    observer.observe(factor.factor, &labels);
                }
            }
        })
        .build();
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let layer = RateLimitLayer::new(key::client_ip(), FixedWindow::per_minute(2));
    let provider = SdkMeterProvider::builder()
        .with_periodic_exporter(MetricExporter::default())
        .build();
    observe(&provider.meter("tower-ratelimit"), &layer.monitor());

    let app = Router::new()
        .route("/", get(|| async {}))
        .layer(layer)
        .layer(MockConnectInfo(SocketAddr::from(([192, 0, 2, 1], 0))));
    for _ in 0..3 {
        let response = app.clone().oneshot(Request::new(Body::empty())).await?;
        println!("{}", response.status());
    }
    provider.shutdown()?;
    Ok(())
}
