//! Ten thousand keys, and one more.

use std::time::Duration;

use tokio::time::Instant;
use tower::Layer;
use tower_ratelimit::client::{ClientThrottleError, ClientThrottleLayer};
use tower_ratelimit::key;

use crate::client::server::{Scripted, answer, polled};

/// Returns a client of a server that refuses the first call of each key, for as long as the key says.
fn refuser() -> impl tower::Service<
    http::Request<()>,
    Response = http::Response<()>,
    Error = std::convert::Infallible,
    Future: Send,
> + Clone {
    tower::service_fn(async |request: http::Request<()>| {
        let wait = request.headers()["wait"].to_str().unwrap();
        Ok(answer(429, &[("retry-after", wait)]))
    })
}

fn request(key: u32, wait: u32) -> http::Request<()> {
    let request = http::Request::get("/").header("key", key.to_string());
    request.header("wait", wait.to_string()).body(()).unwrap()
}

async fn ask<S, E: std::fmt::Debug>(client: &S, key: u32, wait: u32)
where
    S: tower::Service<
            http::Request<()>,
            Response = http::Response<()>,
            Error = ClientThrottleError<E>,
        > + Clone,
{
    let response = tower::ServiceExt::oneshot(client.clone(), request(key, wait)).await;
    assert_eq!(response.unwrap().status(), 429);
}

#[tokio::test(start_paused = true)]
async fn above_ten_thousand_keys_the_holds_that_end_first_are_forgotten() {
    let layer = ClientThrottleLayer::new().key(key::header("key"));
    let client = layer.layer(refuser());
    // The first ones are held for longest.
    for key in 0..10_000 {
        ask(&client, key, if key < 100 { 3_000 } else { 1_000 }).await;
    }
    for key in 10_000..19_900 {
        ask(&client, key, 2_000).await;
    }
    let is_on_hold = |key: &u32| layer.remaining_hold(key.to_string()).is_some();
    assert_eq!((0..100).filter(is_on_hold).count(), 100);
    assert_eq!((100..10_000).filter(is_on_hold).count(), 0);
    assert_eq!((10_000..19_900).filter(is_on_hold).count(), 9_900);
}

#[tokio::test(start_paused = true)]
async fn a_key_with_a_call_is_not_forgotten_and_one_without_room_goes_at_once() {
    let server = Scripted::stuck([]);
    let layer = ClientThrottleLayer::new()
        .key(key::header("key"))
        .max_keys(2);
    let client = layer.layer(server.clone());
    let start = |key| {
        let mut call = polled(tower::ServiceExt::oneshot(client.clone(), request(key, 0)));
        assert!(call.poll().is_pending());
        call
    };
    let first = start(1);
    let mut second = start(2);
    let [mut third, mut again] = [start(3), start(3)];
    assert_eq!(server.calls(), 4);
    let waiting = start(1);
    assert_eq!(server.calls(), 4);
    server.may_answer.add_permits(4);
    for call in [&mut second, &mut third, &mut again] {
        assert!(call.poll().is_ready());
    }
    // There is room for another now, and the first is still known to have a call.
    let (_fourth, _behind) = (start(4), start(4));
    assert_eq!(server.calls(), 5);
    drop((first, waiting));
}

#[tokio::test(start_paused = true)]
async fn ended_advice_is_forgotten_before_advice_that_holds() {
    let layer = ClientThrottleLayer::new()
        .key(key::header("key"))
        .max_keys(2);
    let client = layer.layer(refuser());
    ask(&client, 1, 60).await;
    ask(&client, 2, 5).await;
    let start = Instant::now();
    tokio::time::advance(Duration::from_secs(10)).await;
    ask(&client, 3, 60).await;
    assert!(layer.remaining_hold("1").is_some());
    assert!(layer.remaining_hold("2").is_none());
    assert!(layer.remaining_hold("3").is_some());
    assert_eq!(start.elapsed(), Duration::from_secs(10));
}
