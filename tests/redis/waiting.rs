//! Requests that wait before a layer of HTTP while the server goes away.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_ratelimit::middleware::Deadline;
use tower_ratelimit::policy::Http;
use tower_ratelimit::response::Refusal;
use tower_ratelimit::{AnchoredWindow, OnStoreFailure, Policy, RateLimitLayer, RedisStore, key};

use crate::scene::{MINUTE, patient};
use crate::support::redis::Server;
use crate::without::lose;

fn service(
    store: &RedisStore,
    policies: impl IntoIterator<Item = Policy<Http>>,
) -> impl Service<Request<()>, Response = Response<()>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static {
    let layer = RateLimitLayer::builder()
        .policies(policies)
        .store(store.clone());
    let inner = service_fn(async |_: Request<()>| Ok(Response::new(String::new())));
    let service = layer.build().unwrap().layer(inner);
    service.map_response(|response| response.map(drop))
}

/// One that does not wait for long.
fn hurried() -> Request<()> {
    let mut request = Request::new(());
    let deadline = Deadline::after(Duration::from_secs(1));
    request.extensions_mut().insert(deadline);
    request
}

fn wait(response: &Response<()>) -> Duration {
    match response.extensions().get() {
        Some(Refusal::Denied(decision)) => decision.retry_after().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// A request that finds others waiting asks when its turn would be, and charges nothing. While the server was
/// away, the answer left out the policy that lets everything go on, and nothing else denied it: so each
/// request passed by what it had only foreseen, and 200 of 200 passed under a limit of 5 a day.
#[tokio::test]
async fn what_was_only_foreseen_never_passes() {
    let server = Server::start(&[]);
    let store = patient().nodes(1).open(&server.url()).unwrap();
    let minute = Policy::new("minute", AnchoredWindow::per_minute(1))
        .on_store_failure(OnStoreFailure::Allow)
        .wait_up_to(MINUTE)
        .key(key::global());
    let day = Policy::new("day", AnchoredWindow::per_day(5)).key(key::global());
    let service = service(&store, [minute, day]);
    let send = |request| service.clone().oneshot(request);
    assert_eq!(send(hurried()).await.unwrap().status(), StatusCode::OK);
    let waits = tokio::spawn(send(Request::new(())));
    let mut told = wait(&send(hurried()).await.unwrap());
    while told <= MINUTE {
        told = wait(&send(hurried()).await.unwrap());
    }
    lose(&server, &store).await;
    let mut passed = 0;
    for _ in 0..200 {
        let status = send(Request::new(())).await.unwrap().status();
        passed += u32::from(status == StatusCode::OK);
    }
    assert!(!waits.is_finished(), "it waits for what Redis has told");
    waits.abort();
    assert_eq!(passed, 5);
}
