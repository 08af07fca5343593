//! Calls that wait: in order, for a bounded time, in bounded number, and never behind a call that was dropped or is
//! not polled.

use std::error::Error;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt};
use tower_ratelimit::client::{ClientThrottleError, ClientThrottleLayer, Reason, Throttled};

use crate::client::server::{Scripted, answer, call, client_of, polled};

const SERVER: &str = "http://api.example/";

fn spent(seconds: &str) -> http::Response<()> {
    answer(200, &[("ratelimit", &format!("\"a\";r=0;t={seconds}"))])
}

fn held<E>(error: &ClientThrottleError<E>) -> &Throttled {
    error.throttled().expect("the server was asked")
}

#[tokio::test(start_paused = true)]
async fn waiting_calls_go_in_the_order_in_which_they_came() {
    let told = |remaining: u32| answer(200, &[("ratelimit", &format!("\"a\";r={remaining};t=1"))]);
    let server = Scripted::new([spent("5"), told(3), told(2), told(1), told(0), told(9)]);
    let client = client_of(&server);
    call(&client, SERVER).await.unwrap();
    let start = Instant::now();
    let mut calls = JoinSet::new();
    for number in 0..6 {
        let client = client.clone();
        calls.spawn(async move {
            let target = format!("{SERVER}{number}");
            assert_eq!(call(&client, &target).await.unwrap(), 200);
            start.elapsed().as_secs()
        });
    }
    let mut waited = calls.join_all().await;
    waited.sort_unstable();
    assert_eq!(waited, [5, 5, 5, 5, 6, 6]);
    let order: Vec<_> = server.calls.lock().unwrap()[1..]
        .iter()
        .map(|target| target[SERVER.len()..].to_owned())
        .collect();
    assert_eq!(order, ["0", "1", "2", "3", "4", "5"]);
}

#[tokio::test(start_paused = true)]
async fn one_that_may_not_wait_for_so_long_is_told_at_once() {
    let server = Scripted::new([spent("5"), answer(200, &[])]);
    let layer = ClientThrottleLayer::new().wait_up_to(Duration::from_secs(4));
    let client = layer.layer(server.clone());
    call(&client, SERVER).await.unwrap();
    let start = Instant::now();
    let error = call(&client, SERVER).await.unwrap_err();
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(held(&error).reason(), Reason::TooLong);
    assert_eq!(held(&error).retry_after(), Duration::from_secs(5));
    assert_eq!(server.calls(), 1);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(call(&client, SERVER).await.unwrap(), 200);
    assert_eq!(start.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn one_whose_wait_becomes_too_long_is_told_when_it_does() {
    // The first after the hold is refused for longer than the second may wait.
    let server = Scripted::new([spent("3"), answer(429, &[("retry-after", "60")])]);
    let client = ClientThrottleLayer::new()
        .wait_up_to(Duration::from_secs(10))
        .layer(server.clone());
    call(&client, SERVER).await.unwrap();
    let start = Instant::now();
    let (first, second) = tokio::join!(call(&client, SERVER), call(&client, SERVER));
    assert_eq!(first.unwrap(), 429);
    assert_eq!(
        held(&second.unwrap_err()).retry_after(),
        Duration::from_secs(60)
    );
    assert_eq!(start.elapsed(), Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_may_not_wait_is_refused_while_another_goes_ahead() {
    let server = Scripted::stuck([]);
    let client = ClientThrottleLayer::new()
        .wait_up_to(Duration::ZERO)
        .layer(server.clone());
    let mut first = polled(call(&client, SERVER));
    assert!(first.poll().is_pending());
    let error = call(&client, SERVER).await.unwrap_err();
    assert_eq!(held(&error).reason(), Reason::TooLong);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_waiting_calls_is_bounded_and_one_that_leaves_makes_room() {
    let server = Scripted::new([spent("5"), answer(200, &[("ratelimit", "\"a\";r=9;t=1")])]);
    let client = ClientThrottleLayer::new()
        .wait_places(2)
        .layer(server.clone());
    call(&client, SERVER).await.unwrap();
    let mut first = polled(call(&client, SERVER));
    let mut second = polled(call(&client, SERVER));
    assert!(first.poll().is_pending() && second.poll().is_pending());
    let error = call(&client, SERVER).await.unwrap_err();
    assert_eq!(held(&error).reason(), Reason::TooMany);
    drop(first);
    let third = polled(call(&client, SERVER));
    let (second, third) = tokio::join!(second, third);
    assert_eq!([second.unwrap(), third.unwrap()], [200, 200]);
    assert_eq!(server.calls(), 3);
}

#[tokio::test(start_paused = true)]
async fn calls_behind_a_cancelled_one_go_on() {
    let server = Scripted::new([spent("5")]);
    let client = client_of(&server);
    call(&client, SERVER).await.unwrap();
    let start = Instant::now();
    let mut calls: Vec<_> = (0..100).map(|_| polled(call(&client, SERVER))).collect();
    for call in &mut calls {
        assert!(call.poll().is_pending());
    }
    let mut number = 0;
    calls.retain(|_| {
        number += 1;
        number % 3 == 0
    });
    let mut set = JoinSet::new();
    // The calls at the front are dropped once more while they wait.
    for call in calls.into_iter().skip(1) {
        set.spawn(async move { call.await.unwrap() });
    }
    assert_eq!(set.join_all().await, [200; 32]);
    assert_eq!(start.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_on_its_way_may_have_been_counted_and_lets_another_go_later() {
    let server = Scripted::stuck([]);
    let client = client_of(&server);
    let mut ahead = polled(call(&client, SERVER));
    let mut behind = polled(call(&client, SERVER));
    assert!(ahead.poll().is_pending() && behind.poll().is_pending());
    assert_eq!(server.calls(), 1);
    drop(ahead);
    assert!(behind.poll().is_pending());
    assert_eq!(server.calls(), 1);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(behind.poll().is_pending());
    assert_eq!(server.calls(), 2);
}

/// Callers that gave up after 50 ms had left their calls at the server, and the response to a later call had not counted them:
/// as many calls were sent above the limit.
#[tokio::test(start_paused = true)]
async fn calls_that_are_dropped_on_their_way_stay_counted_when_a_later_one_overtakes_them() {
    const DROPPED: usize = 10;
    let told = |remaining: u32| answer(200, &[("ratelimit", &format!("\"a\";r={remaining};t=60"))]);
    let dropped = (0..DROPPED).map(|_| answer(200, &[]));
    let answers = [told(99)].into_iter().chain(dropped);
    let server = Scripted::stuck(answers.chain([told(98), told(97)]));
    let client = client_of(&server);
    let answered = async || {
        server.may_answer.add_permits(1);
        call(&client, SERVER).await.unwrap();
    };
    let sent_of = |calls: usize| {
        let before = server.calls();
        let mut asked: Vec<_> = (0..calls).map(|_| polled(call(&client, SERVER))).collect();
        assert!(asked.iter_mut().all(|asked| asked.poll().is_pending()));
        (server.calls() - before, asked)
    };
    answered().await;
    let (sent, given_up) = sent_of(DROPPED);
    assert_eq!(sent, DROPPED);
    tokio::time::advance(Duration::from_millis(50)).await;
    drop(given_up);
    answered().await;
    // Two responses in a row know nothing of them.
    answered().await;
    let (sent, _asked) = sent_of(100);
    assert_eq!(sent, 97 - DROPPED);
}

/// A response to a call that was sent later has counted them.
#[tokio::test(start_paused = true)]
async fn calls_that_were_dropped_two_seconds_ago_are_part_of_what_a_response_tells() {
    let told = |remaining: u32| answer(200, &[("ratelimit", &format!("\"a\";r={remaining};t=60"))]);
    let server = Scripted::stuck([told(99), told(98), told(40), told(39)]);
    let client = client_of(&server);
    server.may_answer.add_permits(1);
    call(&client, SERVER).await.unwrap();
    let mut given_up = polled(call(&client, SERVER));
    assert!(given_up.poll().is_pending());
    drop(given_up);
    tokio::time::advance(Duration::from_secs(2)).await;
    for _ in 0..2 {
        server.may_answer.add_permits(1);
        call(&client, SERVER).await.unwrap();
    }
    let mut asked: Vec<_> = (0..50).map(|_| polled(call(&client, SERVER))).collect();
    assert!(asked.iter_mut().all(|asked| asked.poll().is_pending()));
    assert_eq!(server.calls(), 4 + 39);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_never_answered_holds_up_the_others_for_a_second() {
    let server = Scripted::stuck([]);
    let client = client_of(&server);
    let mut ahead = polled(call(&client, SERVER));
    assert!(ahead.poll().is_pending());
    let start = Instant::now();
    let behind = tokio::spawn({
        let client = client.clone();
        async move { call(&client, SERVER).await.unwrap() }
    });
    while server.calls() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(
        start.elapsed() <= Duration::from_millis(1_010),
        "{:?}",
        start.elapsed()
    );
    behind.abort();
}

#[tokio::test(start_paused = true)]
async fn one_that_is_not_polled_holds_up_the_others_for_a_second() {
    let server = Scripted::new([spent("5"), answer(200, &[("ratelimit", "\"a\";r=99;t=1")])]);
    let client = client_of(&server);
    call(&client, SERVER).await.unwrap();
    let start = Instant::now();
    let mut idle = polled(call(&client, SERVER));
    assert!(idle.poll().is_pending());
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        let client = client.clone();
        calls.spawn(async move { call(&client, SERVER).await.unwrap() });
    }
    assert_eq!(calls.join_all().await, [200; 20]);
    assert_eq!(start.elapsed(), Duration::from_secs(6));
    assert_eq!(idle.await.unwrap(), 200);
}

#[tokio::test(start_paused = true)]
async fn several_that_are_not_polled_hold_up_the_others_for_a_second_each() {
    for number in 2..=5_u32 {
        let told = answer(200, &[("ratelimit", "\"a\";r=99;t=1")]);
        let server = Scripted::new([spent("5"), told]);
        let client = client_of(&server);
        call(&client, SERVER).await.unwrap();
        let mut idle: Vec<_> = (0..number).map(|_| polled(call(&client, SERVER))).collect();
        assert!(idle.iter_mut().all(|call| call.poll().is_pending()));
        let start = Instant::now();
        let mut calls = JoinSet::new();
        for _ in 0..20 {
            let client = client.clone();
            calls.spawn(async move { call(&client, SERVER).await.unwrap() });
        }
        let longest = Duration::from_secs(60);
        let answers = tokio::time::timeout(longest, calls.join_all()).await;
        assert_eq!(answers.expect("held up for ever"), [200; 20]);
        let held_up = start.elapsed().saturating_sub(Duration::from_secs(5));
        assert!(
            held_up <= Duration::from_secs((number + 1).into()),
            "{held_up:?}"
        );
        for idle in idle {
            assert_eq!(idle.await.unwrap(), 200);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_request_takes_nothing_of_the_inner_service() {
    let server = Scripted::new([spent("5")]);
    let client = ClientThrottleLayer::new().layer(ConcurrencyLimit::new(server, 1));
    call(&client, SERVER).await.unwrap();
    let mut waiting = polled(call(&client, SERVER));
    assert!(waiting.poll().is_pending());
    assert_eq!(call(&client, "http://other.example/").await.unwrap(), 200);
    assert_eq!(waiting.await.unwrap(), 200);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_server_is_passed_on_and_lets_another_go() {
    let broken = tower::service_fn(async |_: http::Request<()>| {
        Err::<http::Response<()>, _>(std::io::Error::other("no route"))
    });
    let client = ClientThrottleLayer::new().layer(broken);
    let start = Instant::now();
    for _ in 0..3 {
        let error = call(&client, SERVER).await.unwrap_err();
        assert!(error.throttled().is_none());
        assert_eq!(error.source().unwrap().to_string(), "no route");
        assert_eq!(error.into_boxed().to_string(), "no route");
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_be_reached_keeps_no_request_waiting_for_long() {
    let unreachable = tower::service_fn(async |_: http::Request<()>| {
        tokio::time::sleep(Duration::from_secs(10)).await;
        Err::<http::Response<()>, _>(std::io::Error::other("timed out"))
    });
    let client = ClientThrottleLayer::new().layer(unreachable);
    let start = Instant::now();
    let mut calls = JoinSet::new();
    for _ in 0..100 {
        let client = client.clone();
        calls.spawn(async move { call(&client, SERVER).await.is_err() });
    }
    assert_eq!(calls.join_all().await, [true; 100]);
    // One by one it would be a thousand.
    assert!(
        start.elapsed() < Duration::from_secs(60),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn without_a_runtime_no_request_is_held_and_nothing_panics() {
    no_request_is_held();
}

#[test]
fn without_timers_no_request_is_held_and_nothing_panics() {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.unwrap();
    let _within = runtime.enter();
    no_request_is_held();
}

fn no_request_is_held() {
    let server = Scripted::new([spent("5")]);
    let client = client_of(&server);
    let ask = || polled(call(&client, SERVER)).poll();
    assert!(matches!(ask(), std::task::Poll::Ready(Ok(200))));
    let std::task::Poll::Ready(Err(error)) = ask() else {
        panic!("it was held");
    };
    assert_eq!(held(&error).reason(), Reason::NoTimer);
}

#[tokio::test]
async fn its_types_can_be_sent() {
    fn can_be_sent<T: Send>(_: &T) {}
    let mut client = client_of(&Scripted::new([]));
    can_be_sent(&client);
    let future = client.ready().await.unwrap().call(http::Request::new(()));
    can_be_sent(&future);
    future.await.unwrap();
}
