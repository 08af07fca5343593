//! One route for each algorithm. The body of an allowed response is the decision as JSON.
//!
//! Run `cargo run --example algorithms`, with `ADDR` (default 127.0.0.1:3000), `LIMIT` (default 5) and `WINDOW_MS`
//! (default 10000). The header `x-api-key` identifies a client, or its address if it sends no key. Pages of any
//! origin may send requests and read the headers.
//!
//! API keys are hashed with `SECRET`: 16 bytes or more, and the same for all processes that share a server. The
//! default is public; a service needs a secret of its own.
//!
//! State is in this process or, with `REDIS_URL`, on a server that several processes share:
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1:6379/ cargo run --features redis --example algorithms
//! ```
//!
//! If the server does not answer within `DEADLINE_MS` (default 100), this process decides the request alone, and
//! `degraded` is true. It does the same while the server is known to be away. Set `NODES` to the number of processes: each
//! one then admits its share of `LIMIT` meanwhile, and otherwise the whole limit. With `LEASE_MS`, a process takes
//! several units of a key at once and spends them itself; such a lease lasts for at most this time, from 10 to 60000.
//! The log reports an outage, its end, and errors of the server, such as a wrong password.
//!
//! `/calendar-day` has a limit for each day of the time zone `ZONE` (default UTC), such as Europe/London.
//!
//! `/leaky-queue` holds requests until their turn: one in each `WINDOW_MS / LIMIT`, and `LIMIT - 1` may wait.
//! `delay_us` is the time for which a request was held.

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
    // Outside the limits: without these headers, a browser hides a refusal from the page. Preflights are answered
    // here and cost nothing.
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

/// The store that keeps the state.
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
        if let Some(nodes) = optional::<u32>("NODES")? {
            store = store.nodes(nodes);
        }
        if let Some(life) = optional("LEASE_MS")? {
            let life = Duration::from_millis(life);
            store = store.lease(tower_ratelimit::store::Lease::up_to(life));
        }
        // The first request connects, so that the example starts while the server is away.
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

/// As `axum::Json` does. Its feature would be built for all examples.
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
