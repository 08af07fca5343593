//! The log of a change by an operator.
//!
//! In a process of its own, because `tracing` may cache that a call site logs nothing on another thread.

use axum::Router;
use axum::body::Body;
use http::{Request, StatusCode};
use serde_json::{Value, json};
use tower::ServiceExt;
use tower_ratelimit::key::{self, Head};
use tower_ratelimit::{FixedWindow, Policy, RateLimitLayer};
use tower_ratelimit_ops::admin::{self, Access};
use tracing::Level;

use crate::support::log::Log;

fn post(path: &str, question: &Value, operator: Option<&str>) -> Request<Body> {
    let mut request = Request::post(format!("/dashboard/{path}"))
        .header("host", "localhost")
        .header("content-type", "application/json");
    if let Some(operator) = operator {
        request = request.header("x-operator", operator);
    }
    request.body(question.to_string().into()).unwrap()
}

#[test]
fn a_change_is_logged_with_operator_before_and_after_and_without_the_key() {
    let layer = RateLimitLayer::builder()
        .policy(Policy::new("minute", FixedWindow::per_minute(10)).key(key::api_key()))
        .adjustable()
        .build()
        .unwrap();
    let access = Access::check(|head: &Head<'_>| head.header("x-operator").map(str::to_owned));
    let app: Router = Router::new().nest("/dashboard", admin::router(layer, access.writable()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let send = |request: Request<Body>| {
        let answer = runtime.block_on(app.clone().oneshot(request));
        answer.unwrap().status()
    };

    let ((), lines) = Log::of(|| {
        let limit = json!({ "policy": "minute", "limit": 12 });
        assert_eq!(send(post("limits", &limit, None)), StatusCode::FORBIDDEN);
        assert_eq!(send(post("limits", &limit, Some("ann"))), StatusCode::OK);
        let block = json!({ "key": "k-secret", "seconds": 60 });
        assert_eq!(send(post("block", &block, Some("bob"))), StatusCode::OK);
    });
    let [limit, block] = &lines[..] else {
        panic!("{lines:#?}");
    };
    assert_eq!(limit.level, Level::INFO);
    for (field, value) in [
        ("operator", "ann"),
        ("verb", "limit"),
        ("subject", "policy minute"),
        ("before", "fixed-window 10/minute"),
        ("after", "fixed-window 12/minute"),
    ] {
        assert_eq!(limit.fields[field], value, "{field}");
    }
    assert_eq!(block.fields["operator"], "bob");
    assert_eq!(
        [&block.fields["before"], &block.fields["after"]],
        ["not blocked", "blocked for 60 s"]
    );
    assert!(!format!("{lines:?}").contains("k-secret"), "{lines:?}");
}
