//! The hooks of a layer: a closure that gets each decision, and the decision in the response.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use http::{Request, Response, StatusCode};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::key::IntoKey;
use tower_ratelimit::middleware::RateLimitLayerBuilder;
use tower_ratelimit::{Decision, FixedWindow, LeakyQueue, Policy, RateLimitLayer, key};

/// Sends a request, and returns its status and the decision in the response.
async fn send(layer: &RateLimitLayer, path: &str) -> (StatusCode, Option<Decision>) {
    let handler =
        service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
    let request = Request::get(path).header("x-user", "ann");
    let request = request.body(Body::empty()).unwrap();
    let response = layer.layer(handler).oneshot(request).await.unwrap();
    (response.status(), response.extensions().get().cloned())
}

fn builder() -> RateLimitLayerBuilder {
    RateLimitLayer::builder()
        .policy(Policy::new("all", FixedWindow::per_day(9)).key(key::global()))
        .policy(Policy::new("user", FixedWindow::per_day(1)).key(key::header("x-user")))
        .exempt_paths(["/health"])
}

#[tokio::test]
async fn a_hook_is_told_once_of_each_decision_with_head_and_key() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&told);
    let layer = builder()
        .on_decision(move |head, key, decision| {
            let binding = decision.binding().unwrap().0.to_owned();
            let path = head.path().to_owned();
            list.lock()
                .unwrap()
                .push((path, key, decision.is_allowed(), binding));
        })
        .build()
        .unwrap();
    for (path, status) in [("/a", 200), ("/b", 429), ("/health", 200)] {
        assert_eq!(send(&layer, path).await.0, status);
    }
    let user = || ("ann".into_key(), "user".to_owned());
    let expected = [("/a", true), ("/b", false)].map(|(path, is_allowed)| {
        let (key, policy) = user();
        (path.to_owned(), key, is_allowed, policy)
    });
    assert_eq!(*told.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_request_that_is_too_late_for_its_queue_is_told_as_refused_alone() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&told);
    let queue = LeakyQueue::per_hour(1).places(5);
    let layer = RateLimitLayer::builder()
        .policy(Policy::new("queue", queue).key(key::global()))
        .on_decision(move |_, _, decision| list.lock().unwrap().push(decision.is_allowed()))
        .build()
        .unwrap();
    let handler =
        service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
    for _ in 0..2 {
        let soon = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let request = Request::get("/").extension(tower_ratelimit::middleware::Deadline::at(soon));
        let request = request.body(Body::empty()).unwrap();
        layer.layer(handler).oneshot(request).await.unwrap();
    }
    assert_eq!(*told.lock().unwrap(), [true, false]);
    let snapshot = layer.monitor().snapshot();
    let queue = snapshot.policy("queue").unwrap();
    assert_eq!((queue.allowed, queue.refused, queue.waited), (1, 1, 0));
}

#[tokio::test]
async fn the_decision_is_in_the_response_if_it_was_asked_for() {
    for without_headers in [false, true] {
        let builder = builder().expose_decision_in_response();
        let builder = if without_headers {
            builder.without_headers()
        } else {
            builder
        };
        let layer = builder.build().unwrap();
        let (status, decision) = send(&layer, "/").await;
        let decision = decision.unwrap();
        assert_eq!((status, decision.is_allowed()), (StatusCode::OK, true));
        assert_eq!(decision.policies().count(), 2);
        let (status, decision) = send(&layer, "/").await;
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
        assert!(!decision.unwrap().is_allowed());
        assert!(send(&layer, "/health").await.1.is_none());
    }
    let layer = builder().build().unwrap();
    for _ in 0..2 {
        assert!(send(&layer, "/").await.1.is_none());
    }
}
