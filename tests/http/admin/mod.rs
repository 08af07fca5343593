//! The operator's page: access, changes, and its end.

mod access;
mod changes;
mod fair;
mod questions;
mod shadow;
mod tree;
mod viewers;

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::connect_info::MockConnectInfo;
use axum::routing::get;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;
use tower_ratelimit::key::{self, Head, Secret};
use tower_ratelimit::plan::{Plan, Plans};
use tower_ratelimit::{FixedWindow, ManualClock, MemoryStore, Policy, RateLimitLayer, TokenBucket};
use tower_ratelimit_ops::admin::{self, Access, Handle};

const HERE: ([u8; 4], u16) = ([127, 0, 0, 1], 40_000);

/// Customers by hashed API key; the prefix of the key is the plan.
fn layer() -> RateLimitLayer {
    let secret = Secret::new("a secret of sixteen bytes").unwrap();
    let minute = |limit| FixedWindow::per_minute(limit);
    let plans = Plans::new([
        Plan::new("free").limit("minute", minute(10)),
        Plan::new("pro").limit("minute", minute(100)),
    ]);
    RateLimitLayer::builder()
        .policy(Policy::new("minute", minute(10)).key(key::api_key().hashed(&secret)))
        .policy(
            Policy::new("all", TokenBucket::per_second(500).burst(1_000))
                .ignore_plans()
                .key(key::global()),
        )
        .plans(plans, |head: &Head<'_>| {
            head.header("x-api-key")?
                .split('-')
                .next()
                .map(str::to_owned)
        })
        .store(MemoryStore::new().clock(ManualClock::new()))
        .adjustable()
        .build()
        .unwrap()
}

fn client(text: &str) -> Option<Request<()>> {
    Request::get("/").header("x-api-key", text).body(()).ok()
}

fn app(access: Access) -> Router {
    let layer = layer();
    let page = Handle::from(&layer).client(client);
    Router::new()
        .route("/", get(|| async {}))
        .layer(layer)
        .nest("/dashboard", admin::router(page, access))
        .layer(MockConnectInfo(SocketAddr::from(HERE)))
}

fn writable() -> Router {
    app(Access::loopback().writable())
}

async fn send(app: &Router, request: Request<Body>) -> Response<Body> {
    app.clone().oneshot(request).await.unwrap()
}

fn ask(path: &str) -> http::request::Builder {
    Request::builder()
        .uri(path)
        .header("host", "localhost:3000")
}

fn post(path: &str, question: &Value) -> Request<Body> {
    let request = ask(path)
        .method("POST")
        .header("content-type", "application/json");
    request.body(question.to_string().into()).unwrap()
}

async fn told(response: Response<Body>) -> (StatusCode, Value) {
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

async fn snapshot(app: &Router) -> Value {
    let request = ask("/dashboard/snapshot").body(Body::empty()).unwrap();
    told(send(app, request).await).await.1
}

async fn status_of_a_request(app: &Router, key: &str) -> StatusCode {
    let request = Request::get("/").header("x-api-key", key);
    send(app, request.body(Body::empty()).unwrap())
        .await
        .status()
}

const ROUTES: [(&str, &str); 9] = [
    ("GET", ""),
    ("GET", "/events"),
    ("GET", "/history"),
    ("GET", "/snapshot"),
    ("POST", "/inspect"),
    ("POST", "/block"),
    ("POST", "/unblock"),
    ("POST", "/reset"),
    ("POST", "/limits"),
];

/// Sends this request to each route, with one more header.
async fn all(app: &Router, header: (&str, &str)) -> Vec<(String, StatusCode)> {
    let mut answers = Vec::new();
    for (method, path) in ROUTES {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("/dashboard{path}"));
        if header.0 != "host" {
            request = request.header("host", "localhost:3000");
        }
        let request = request
            .header(header.0, header.1)
            .header("content-type", "application/json");
        let response = send(app, request.body(Body::from("{}")).unwrap()).await;
        answers.push((format!("{method} {path}"), response.status()));
    }
    answers
}
