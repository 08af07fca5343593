//! One route for each algorithm; an allowed request is answered with its decision as JSON.
//!
//! `cargo run --example algorithms`, with `ADDR` (default 127.0.0.1:3000), `LIMIT` (default 5)
//! and `WINDOW_MS` (default 10000). Clients are told apart by the header `x-api-key`, and those
//! without one by their address. Pages of any origin may ask, and may read what they are told.
//!
//! Of an API key a hash is kept, under `SECRET`: 16 bytes or more, the same for processes that share a
//! server. The example has a fixed one, which is public; a service has its own.
//!
//! State is in this process, or, with `REDIS_URL`, on a server that several such processes share:
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1:6379/ cargo run --features redis --example algorithms
//! ```
//!
//! A request that the server does not answer within `DEADLINE_MS` (default 100) is decided by this
//! process alone, as are all once the server is known to be away, and when it was never there; `degraded`
//! tells so. `NODES` is how many such processes there are: each then keeps to its share of `LIMIT`
//! meanwhile, and to all of it if that was not said. With `LEASE_MS`, a process takes several units of a key at once and
//! spends them itself; one lasts for so long at most, from 10 to 60000. That the server is away, that it has come back,
//! and what it refuses, such as a password, stands in the log.
//!
//! `/calendar-day` has a limit for each day of the time zone `ZONE` (default UTC), such as Europe/London.
//!
//! `/leaky-queue` holds requests until their turn: one in each `WINDOW_MS / LIMIT`, and `LIMIT - 1`
//! may wait; `delay_us` tells how long it was to be.

use std::env::VarError;
use std::error::Error;
use std::fmt::Display;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use axum::http::HeaderName;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::{Extension, Router, routing::get};
use serde_json::{Value, json};
use tower_http::cors::{Any, CorsLayer};
use tower_ratelimit::calendar::Zone;
use tower_ratelimit::key::{self, Secret};
use tower_ratelimit::response;
use tower_ratelimit::{
    Algorithm, AnchoredWindow, Decision, FixedWindow, Gcra, LeakyBucket, LeakyQueue, Policy,
    RateLimitLayer, SlidingLog, SlidingSlots, SlidingWindow, TokenBucket,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();

    let limit = setting("LIMIT", 5)?;
    let window = Duration::from_millis(setting("WINDOW_MS", 10_000)?);
    let secret = Secret::new(setting("SECRET", String::from("public, in an example"))?)?;
    let state = State::open()?;

    let mut app = Router::new();
    let zone = setting("ZONE", Zone::utc())?;
    for algorithm in algorithms(limit, window, zone)? {
        let route = get(decision).layer(layer(algorithm, &secret, &state)?);
        app = app.route(&format!("/{}", algorithm.name()), route);
    }
    // Outside the limits: a browser shows a page a refusal only if it carries these fields too,
    // and preflights, which are answered here, cost nothing.
    let cors = CorsLayer::new()
        .allow_origin(Any)
        .allow_headers([HeaderName::from_static("x-api-key")])
        .expose_headers(response::EXPOSED_HEADERS);
    let app = app.layer(cors);

    let address = setting("ADDR", String::from("127.0.0.1:3000"))?;
    let listener = tokio::net::TcpListener::bind(&address)
        .await
        .map_err(|error| format!("cannot listen on ADDR={address}: {error}"))?;
    println!("listening on http://{}", listener.local_addr()?);
    for algorithm in algorithms(limit, window, zone)? {
        println!("  /{}", algorithm.name());
    }
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}

fn algorithms(limit: u32, window: Duration, zone: Zone) -> Result<Vec<Algorithm>, Box<dyn Error>> {
    Ok(vec![
        FixedWindow::new(limit, window)?.into(),
        FixedWindow::per_calendar_day(limit).zone(zone).into(),
        AnchoredWindow::new(limit, window)?.into(),
        SlidingLog::new(limit, window)?.into(),
        SlidingWindow::new(limit, window)?.into(),
        SlidingSlots::new(limit, window)?.into(),
        TokenBucket::new(limit, window)?.into(),
        TokenBucket::new(limit, window)?.by_interval().into(),
        LeakyBucket::new(limit, window)?.into(),
        Gcra::new(limit, window)?.into(),
        LeakyQueue::new(limit, window)?
            .places(limit.saturating_sub(1))
            .into(),
    ])
}

/// Where state is kept.
enum State {
    Here,
    #[cfg(feature = "redis")]
    InRedis(tower_ratelimit::RedisStore),
}

impl State {
    fn open() -> Result<Self, Box<dyn Error>> {
        let url = setting("REDIS_URL", String::new())?;
        if url.is_empty() {
            return Ok(Self::Here);
        }
        Self::in_redis(&url)
    }

    #[cfg(feature = "redis")]
    fn in_redis(url: &str) -> Result<Self, Box<dyn Error>> {
        let deadline = Duration::from_millis(setting("DEADLINE_MS", 100)?);
        let mut store = tower_ratelimit::RedisStore::builder().deadline(deadline);
        if let Some(nodes) = optional("NODES")? {
            store = store.nodes(nodes);
        }
        if let Some(life) = optional("LEASE_MS")? {
            let life = Duration::from_millis(life);
            store = store.lease(tower_ratelimit::store::Lease::up_to(life));
        }
        // The first request connects, so that this starts while the server is away.
        let store = store.open(url).map_err(|error| {
            format!("REDIS_URL, NODES, LEASE_MS or DEADLINE_MS cannot be used: {error}")
        })?;
        Ok(Self::InRedis(store))
    }

    #[cfg(not(feature = "redis"))]
    fn in_redis(_: &str) -> Result<Self, Box<dyn Error>> {
        Err("REDIS_URL is set: run this with `--features redis`, or without REDIS_URL".into())
    }
}

fn layer(
    algorithm: Algorithm,
    secret: &Secret,
    state: &State,
) -> Result<RateLimitLayer, Box<dyn Error>> {
    let client = key::api_key().hashed(secret).or(key::peer_ip());
    let policy = Policy::new(algorithm.name(), algorithm).key(client);
    let builder = RateLimitLayer::builder().policy(policy).expose_decision();
    Ok(match state {
        State::Here => builder.build()?,
        #[cfg(feature = "redis")]
        State::InRedis(store) => builder.store(store.clone()).build()?,
    })
}

/// As `axum::Json` answers, whose feature all examples would be built with.
async fn decision(Extension(decision): Extension<Decision>) -> impl IntoResponse {
    (
        [(CONTENT_TYPE, "application/json")],
        told(&decision).to_string(),
    )
}

fn told(decision: &Decision) -> Value {
    let Some((policy, outcome)) = decision.binding() else {
        return Value::Null;
    };
    json!({
        "policy": policy,
        "limit": outcome.limit(),
        "used": outcome.used(),
        "remaining": outcome.remaining(),
        "reset_after_us": micros(outcome.reset_after()),
        "retry_after_us": outcome.retry_after().map(micros),
        "delay_us": micros(decision.delay()),
        "degraded": decision.is_degraded(),
    })
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn setting<T: FromStr<Err: Display>>(name: &str, default: T) -> Result<T, String> {
    Ok(optional(name)?.unwrap_or(default))
}

fn optional<T: FromStr<Err: Display>>(name: &str) -> Result<Option<T>, String> {
    match std::env::var(name) {
        Ok(value) => match value.parse() {
            Ok(parsed) => Ok(Some(parsed)),
            Err(error) => Err(format!("{name}={value} cannot be used: {error}")),
        },
        Err(VarError::NotPresent) => Ok(None),
        Err(error) => Err(format!("{name}: {error}")),
    }
}
