//! Checks over sockets: an honest limiter, and one that lies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::IntoResponse;
use axum::routing::get;
use tower_ratelimit::{AnchoredWindow, RateLimitLayer, key};

use crate::server::{Server, run};

#[test]
fn an_honest_limiter_passes() {
    let policy = AnchoredWindow::new(10, Duration::from_secs(1)).unwrap();
    let layer = RateLimitLayer::new(key::header("x-api-key").or(key::peer_ip()), policy);
    let server = Server::of(
        Router::new()
            .route("/", get(|| async { "hello" }))
            .layer(layer),
    );
    let policy = ["--check", "--policy", "anchored-window 10/1s"];
    for load in [
        &["--rate", "50", "--duration", "3s"][..],
        &[
            "--rate",
            "50",
            "--duration",
            "3s",
            "--poisson",
            "--clients",
            "2",
        ],
        &["--burst", "20/700ms", "--duration", "3s"],
        &["--requests", "3000", "--concurrency", "20"],
        &["--duration", "3s", "--concurrency", "4", "--wait"],
    ] {
        let run = run(&[&[server.url.as_str()][..], load, &policy].concat());
        assert_eq!(run.code, 0, "{load:?}: {}{}", run.stdout, run.stderr);
        assert!(run.stdout.contains("Checks:"), "{}", run.stdout);
        assert!(run.number("Limited: ") > 0, "{}", run.stdout);
    }
}

/// Ten requests are admitted, then none, and every refusal has `Retry-After: 0`.
#[test]
fn a_lie_is_named_with_the_requests_that_show_it() {
    let asked = Arc::new(AtomicU64::new(0));
    let handler = move || {
        let number = asked.fetch_add(1, Ordering::Relaxed);
        async move {
            if number < 10 {
                return "hello".into_response();
            }
            (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, "0")]).into_response()
        }
    };
    let server = Server::of(Router::new().route("/", get(handler)));
    // Nothing shows the lie in a run that stands still, and then sends its requests at once.
    let words = ["--rate", "25", "--requests", "20", "--check"];
    let mut runs = (0..20).map(|_| run(&[&[server.url.as_str()][..], &words].concat()));
    let run = runs.find(|run| run.code != 0).unwrap();
    assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
    assert!(
        run.stdout.contains("BROKEN   retry-after-too-short"),
        "{}",
        run.stdout
    );
    // Which of the requests comes first is up to the machine.
    let (_, told) = run.stdout.split_once("request ").unwrap();
    let (number, told) = told.split_once(", ").unwrap();
    assert!(number.parse::<u32>().is_ok(), "{}", run.stdout);
    assert!(
        told.starts_with("client 0, node 0, sent "),
        "{}",
        run.stdout
    );
}

#[test]
fn nodes_that_count_apart_are_named() {
    let node = || {
        let policy = AnchoredWindow::new(10, Duration::from_secs(3_600)).unwrap();
        let layer = RateLimitLayer::new(key::peer_ip(), policy);
        Server::of(
            Router::new()
                .route("/", get(|| async { "hello" }))
                .layer(layer),
        )
    };
    let (one, two) = (node(), node());
    let words = [
        "--requests",
        "40",
        "--check",
        "--policy",
        "anchored-window 10/hour",
    ];
    let run = run(&[&[one.url.as_str(), two.url.as_str()][..], &words].concat());
    assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("BROKEN   nodes"), "{}", run.stdout);
}
