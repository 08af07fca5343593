//! Plans and customers in a database. The service follows a changed row within two seconds.
//!
//! Run `cargo run --example rules_from_database`, with `ADDR` (default 127.0.0.1:3000) and `DATABASE`: a SQLite file
//! (default rules.sqlite, created with two plans if it does not exist), or the `postgres://` URL of a PostgreSQL
//! server. Missing tables are created there too. `GET /` answers with the decision as JSON, and `GET /resolver` with
//! the usage of the cache.
//!
//! | table | columns |
//! | --- | --- |
//! | `plans` | `name`, `policy` (`minute` or `day`), `quota` (`100/minute`, `10000/day` or `unlimited`) |
//! | `customers` | `key`, `plan` |
//!
//! The header `x-api-key` identifies the customer; a real service verifies it first. A key that is not in `customers`
//! has the limits in `DEFAULT`. If a plan has no row for a policy, the policy does not count its requests. An invalid
//! row is refused and logged: its policy has the default limit.
//!
//! While the database is away, known customers keep their plans, and all others have the default limits.

mod postgres;
mod rules;
mod sqlite;

use std::env::VarError;
use std::error::Error;
use std::net::SocketAddr;

use axum::routing::get;
use axum::{Extension, Json, Router};
use serde_json::{Value, json};
use tower_ratelimit::key::{self, Head, Secret};
use tower_ratelimit::plan::Resolver;
use tower_ratelimit::{AnchoredWindow, Decision, Policy, RateLimitLayer};

/// The limits per minute and per day of a key that is not in `customers`.
const DEFAULT: (u32, u32) = (10, 100);

/// A longer key belongs to no customer. It is neither looked up nor kept.
const LONGEST_KEY: usize = 200;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();

    let database = setting("DATABASE", "rules.sqlite")?;
    let resolver = if database.starts_with("postgres://") || database.starts_with("postgresql://") {
        postgres::resolver(&database).await?
    } else {
        sqlite::resolver(&database)?
    };
    let kept = resolver.clone();
    let app = Router::new()
        .route("/", get(decision))
        .layer(layer(resolver)?)
        .route("/resolver", get(async move || usage(&kept)));

    let address = setting("ADDR", "127.0.0.1:3000")?;
    let listener = tokio::net::TcpListener::bind(&address).await;
    let listener = listener.map_err(|error| format!("cannot listen on ADDR={address}: {error}"))?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}");
    println!();
    println!("  a customer:      curl -i -H 'x-api-key: ann' http://{address}/");
    println!("  give her a plan: insert into customers values ('ann', 'pro');");

    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}

fn layer(resolver: Resolver<String>) -> Result<RateLimitLayer, Box<dyn Error>> {
    let secret = Secret::new(setting("SECRET", "public, in an example")?)?;
    let customer = || key::api_key().hashed(&secret).or(key::peer_ip());
    let (minute, day) = DEFAULT;
    let layer = RateLimitLayer::builder()
        .policy(Policy::new("minute", AnchoredWindow::per_minute(minute)).key(customer()))
        .policy(Policy::new("day", AnchoredWindow::per_day(day)).key(customer()))
        .resolver(resolver, |head: &Head<'_>| {
            let key = head.header("x-api-key")?;
            (key.len() <= LONGEST_KEY).then(|| key.to_owned())
        })
        .expose_decision();
    Ok(layer.build()?)
}

async fn decision(decision: Option<Extension<Decision>>) -> Json<Option<Decision>> {
    Json(decision.map(|Extension(decision)| decision))
}

fn usage(resolver: &Resolver<String>) -> Json<Value> {
    let usage = resolver.usage();
    Json(json!({
        "found": usage.found,
        "not_found": usage.not_found,
        "in_flight": usage.in_flight,
    }))
}

fn setting(name: &str, default: &str) -> Result<String, String> {
    match std::env::var(name) {
        Ok(value) => Ok(value),
        Err(VarError::NotPresent) => Ok(default.to_owned()),
        Err(error) => Err(format!("{name}: {error}")),
    }
}
