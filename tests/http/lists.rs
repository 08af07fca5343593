//! Requests that a list decides, and no policy.

use http::{Request, StatusCode};
use tower_ratelimit::key::Head;
use tower_ratelimit::middleware::RateLimitLayerBuilder;
use tower_ratelimit::response::Refusal;
use tower_ratelimit::{AnchoredWindow, RateLimitLayer};

use crate::exchange::{Behind, Hello, ask, global};

fn one_a_day() -> RateLimitLayerBuilder {
    RateLimitLayer::builder().policy(global("all", AnchoredWindow::per_day(1)))
}

fn get(path: &str) -> Request<()> {
    Request::builder().uri(path).body(()).unwrap()
}

fn is_internal(head: &Head<'_>) -> bool {
    head.path().starts_with("/internal/")
}

#[test]
fn exempt_paths_have_no_limit_no_fields_and_cost_nothing() {
    let layer = one_a_day()
        .exempt_paths(["/health", "/ready"])
        .build()
        .unwrap();
    let service = Hello::behind(&layer);
    for path in [
        "/health",
        "/ready",
        "/health?verbose=1",
        "http://example.org/health",
    ] {
        for _ in 0..2 {
            let answer = ask(&service, get(path));
            assert_eq!(answer.status, StatusCode::OK, "{path}");
            answer.assert_no_fields();
        }
    }
    assert_eq!(ask(&service, get("/")).status, StatusCode::OK);
    for path in [
        "/",
        "/health/",
        "/healthy",
        "/Health",
        "/%68ealth",
        "//health",
        "/x/../health",
        "/x?/health",
    ] {
        assert_eq!(
            ask(&service, get(path)).status,
            StatusCode::TOO_MANY_REQUESTS,
            "{path}"
        );
    }
}

#[test]
fn a_path_that_no_request_has_is_refused_when_the_layer_is_built() {
    for path in ["health", "", "/health?x", "/static/*", "/{id}", "/#top"] {
        let error = one_a_day()
            .exempt_paths(["/ready", path])
            .build()
            .unwrap_err();
        assert_eq!(
            (error.field(), error.value()),
            ("exempt_paths", &*format!("{path:?}"))
        );
    }
}

#[test]
fn allowed_clients_have_no_limit_and_denied_clients_are_refused() {
    let layer = one_a_day()
        .allow(is_internal)
        .allow(|head| head.header("x-probe").is_some())
        .deny(|head| head.header("x-scraper").is_some())
        .deny(|head| head.path() == "/internal/secret")
        .exempt_paths(["/health"])
        .build()
        .unwrap();
    let service = Hello::behind(&layer);
    let with = |path: &str, name: &'static str| {
        let mut request = get(path);
        request.headers_mut().insert(name, "1".parse().unwrap());
        request
    };
    for _ in 0..3 {
        assert_eq!(ask(&service, get("/internal/x")).status, StatusCode::OK);
        assert_eq!(ask(&service, with("/", "x-probe")).status, StatusCode::OK);
    }
    // A request that is on both lists is denied.
    for request in [
        with("/", "x-scraper"),
        with("/health", "x-scraper"),
        with("/internal/x", "x-scraper"),
        get("/internal/secret"),
    ] {
        let answer = ask(&service, request);
        assert_eq!(answer.status, StatusCode::FORBIDDEN);
        assert_eq!(
            answer.text(),
            r#"{"type":"about:blank","title":"Forbidden","status":403}"#
        );
        assert_eq!(answer.field("cache-control"), Some("no-store"));
        answer.assert_no_fields();
        assert!(matches!(answer.refusal, Some(Refusal::Forbidden)));
    }
    // None of them was charged.
    assert_eq!(ask(&service, get("/")).status, StatusCode::OK);
    assert_eq!(
        ask(&service, get("/")).status,
        StatusCode::TOO_MANY_REQUESTS
    );
}
