//! A service whose limit follows the load of the machine.
//!
//! Run `cargo run --example adaptive --features adapt`. It prints commands to try.
//!
//! - `ADDR` is the address, and `BASE` the limit of each key per minute under no load (default 100).
//! - `LOAD` names a file with the load, which replaces the signals of the kernel. It is read at each sample and has
//!   lines such as `cpu=93.0` and `memory=40.0`, in percent.
//! - `IMMEDIATE=1` applies each sample without smoothing and without holds. The limit never exceeds the base.

use std::env;
use std::error::Error;
use std::fs;
use std::num::NonZeroU32;
use std::time::{Duration, UNIX_EPOCH};

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::{Router, routing::get};
use tower_ratelimit::factor::Factor;
use tower_ratelimit::{Policy, RateLimitLayer, TokenBucket, key};
use tower_ratelimit_adapt::{Adapt, AdaptBuilder, Kernel, Load, Signal, Steps};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();

    let base = match env::var("BASE") {
        Ok(text) => text
            .parse::<NonZeroU32>()
            .map_err(|error| format!("BASE={text}: {error}"))?,
        Err(_) => NonZeroU32::new(100).expect("it is not 0"),
    };
    let steps = Steps::standard();
    let steps = match env::var("IMMEDIATE").as_deref() {
        Ok("1") => steps.immediate(),
        // Under low load, while clients reach their limits: 5 % more every ten seconds, up to five times the base.
        _ => steps.grow(Factor::thousandths(50), Factor::thousandths(5_000)),
    };
    let adapt = with_signals(Adapt::builder(steps)).build()?;
    tokio::spawn(adapt.run());

    let bucket = TokenBucket::per_minute(base.get()).burst(base.get());
    let policy = Policy::new("api", bucket).factor(adapt.factor());
    let policy = policy.key(key::header("x-api-key"));
    let limit = RateLimitLayer::builder().policy(policy).build()?;
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(limit)
        .route("/adapt", get(explain))
        .with_state(adapt);

    let address = env::var("ADDR").unwrap_or_else(|_| "127.0.0.1:3000".into());
    let listener = tokio::net::TcpListener::bind(&address)
        .await
        .map_err(|error| format!("cannot listen on ADDR={address}: {error}"))?;
    let address = listener.local_addr()?;
    println!(
        "listening on http://{address}: {base} requests a minute for each x-api-key, less under load"
    );
    println!();
    println!("  one request and what is left:  curl -i -H 'x-api-key: ann' http://{address}/");
    println!("  the factor, and why:           curl http://{address}/adapt");
    axum::serve(listener, app).await?;
    Ok(())
}

/// Returns the signals of the kernel, or those of a file.
fn with_signals(builder: AdaptBuilder) -> AdaptBuilder {
    match env::var("LOAD") {
        Ok(path) => builder
            .signal(FromFile::new("cpu", &path))
            .signal(FromFile::new("memory", &path)),
        Err(_) => builder
            .signal(Kernel::new().cpu())
            .signal(Kernel::new().memory()),
    }
}

/// A line of a file.
struct FromFile {
    name: &'static str,
    path: String,
}

impl FromFile {
    fn new(name: &'static str, path: &str) -> Self {
        let path = path.to_owned();
        Self { name, path }
    }
}

impl Signal for FromFile {
    fn name(&self) -> &str {
        self.name
    }

    fn read(&mut self, _: Duration) -> Option<Load> {
        let text = fs::read_to_string(&self.path).ok()?;
        let lines = text.lines().filter_map(|line| line.split_once('='));
        let mut lines = lines.filter(|(name, _)| name.trim() == self.name);
        lines.next()?.1.parse().ok()
    }
}

/// Returns the factor, its cause and age, and the readings of the signals.
async fn explain(State(adapt): State<Adapt>) -> impl IntoResponse {
    let explanation = adapt.explain();
    let since = explanation
        .since()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let loads = adapt.loads();
    let loads = loads.iter().map(|(name, load)| match load {
        Some(load) => format!(r#""{name}":{}"#, f64::from(load.get()) / 10_000.0),
        None => format!(r#""{name}":null"#),
    });
    let json = format!(
        r#"{{"factor":{},"cause":{},"since":{},"loads":{{{}}},"cost":{}}}"#,
        explanation.factor(),
        explanation
            .cause()
            .map_or("null".to_owned(), |cause| format!("\"{cause}\"")),
        since.as_secs(),
        loads.collect::<Vec<_>>().join(","),
        f64::from(adapt.cost().get()) / 10_000.0,
    );
    ([(CONTENT_TYPE, "application/json")], json + "\n")
}
