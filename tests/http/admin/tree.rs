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
