//! The page for limits above each other.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::connect_info::MockConnectInfo;
use axum::routing::get;
use http::Request;
use serde_json::{Value, json};
use tower_ratelimit::{FixedWindow, ManualClock, MemoryStore, Policy, RateLimitLayer, key};
use tower_ratelimit_ops::admin::{self, Access, Handle};

use crate::admin::{HERE, post, send, snapshot, told};

#[tokio::test]
async fn the_page_has_a_tree_and_the_keys_of_a_client_at_each_level() {
    let tree = Policy::tree("spend")
        .level("org", key::header("x-org"), FixedWindow::per_hour(9))
        .share("team", key::header("x-team"), 0.5)
        .build()
        .unwrap();
    let layer = RateLimitLayer::builder()
        .policies(tree)
        .store(MemoryStore::new().clock(ManualClock::new()))
        .build()
        .unwrap();
    let page = Handle::from(&layer).client(|text| {
        let (org, team) = text.split_once('/')?;
        let request = Request::get("/")
            .header("x-org", org)
            .header("x-team", team);
        request.body(()).ok()
    });
    let app = Router::new()
        .route("/", get(|| async {}))
        .layer(layer)
        .nest("/dashboard", admin::router(page, Access::loopback()))
        .layer(MockConnectInfo(SocketAddr::from(HERE)));
    for team in ["blue", "blue", "red"] {
        let request = Request::get("/")
            .header("x-org", "acme")
            .header("x-team", team);
        let response = send(&app, request.body(Body::empty()).unwrap()).await;
        assert_eq!(response.status(), 200);
    }
    let page = snapshot(&app).await;
    assert_eq!(page["levels"], json!({ "spend.team": "spend.org" }));
    let blue = json!({ "key": "acme/blue" });
    let (_, client) = told(send(&app, post("/dashboard/inspect", &blue)).await).await;
    let shown = |level: usize| {
        let its = &client["policies"][level];
        (
            its["policy"].clone(),
            its["below"].clone(),
            its["used"].clone(),
            its["limit"].clone(),
        )
    };
    assert_eq!(
        shown(0),
        ("spend.org".into(), Value::Null, 3.into(), 9.into())
    );
    assert_eq!(
        shown(1),
        ("spend.team".into(), "spend.org".into(), 2.into(), 5.into())
    );
    let sentence = client["policies"][1]["sentence"].as_str().unwrap();
    assert!(sentence.starts_with("2 of 5 used, 3 remain."), "{sentence}");
}

/// Others share the organisation.
#[tokio::test]
async fn a_change_concerns_the_lowest_level_of_which_the_client_has_a_key() {
    let tree = Policy::tree("spend")
        .level("org", key::header("x-org"), FixedWindow::per_hour(9))
        .level("team", key::header("x-team"), FixedWindow::per_hour(2))
        .build()
        .unwrap();
    let layer = RateLimitLayer::builder()
        .policies(tree)
        .policy(Policy::new("all", FixedWindow::per_hour(20)).key(key::header("x-team")))
        .store(MemoryStore::new().clock(ManualClock::new()))
        .build()
        .unwrap();
    let page = Handle::from(&layer).client(|text| {
        let (org, team) = text.split_once('/').unwrap_or((text, ""));
        let mut request = Request::get("/").header("x-org", org);
        if !team.is_empty() {
            request = request.header("x-team", team);
        }
        request.body(()).ok()
    });
    let app = Router::new()
        .route("/", get(|| async {}))
        .layer(layer)
        .nest(
            "/dashboard",
            admin::router(page, Access::loopback().writable()),
        )
        .layer(MockConnectInfo(SocketAddr::from(HERE)));
    let ask = async |team: &str| {
        let request = Request::get("/").header("x-org", "acme");
        let request = request.header("x-team", team).body(Body::empty());
        send(&app, request.unwrap()).await.status().as_u16()
    };
    let change = async |path: &str, body: Value| {
        let path = format!("/dashboard/{path}");
        told(send(&app, post(&path, &body)).await).await
    };
    change("block", json!({ "key": "acme/blue", "seconds": 60 })).await;
    assert_eq!([ask("blue").await, ask("red").await], [429, 200]);
    let (_, client) = change("inspect", json!({ "key": "acme/blue" })).await;
    assert_eq!(client["remedy"], "unblock");
    change("unblock", json!({ "key": "acme/blue" })).await;
    assert_eq!(
        [ask("blue").await, ask("blue").await, ask("blue").await],
        [200, 200, 429]
    );
    // What its organisation has used stays used.
    let (_, reset) = change("reset", json!({ "key": "acme/blue" })).await;
    let after = reset["after"].as_str().unwrap();
    assert!(
        after.contains("spend.org 3 of 9, spend.team 0 of 2"),
        "{after}"
    );

    // A client that has no team is its organisation, and a policy may be named.
    change("block", json!({ "key": "acme", "seconds": 60 })).await;
    assert_eq!([ask("blue").await, ask("red").await], [429, 429]);
    let (_, client) = change("inspect", json!({ "key": "acme/blue" })).await;
    assert_eq!(client["remedy"], Value::Null);
    let sentence = client["sentence"].as_str().unwrap();
    assert!(
        sentence.contains("Others share the key of spend.org"),
        "{sentence}"
    );
    let org = json!({ "key": "acme/blue", "policy": "spend.org" });
    let (_, ended) = change("unblock", org).await;
    assert_eq!(ended["was_blocked"], true);
    assert_eq!([ask("blue").await, ask("red").await], [200, 200]);
    let unknown = json!({ "key": "acme", "policy": "spend.team", "seconds": 60 });
    let (status, answer) = change("block", unknown).await;
    assert_eq!(status, 400);
    assert!(
        answer["error"]
            .as_str()
            .unwrap()
            .contains("does not count this client"),
        "{answer}"
    );
}
