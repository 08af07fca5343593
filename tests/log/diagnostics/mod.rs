//! A server with a wrong set-up: the responses to its clients, and the log for its operators.
//!
//! In a process of their own, because each diagnostic is logged once per process. There is one test for each
//! diagnostic.

mod files;
mod keys;
mod layers;
mod plans;
mod policies;
mod stores;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use tower::ServiceExt;
use tower_ratelimit::diagnostics::Diagnostic;
use tower_ratelimit::key::{Extract, Missing};
use tower_ratelimit::response::Refusal;
use tower_ratelimit::{RateLimitLayer, TokenBucket};
use tracing::Level;

use crate::support::log::{Log, LogLine};

struct Received {
    status: StatusCode,
    content_type: String,
    body: String,
    refusal: Refusal,
}

/// The answers to this many requests, and what was logged meanwhile.
fn ask(limit: &RateLimitLayer, times: usize) -> (Vec<Received>, Vec<LogLine>) {
    let app: Router = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(limit.clone());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let ask = || async {
        let response = app.clone().oneshot(Request::new(Body::empty())).await;
        let (head, body) = response.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Received {
            status: head.status,
            content_type: head.headers["content-type"].to_str().unwrap().to_owned(),
            body: String::from_utf8(body.into()).unwrap(),
            refusal: head.extensions.get().cloned().unwrap(),
        }
    };
    Log::of(|| (0..times).map(|_| runtime.block_on(ask())).collect())
}

fn limit(key: impl Extract) -> RateLimitLayer {
    RateLimitLayer::new(key, TokenBucket::per_second(1))
}

/// Asserts that each answer is a 500 that does not show the cause to the client, and carries the diagnostic for outer
/// layers.
#[track_caller]
fn diagnostic_of(answers: &[Received]) -> Diagnostic {
    let diagnostics = answers.iter().map(|answer| {
        assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(answer.content_type, "application/problem+json");
        assert_eq!(
            answer.body,
            r#"{"type":"about:blank","title":"Internal Server Error","status":500}"#
        );
        match answer.refusal {
            Refusal::MissingKey(Missing::ByServer(diagnostic)) => diagnostic,
            ref other => panic!("{other:?}"),
        }
    });
    let diagnostics: Vec<_> = diagnostics.collect();
    assert!(diagnostics.windows(2).all(|pair| pair[0] == pair[1]));
    diagnostics[0]
}

/// Asserts that the log has one line, a warning with this code and this subject.
#[track_caller]
fn assert_warns_once(lines: &[LogLine], code: &str, subject: &str) {
    let [line] = lines else {
        panic!("{lines:?}");
    };
    assert_eq!(line.level, Level::WARN);
    let told = ["code", "subject"].map(|name| &*line.fields[name]);
    assert_eq!(told, [code, subject]);
    let page = include_str!("../../../docs/diagnostics.md");
    assert!(
        page.contains(&format!("# `{code}`: ")),
        "{code} has no page"
    );
}

/// Asserts that the log has one line, an error with all parts of a diagnostic.
#[track_caller]
fn assert_logs_once(lines: &[LogLine], diagnostic: &Diagnostic) {
    let [line] = lines else {
        panic!("{lines:?}");
    };
    assert_eq!(line.level, Level::ERROR);
    let expected = [
        ("code", diagnostic.code()),
        ("message", diagnostic.problem()),
        ("remedy", diagnostic.remedy()),
        ("subject", diagnostic.subject()),
    ];
    let expected = expected.map(|(name, value)| (name, value.to_owned()));
    assert_eq!(line.fields, expected.into());
}

/// Returns the answers of a router to this many requests without a key, and the log meanwhile.
fn statuses(app: &Router, times: usize) -> (Vec<StatusCode>, Vec<LogLine>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    Log::of(|| {
        let ask = || app.clone().oneshot(Request::new(Body::empty()));
        let ask = |_| runtime.block_on(ask()).unwrap().status();
        (0..times).map(ask).collect()
    })
}

fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(future)
}

#[derive(Clone)]
struct User {
    id: u64,
}
