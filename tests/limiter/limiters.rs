//! The first programs of a user: `Limiter` is the type of every limiter, over any store and from any handle.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Router, body::Body};
use http::Request;
use tower::ServiceExt;
use tower_ratelimit::{
    ConfigError, FixedWindow, LimitLayer, Limiter, LocalLimiter, ManualClock, MemoryStore, Policy,
    RateLimitLayer, RedisStore, key,
};

fn mails(limit: u32) -> Policy {
    Policy::new("mails", FixedWindow::per_hour(limit))
}

async fn may_send(limiter: &Limiter, user: &str) -> bool {
    match limiter.check(user, 1).await {
        Ok(decision) => decision.is_allowed(),
        Err(_) => false,
    }
}

async fn send(State(limiter): State<Limiter>) -> StatusCode {
    if may_send(&limiter, "ann").await {
        StatusCode::OK
    } else {
        StatusCode::TOO_MANY_REQUESTS
    }
}

async fn status(app: &Router) -> StatusCode {
    let request = Request::get("/").body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap().status()
}

#[tokio::test]
async fn is_the_state_of_a_router() -> Result<(), ConfigError> {
    let limiter = Limiter::builder().policy(mails(1)).build()?;
    let app = Router::new().route("/", get(send)).with_state(limiter);
    assert_eq!(status(&app).await, StatusCode::OK);
    assert_eq!(status(&app).await, StatusCode::TOO_MANY_REQUESTS);
    Ok(())
}

#[tokio::test]
async fn of_a_layer_is_the_state_of_a_router() {
    let layer = RateLimitLayer::new(key::global(), FixedWindow::per_hour(100));
    let app = Router::new()
        .route("/", get(send))
        .with_state(layer.limiter())
        .layer(layer);
    assert_eq!(status(&app).await, StatusCode::OK);
}

struct Mailer {
    limiter: Limiter,
}

impl Mailer {
    fn new(limiter: impl Into<Limiter>) -> Self {
        let limiter = limiter.into();
        Self { limiter }
    }
}

/// A service that gets any store in production has one in memory, and a clock, in its tests.
#[tokio::test]
async fn in_memory_stands_in_for_any_other_in_a_test() -> Result<(), ConfigError> {
    let clock = ManualClock::new();
    let store = MemoryStore::new().clock(clock.clone());
    let mailer = Mailer::new(Limiter::builder().policy(mails(1)).store(store).build()?);
    assert!(may_send(&mailer.limiter, "ann").await);
    assert!(!may_send(&mailer.limiter, "ann").await);
    clock.advance(Duration::from_secs(3_600));
    assert!(may_send(&mailer.limiter, "ann").await);
    Ok(())
}

#[tokio::test]
async fn over_redis_is_a_field_and_an_argument() -> Result<(), Box<dyn std::error::Error>> {
    let store = RedisStore::new("redis://127.0.0.1:1/")?;
    let limiter: Limiter = Limiter::builder().policy(mails(1)).store(store).build()?;
    let mailer = Mailer { limiter };
    // The server is away, so this process decides.
    assert!(may_send(&mailer.limiter, "ann").await);
    Ok(())
}

#[tokio::test]
async fn is_shared_behind_an_arc_or_by_clones() -> Result<(), ConfigError> {
    let shared: Arc<Limiter> = Arc::new(Limiter::builder().policy(mails(2)).build()?);
    let clone: Limiter = Limiter::clone(&shared);
    assert!(may_send(&shared, "ann").await);
    assert!(may_send(&clone, "ann").await);
    assert!(!may_send(&shared, "ann").await);
    let _ = LimitLayer::new(
        clone,
        |user: &String| user.clone(),
        |_| Err(()) as Result<(), ()>,
    );
    Ok(())
}

/// A limiter in this process answers without `await`, and goes where any limiter goes.
#[tokio::test]
async fn a_local_one_becomes_one_of_any_store() -> Result<(), ConfigError> {
    let local: LocalLimiter = Limiter::builder().policy(mails(2)).build_local()?;
    let mailer = Mailer::new(local.clone());
    assert!(local.check("ann", 1).now().is_allowed());
    assert!(may_send(&mailer.limiter, "ann").await);
    assert!(!local.check("ann", 1).now().is_allowed());
    Ok(())
}
