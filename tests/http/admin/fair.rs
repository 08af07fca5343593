//! The page for a limit that is divided among tenants.

use std::io;
use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::connect_info::MockConnectInfo;
use axum::routing::get;
use http::Request;
use serde_json::{Value, json};
use tower_ratelimit::plan::{Plan, Plans, Resolved, Resolver};
use tower_ratelimit::policy::Fair;
use tower_ratelimit::{ManualClock, MemoryStore, Policy, RateLimitLayer, TokenBucket, key};
use tower_ratelimit_ops::admin::{self, Access, Handle};

use crate::admin::{HERE, post, send, snapshot, told};

/// A layer whose tenants are told by a header, and their plans by another one, or by a resolver that fails.
fn app(fair: Fair, fails: bool) -> Router {
    let upstream = Policy::new("upstream", TokenBucket::per_hour(100))
        .key(key::global())
        .fair_by(key::header("x-tenant"), fair);
    let plans = Plans::new([Plan::new("free"), Plan::new("pro")]);
    let mut builder = RateLimitLayer::builder()
        .policy(upstream)
        .store(MemoryStore::new().clock(ManualClock::new()))
        .plans(plans, |head| head.header("x-plan").map(str::to_owned));
    if fails {
        let away = |_: String| async { Err::<Resolved, _>(io::Error::other("away")) };
        let customer = |head: &key::Head<'_>| head.header("x-tenant").map(str::to_owned);
        builder = builder.resolver(Resolver::new(away), customer);
    }
    let layer = builder.build().unwrap();
    let page = Handle::from(&layer).client(|text| request(text).body(()).ok());
    Router::new()
        .route("/", get(|| async {}))
        .layer(layer)
        .nest(
            "/dashboard",
            admin::router(page, Access::loopback().writable()),
        )
        .layer(MockConnectInfo(SocketAddr::from(HERE)))
}

/// A request of a tenant, such as `ann` or `pro/ann`.
fn request(text: &str) -> http::request::Builder {
    match text.split_once('/') {
        Some((plan, tenant)) => Request::get("/")
            .header("x-tenant", tenant)
            .header("x-plan", plan),
        None => Request::get("/").header("x-tenant", text),
    }
}

async fn status(app: &Router, text: &str) -> u16 {
    let request = request(text).body(Body::empty()).unwrap();
    send(app, request).await.status().as_u16()
}

async fn answer(app: &Router, path: &str, question: Value) -> Value {
    let path = format!("/dashboard/{path}");
    let (status, answer) = told(send(app, post(&path, &question)).await).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

#[tokio::test]
async fn the_page_tells_the_share_of_a_client_and_how_many_are_active() {
    let app = app(Fair::new().weight("pro", 4), false);
    for tenant in ["ann", "bob", "pro/pia"] {
        assert_eq!(status(&app, tenant).await, 200);
    }
    let client = answer(&app, "inspect", json!({ "key": "pro/pia" })).await;
    let upstream = &client["policies"][0];
    assert_eq!(upstream["tenants"], 3);
    assert_eq!(upstream["weight"], 4);
    assert!((upstream["share"].as_f64().unwrap() - 4.0 / 6.0).abs() < 1e-9);
    let sentence = upstream["sentence"].as_str().unwrap();
    assert!(sentence.contains("its share is 4/6"), "{sentence}");
    let keys = &snapshot(&app).await["policies"][0]["keys"];
    assert_eq!(keys["tenants"], 3, "{keys}");
}

/// A resolver that fails leaves the client without a plan, and all clients that the operator does not mean.
#[tokio::test]
async fn a_block_is_of_the_client_while_its_plan_cannot_be_looked_up() {
    let unverified = || Fair::new().unverified_together();
    let app_without = app(unverified(), true);
    assert_eq!(status(&app_without, "ann").await, 200);
    answer(
        &app_without,
        "block",
        json!({ "key": "ann", "seconds": 60 }),
    )
    .await;
    assert_eq!(status(&app_without, "mallory").await, 200);
    // It is known that this one has no plan, and is one of all that have none.
    let app = app(unverified(), false);
    answer(&app, "block", json!({ "key": "ann", "seconds": 60 })).await;
    assert_eq!(status(&app, "mallory").await, 429);
    assert_eq!(status(&app, "pro/pia").await, 200);
}
