//! Three plans, `free`, `pro` and `enterprise`, each with a limit per minute and a limit per day.
//!
//! Run `cargo run --example plans`, with `ADDR` (default 127.0.0.1:3000), `ADMIN` (default 127.0.0.1:3001, a loopback
//! address) and `SCALE` (default 1), which multiplies each limit. The header `x-api-key` identifies a customer; a
//! request without it counts by its address. `GET /` answers with the decision as JSON.
//!
//! A key that begins with `free-`, `pro-` or `ent-` has that plan. The prefix stands for a key that authentication has
//! verified: a real service looks the key up, since a client can invent any prefix.
//!
//! `POST /plan?key=K&plan=P` at `ADMIN` changes the plan of a key while the service runs. If no plan has this name,
//! the key has the default plan, `free`.
//!
//! State is in this process or, with `REDIS_URL`, on a server that several such processes share:
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1:6379/ cargo run --features redis --example plans
//! ```

use std::collections::HashMap;
use std::env::VarError;
use std::error::Error;
use std::fmt::Display;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::{Arc, PoisonError, RwLock};

use axum::extract::{Query, State};
use axum::http::header::ORIGIN;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde::Deserialize;
use tower_ratelimit::key::{self, Head, Secret};
use tower_ratelimit::plan::{Plan, Plans};
use tower_ratelimit::{AnchoredWindow, Decision, Policy, RateLimitLayer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();

    let customers = Customers::default();
    let layer = layer(customers.clone(), setting("SCALE", 1)?)?;
    let app = Router::new().route("/", get(decision)).layer(layer);
    let admin = Router::new()
        .route("/plan", post(change_plan))
        .with_state(customers);

    let listener = listen("ADDR", "127.0.0.1:3000").await?;
    let admin_listener = listen("ADMIN", "127.0.0.1:3001").await?;
    let (address, admin_address) = (listener.local_addr()?, admin_listener.local_addr()?);
    if !admin_address.ip().is_loopback() {
        return Err(format!(
            "ADMIN={admin_address} cannot be used: give a loopback address, such as 127.0.0.1:3001"
        )
        .into());
    }
    println!("listening on http://{address}, and for the operator on http://{admin_address}");
    println!();
    println!("  a free customer:   curl -i -H 'x-api-key: free-ann' http://{address}/");
    println!(
        "  with another plan: curl -i -X POST 'http://{admin_address}/plan?key=free-ann&plan=pro'"
    );

    let admin = axum::serve(admin_listener, admin).into_future();
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::try_join!(axum::serve(listener, service).into_future(), admin)?;
    Ok(())
}

/// The plans that the operator has given to keys, by name.
#[derive(Clone, Default)]
struct Customers(Arc<RwLock<HashMap<String, Arc<str>>>>);

impl Customers {
    fn plan_of(&self, key: &str) -> Option<Arc<str>> {
        let given = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = given.get(key) {
            return Some(Arc::clone(plan));
        }
        let prefixes = [("free-", "free"), ("pro-", "pro"), ("ent-", "enterprise")];
        let plan = prefixes.iter().find(|(prefix, _)| key.starts_with(prefix));
        plan.map(|(_, plan)| Arc::from(*plan))
    }

    fn change(&self, key: String, plan: &str) {
        let mut given = self.0.write().unwrap_or_else(PoisonError::into_inner);
        given.insert(key, plan.into());
    }
}

fn layer(customers: Customers, scale: u32) -> Result<RateLimitLayer, Box<dyn Error>> {
    let minute = |limit: u32| AnchoredWindow::per_minute(limit.saturating_mul(scale));
    let day = |limit: u32| AnchoredWindow::per_day(limit.saturating_mul(scale));
    let plans = Plans::new([
        Plan::new("free")
            .limit("minute", minute(10))
            .limit("day", day(100)),
        Plan::new("pro")
            .limit("minute", minute(100))
            .limit("day", day(10_000)),
        Plan::new("enterprise")
            .unlimited("minute")
            .limit("day", day(1_000_000)),
    ]);

    let secret = Secret::new(setting("SECRET", String::from("public, in an example"))?)?;
    let customer = || key::api_key().hashed(&secret).or(key::peer_ip());
    let builder = RateLimitLayer::builder()
        .policy(Policy::new("minute", minute(10)).key(customer()))
        .policy(Policy::new("day", day(100)).key(customer()))
        .plans(plans, move |head: &Head<'_>| {
            customers.plan_of(head.header("x-api-key")?)
        })
        .expose_decision();

    let url = setting("REDIS_URL", String::new())?;
    if url.is_empty() {
        return Ok(builder.build()?);
    }
    #[cfg(feature = "redis")]
    return Ok(builder
        .store(tower_ratelimit::RedisStore::new(&url)?)
        .build()?);
    #[cfg(not(feature = "redis"))]
    Err("REDIS_URL is set: run this with `--features redis`, or without REDIS_URL".into())
}

#[derive(Deserialize)]
struct Change {
    key: String,
    plan: String,
}

/// A page of another origin cannot change a plan: a browser sends the origin with each such request.
async fn change_plan(
    State(customers): State<Customers>,
    headers: HeaderMap,
    Query(change): Query<Change>,
) -> StatusCode {
    if headers.contains_key(ORIGIN) {
        return StatusCode::FORBIDDEN;
    }
    customers.change(change.key, &change.plan);
    StatusCode::NO_CONTENT
}

async fn decision(decision: Option<Extension<Decision>>) -> Json<Option<Decision>> {
    Json(decision.map(|Extension(decision)| decision))
}

async fn listen(name: &str, default: &str) -> Result<tokio::net::TcpListener, String> {
    let address = setting(name, default.to_owned())?;
    let listener = tokio::net::TcpListener::bind(&address).await;
    listener.map_err(|error| format!("cannot listen on {name}={address}: {error}"))
}

fn setting<T: FromStr<Err: Display>>(name: &str, default: T) -> Result<T, String> {
    match std::env::var(name) {
        Ok(value) => {
            let parsed = value.parse();
            parsed.map_err(|error| format!("{name}={value} cannot be used: {error}"))
        }
        Err(VarError::NotPresent) => Ok(default),
        Err(error) => Err(format!("{name}: {error}")),
    }
}
