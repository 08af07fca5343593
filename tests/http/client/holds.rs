//! The limits that the client learns, and the time for which they hold calls.

use std::time::Duration;

use tokio::time::Instant;
use tower::Layer;
use tower_ratelimit::client::{ClientThrottleLayer, host};
use tower_ratelimit::key::{self, Head};

use crate::client::server::{Scripted, answer, call, client_of, polled};

const SERVER: &str = "http://api.example/";

/// Returns how long the second call is held after this answer to the first.
async fn held_by(layer: ClientThrottleLayer, status: u16, fields: &[(&str, &str)]) -> Duration {
    let client = layer.layer(Scripted::new([answer(status, fields)]));
    assert_eq!(
        call(&client, SERVER).await.unwrap(),
        status,
        "passed through"
    );
    let start = Instant::now();
    assert_eq!(call(&client, SERVER).await.unwrap(), 200);
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn further_calls_are_held_until_the_time_told() {
    let seconds = Duration::from_secs;
    for (status, fields, wait) in [
        (429, &[("retry-after", "7")][..], 7),
        (503, &[("retry-after", "7")], 7),
        (429, &[("ratelimit", "\"default\";r=0;t=50")], 50),
        (200, &[("ratelimit", "\"default\";r=0;t=50")], 50),
        (
            403,
            &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "30")],
            30,
        ),
        (
            429,
            &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "30")],
            30,
        ),
        (429, &[("retry-after", "0")], 0),
        // The answer has no time, so the hold is long enough not to ask too often.
        (429, &[], 1),
        (200, &[("ratelimit", "\"default\";r=0")], 1),
        // The answer has no limit.
        (503, &[], 0),
        (200, &[("retry-after", "7")], 0),
        (200, &[("ratelimit", "\"default\";r=1;t=50")], 0),
        (500, &[], 0),
    ] {
        let held = held_by(ClientThrottleLayer::new(), status, fields).await;
        assert_eq!(held, seconds(wait), "{status} {fields:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn advice_is_capped() {
    let forever = [("retry-after", "99999999999999")];
    let hour = Duration::from_secs(3_600);
    assert_eq!(
        held_by(ClientThrottleLayer::new(), 429, &forever).await,
        hour
    );
    let minute = Duration::from_secs(60);
    let layer = ClientThrottleLayer::new().max_hold(minute);
    assert_eq!(held_by(layer, 429, &forever).await, minute);
    let years = ClientThrottleLayer::new().max_hold(Duration::MAX);
    let held = held_by(years, 429, &forever).await;
    assert!(held > Duration::from_secs(29 * 365 * 86_400), "{held:?}");
}

#[tokio::test(start_paused = true)]
async fn each_server_is_held_alone_and_all_clones_know() {
    let server = Scripted::new([answer(429, &[("retry-after", "7")])]);
    let layer = ClientThrottleLayer::new();
    let client = layer.layer(server.clone());
    assert_eq!(call(&client, SERVER).await.unwrap(), 429);
    let start = Instant::now();
    assert_eq!(call(&client, "http://other.example/").await.unwrap(), 200);
    assert_eq!(start.elapsed(), Duration::ZERO);
    let request = http::Request::get("http://API.example:80/x")
        .body(())
        .unwrap();
    let held = layer.remaining_hold(host(&Head::of(&request)));
    assert_eq!(held, Some(Duration::from_secs(7)));
    // Another service of the same layer.
    let other = layer.layer(server);
    assert_eq!(call(&other, "http://API.example:80/x").await.unwrap(), 200);
    assert_eq!(start.elapsed(), Duration::from_secs(7));
    assert_eq!(layer.remaining_hold(host(&Head::of(&request))), None);
}

#[tokio::test(start_paused = true)]
async fn a_key_of_the_callers_own_is_held_apart_and_a_call_without_one_never() {
    let refuse = || answer(429, &[("retry-after", "7")]);
    let server = Scripted::new([refuse(), refuse()]);
    let layer = ClientThrottleLayer::new().key(key::header("x-token"));
    let client = layer.layer(server.clone());
    let send = async |token: Option<&str>| {
        let mut request = http::Request::get(SERVER);
        if let Some(token) = token {
            request = request.header("x-token", token);
        }
        let request = request.body(()).unwrap();
        let response = tower::ServiceExt::oneshot(client.clone(), request).await;
        response.unwrap().status().as_u16()
    };
    let start = Instant::now();
    assert_eq!(send(Some("a")).await, 429);
    assert_eq!(send(None).await, 429);
    assert_eq!(send(None).await, 200);
    assert_eq!(send(Some("b")).await, 200);
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(layer.remaining_hold("a"), Some(Duration::from_secs(7)));
    assert_eq!(send(Some("a")).await, 200);
    assert_eq!(start.elapsed(), Duration::from_secs(7));
}

#[tokio::test(start_paused = true)]
async fn the_later_end_of_two_holds_counts() {
    let script = [
        answer(200, &[("ratelimit", "\"a\";r=9;t=9")]),
        answer(429, &[("retry-after", "20")]),
        answer(200, &[("ratelimit", "\"a\";r=0;t=3")]),
        answer(200, &[("ratelimit", "\"a\";r=5;t=3")]),
    ];
    let server = Scripted::stuck(script);
    let client = client_of(&server);
    server.may_answer.add_permits(1);
    assert_eq!(call(&client, SERVER).await.unwrap(), 200);
    let start = Instant::now();
    let mut calls: Vec<_> = (0..3).map(|_| polled(call(&client, SERVER))).collect();
    assert!(calls.iter_mut().all(|call| call.poll().is_pending()));
    server.may_answer.add_permits(4);
    for (call, status) in calls.into_iter().zip([429, 200, 200]) {
        assert_eq!(call.await.unwrap(), status);
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(call(&client, SERVER).await.unwrap(), 200);
    assert_eq!(start.elapsed(), Duration::from_secs(20));
}

#[tokio::test(start_paused = true)]
async fn one_call_goes_ahead_until_something_is_known_of_a_server() {
    let server = Scripted::stuck([answer(200, &[("ratelimit", "\"a\";r=2;t=9")])]);
    let client = client_of(&server);
    let mut calls: Vec<_> = (0..9).map(|_| polled(call(&client, SERVER))).collect();
    assert!(calls.iter_mut().all(|call| call.poll().is_pending()));
    assert_eq!(server.calls(), 1);
    server.may_answer.add_permits(1);
    assert!(calls.remove(0).poll().is_ready());
    // The response said that two remain.
    assert!(calls.iter_mut().all(|call| call.poll().is_pending()));
    assert_eq!(server.calls(), 3);
}

#[tokio::test(start_paused = true)]
async fn calls_in_flight_are_subtracted_from_the_remaining_units() {
    // Of four calls at once, the first response says that seven remain. The server may have counted three of them
    // after it.
    let told = |remaining: &str| answer(200, &[("ratelimit", &format!("\"a\";r={remaining};t=9"))]);
    let server = Scripted::stuck(["11", "7", "8", "9", "10"].map(told));
    let client = client_of(&server);
    server.may_answer.add_permits(1);
    assert_eq!(call(&client, SERVER).await.unwrap(), 200);
    let mut four: Vec<_> = (0..4).map(|_| polled(call(&client, SERVER))).collect();
    assert!(four.iter_mut().all(|call| call.poll().is_pending()));
    let mut more: Vec<_> = (0..20).map(|_| polled(call(&client, SERVER))).collect();
    assert!(more.iter_mut().all(|call| call.poll().is_pending()));
    assert_eq!(server.calls(), 1 + 11, "it was told of eleven");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_tells_nothing_is_called_by_all_at_once_until_it_refuses() {
    let server = Scripted::stuck([answer(200, &[])]);
    let client = client_of(&server);
    server.may_answer.add_permits(1);
    assert_eq!(call(&client, SERVER).await.unwrap(), 200);
    let mut calls: Vec<_> = (0..500).map(|_| polled(call(&client, SERVER))).collect();
    assert!(calls.iter_mut().all(|call| call.poll().is_pending()));
    assert_eq!(server.calls(), 501);
}

#[tokio::test(start_paused = true)]
async fn after_a_refusal_without_numbers_calls_come_back_one_by_one_and_then_more() {
    let server = Scripted::stuck([answer(200, &[]), answer(429, &[("retry-after", "5")])]);
    let client = client_of(&server);
    server.may_answer.add_permits(2);
    assert_eq!(call(&client, SERVER).await.unwrap(), 200);
    assert_eq!(call(&client, SERVER).await.unwrap(), 429);
    let mut calls: Vec<_> = (0..50).map(|_| polled(call(&client, SERVER))).collect();
    assert!(calls.iter_mut().all(|call| call.poll().is_pending()));
    tokio::time::advance(Duration::from_secs(5)).await;
    let mut on_their_way = Vec::new();
    for _ in 0..4 {
        let before = server.calls();
        calls.retain_mut(|call| call.poll().is_pending());
        // A call that has gone is polled first the next time.
        calls.retain_mut(|call| call.poll().is_pending());
        on_their_way.push(server.calls() - before);
        server.may_answer.add_permits(server.calls() - before);
    }
    assert_eq!(on_their_way, [1, 2, 4, 8]);
}
