//! A login that counts failures alone: five in fifteen minutes for each user and address.
//!
//! `cargo run --example login`, with `ADDR` (default 127.0.0.1:3000) and `PERIOD_S` (default 900), the period in seconds.
//! `POST /login` takes the form `user` and `password`; `secret` is right. It answers 200, 401 or 429.
//!
//! A login is charged before the password is checked, and gets the charge back if the password is right. So a client
//! that guesses in parallel has five guesses. Three refusals within the period block that user at that address for a
//! minute.
//!
//! State is in this process or, with `REDIS_URL`, on a server that several such processes share:
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1:6379/ cargo run --features redis --example login
//! ```

use std::env::VarError;
use std::error::Error;
use std::fmt::Display;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use axum::extract::{ConnectInfo, DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::post;
use axum::{Form, Router};
use serde::Deserialize;
use tower_ratelimit::policy::Penalty;
use tower_ratelimit::response::{OrRefuse, Refused};
use tower_ratelimit::{AnchoredWindow, Limiter, Policy, Quota};

type Failures = Limiter;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();

    let period = Duration::from_secs(setting("PERIOD_S", 900)?);
    let app = Router::new()
        .route("/login", post(login))
        .layer(DefaultBodyLimit::max(4_096))
        .with_state(failures(period)?);

    let listener = listen("ADDR", "127.0.0.1:3000").await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}");
    println!();
    println!("  a failure: curl -i -d 'user=ann&password=guess' http://{address}/login");
    println!("  a success: curl -i -d 'user=ann&password=secret' http://{address}/login");

    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}

fn failures(period: Duration) -> Result<Failures, Box<dyn Error>> {
    let penalty = Penalty::after(3, period).block(Duration::from_secs(60));
    let failures =
        Policy::new("failures", AnchoredWindow::of(Quota::new(5, period)?)).penalty(penalty);
    let builder = Limiter::builder().policy(failures);

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
struct Login {
    user: String,
    password: String,
}

async fn login(
    State(failures): State<Failures>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Form(login): Form<Login>,
) -> Result<impl IntoResponse, Refused> {
    let key = (&*login.user, peer.ip());
    let reservation = failures.reserve(key, 1).await?.or_refuse()?;
    if is_right(&login.password).await {
        reservation.cancel();
        return Ok((StatusCode::OK, "welcome\n"));
    }
    // If the reservation is dropped, as when the client goes away before the answer, the charge stays.
    drop(reservation);
    Ok((
        StatusCode::UNAUTHORIZED,
        "the user or the password is wrong\n",
    ))
}

/// Stands for a slow password hash.
async fn is_right(password: &str) -> bool {
    tokio::time::sleep(Duration::from_millis(50)).await;
    password == "secret"
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
