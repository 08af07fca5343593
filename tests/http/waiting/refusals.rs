//! Requests that are refused although their policy lets requests wait.

use std::time::Duration;

use http::StatusCode;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tower_ratelimit::{
    Algorithm, AnchoredWindow, FixedWindow, LeakyQueue, RateLimitLayer, TokenBucket,
};

use super::{
    INTERVAL, SECOND, bucket, by_user, costing, layer, the_wait_told_behind_a_line_works, told,
    turns,
};
use crate::arrivals::{Arrivals, TICK, behind, hello_by_tokio, request, send, store};
use crate::exchange::{ask, cost, get, global};

#[tokio::test(start_paused = true)]
async fn a_request_whose_turn_comes_too_late_is_refused_at_once_with_a_wait_that_works() {
    let arrivals = Arrivals::new();
    let service = behind(
        &layer([by_user("a", bucket()).wait_up_to(SECOND)]),
        &arrivals,
    );
    for number in 0..=5 {
        send(&service, request(1, number)).await;
    }
    // The fifth waiting request leaves after a second; this one would be the sixth.
    let refused = timeout(TICK, send(&service, request(1, 6)).await);
    let refused = refused.await.unwrap().unwrap();
    assert_eq!(told(&refused), Some(6 * INTERVAL));
    assert_eq!(refused.field("retry-after"), Some("2"));
    assert_eq!(refused.field("ratelimit"), Some(r#""a";r=0;t=2"#));
    sleep(6 * INTERVAL).await;
    let again = Instant::now();
    let answer = send(&service, request(1, 7)).await.await.unwrap();
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(again.elapsed(), Duration::ZERO);
    let order: Vec<_> = arrivals.log().iter().map(|(number, _)| *number).collect();
    assert_eq!(order, [0, 1, 2, 3, 4, 5, 7]);
}

#[tokio::test(start_paused = true)]
async fn each_wait_that_is_told_behind_a_line_works_under_each_algorithm() {
    use tower_ratelimit::{AnchoredWindow, Gcra, SlidingLog, SlidingSlots, SlidingWindow};
    let algorithms: [Algorithm; 9] = [
        FixedWindow::per_second(3).into(),
        AnchoredWindow::per_second(3).into(),
        SlidingLog::per_second(3).into(),
        SlidingSlots::per_second(3).slots(4).unwrap().into(),
        SlidingWindow::per_second(3).into(),
        TokenBucket::per_second(3).into(),
        TokenBucket::per_second(3).by_interval().into(),
        Gcra::per_second(3).burst(2).into(),
        LeakyQueue::per_second(3).places(1).into(),
    ];
    for algorithm in algorithms {
        let patient = by_user("a", algorithm).wait_up_to(5 * SECOND);
        let layer = layer([patient.wait_places(8)]);
        the_wait_told_behind_a_line_works(&layer, algorithm).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_finds_no_place_is_refused_at_once_and_told_when_the_line_is_empty() {
    let arrivals = Arrivals::new();
    let patient = by_user("a", bucket()).wait_up_to(9 * SECOND).wait_places(2);
    let service = behind(&layer([patient]), &arrivals);
    for number in 0..3 {
        send(&service, request(1, number)).await;
    }
    let refused = timeout(TICK, send(&service, request(1, 3)).await);
    assert_eq!(told(&refused.await.unwrap().unwrap()), Some(3 * INTERVAL));
    // Other users have lines of their own.
    for number in 4..7 {
        send(&service, request(2, number)).await;
    }
    sleep(INTERVAL + TICK).await;
    send(&service, request(1, 7)).await.await.unwrap();
    let mut log = arrivals.log();
    log.retain(|(number, _)| ![4, 5, 6].contains(number));
    assert_eq!(log, turns([(0, 0), (1, 1), (2, 2), (7, 3)]));
}

/// A request that waits under one policy, and is then denied by another, moves to the line of that policy. The places
/// of a line were checked only when a request began to wait, so three requests stood in a line with one place.
#[tokio::test(start_paused = true)]
async fn places_are_bounded_for_requests_that_come_from_the_line_of_another_policy_too() {
    let arrivals = Arrivals::new();
    let minute = SECOND * 60;
    let layer = layer([
        global("all", bucket()).wait_up_to(9 * minute),
        by_user("user", AnchoredWindow::per_minute(1))
            .wait_up_to(9 * minute)
            .wait_places(1),
    ]);
    let service = behind(&layer, &arrivals);
    send(&service, request(9, 0)).await;
    let mut waiting = Vec::new();
    for number in 1..=4 {
        waiting.push(send(&service, request(1, number)).await);
    }
    // The first request goes on, the second finds the place, and the others are refused.
    sleep(SECOND).await;
    let ended: Vec<_> = waiting.iter().map(JoinHandle::is_finished).collect();
    assert_eq!(ended, [true, false, true, true]);
    for refused in waiting.split_off(2) {
        // Behind the waiting request.
        assert!(told(&refused.await.unwrap()) > Some(minute));
    }
    sleep(minute).await;
    assert_eq!(arrivals.log(), turns([(0, 0), (1, 1), (2, 301)]));
}

#[tokio::test(start_paused = true)]
async fn all_places_of_a_layer_together_are_bounded() {
    let builder = RateLimitLayer::builder().wait_places(3).store(store());
    let patient = by_user("a", bucket()).wait_up_to(9 * SECOND);
    let service = behind(&builder.policy(patient).build().unwrap(), &Arrivals::new());
    for user in 0..5 {
        send(&service, request(user, 0)).await;
    }
    let mut waiting = Vec::new();
    for user in 0..5 {
        waiting.push(send(&service, request(user, 1)).await);
    }
    let mut statuses = Vec::new();
    for sent in waiting {
        let answer = sent.await.unwrap();
        statuses.push(answer.status.as_u16());
        if answer.status != StatusCode::OK {
            assert_eq!(told(&answer), Some(INTERVAL));
        }
    }
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
}

#[tokio::test(start_paused = true)]
async fn a_denial_by_a_policy_that_does_not_wait_is_immediate() {
    let arrivals = Arrivals::new();
    let layer = layer([
        global("a", bucket()).wait_up_to(5 * SECOND),
        global("day", FixedWindow::per_day(2)),
    ]);
    let service = behind(&layer, &arrivals);
    send(&service, request(1, 0)).await;
    let second = send(&service, request(1, 1)).await;
    // Behind the second request, this one gets the wait of the daily policy, which may still admit it.
    second.await.unwrap();
    let refused = timeout(TICK, send(&service, request(1, 2)).await);
    let refused = refused.await.unwrap().unwrap();
    assert!(told(&refused) > Some(3_600 * SECOND));
    assert!(
        refused
            .text()
            .contains(r#""violated-policies":["a","day"]"#)
    );
    assert_eq!(arrivals.log(), turns([(0, 0), (1, 1)]));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_can_never_pass_does_not_wait() {
    let bucket = TokenBucket::per_second(5).burst(5);
    let patient = by_user("a", bucket).cost(cost).wait_up_to(99 * SECOND);
    let service = behind(&layer([patient]), &Arrivals::new());
    let never = timeout(TICK, send(&service, costing(0, 6)).await);
    assert_eq!(told(&never.await.unwrap().unwrap()), None);
    for number in 1..4 {
        send(&service, costing(number, 5)).await;
    }
    let never = timeout(TICK, send(&service, costing(4, 6)).await);
    let never = never.await.unwrap().unwrap();
    assert_eq!(told(&never), None);
    assert_eq!(never.field("retry-after"), None);

    let nothing = by_user("a", TokenBucket::per_second(0)).wait_up_to(Duration::MAX);
    let service = behind(&layer([nothing]), &Arrivals::new());
    let never = timeout(TICK, send(&service, request(1, 0)).await);
    assert_eq!(told(&never.await.unwrap().unwrap()), None);
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_zero_is_none_and_the_longest_one_overflows_nothing() {
    for patient in [
        by_user("a", FixedWindow::per_day(1)).wait_up_to(Duration::ZERO),
        by_user("a", FixedWindow::per_day(1))
            .wait_up_to(Duration::MAX)
            .wait_places(0),
    ] {
        let service = behind(&layer([patient]), &Arrivals::new());
        send(&service, request(1, 0)).await;
        let refused = timeout(TICK, send(&service, request(1, 1)).await);
        assert_eq!(
            told(&refused.await.unwrap().unwrap()),
            Some(86_400 * SECOND)
        );
    }
    let arrivals = Arrivals::new();
    let longest = FixedWindow::new(1, 366 * 86_400 * SECOND).unwrap();
    let patient = by_user("a", longest).wait_up_to(Duration::MAX);
    let service = behind(&layer([patient]), &arrivals);
    for number in 0..2 {
        send(&service, request(1, number)).await;
    }
    sleep(366 * 86_400 * SECOND).await;
    assert_eq!(arrivals.log().len(), 2);
}

#[test]
fn where_nothing_would_wake_it_a_request_is_refused_as_if_the_policy_did_not_wait() {
    let service = hello_by_tokio(global("a", bucket()).wait_up_to(SECOND));
    assert_eq!(ask(&service, get()).status, StatusCode::OK);
    assert_eq!(told(&ask(&service, get())), Some(INTERVAL));
}

#[test]
fn a_soft_policy_that_is_to_wait_is_refused_when_built() {
    let soft = || global("a", bucket()).soft();
    let builder = RateLimitLayer::builder().policy(soft().wait_up_to(SECOND));
    let error = builder.build().unwrap_err();
    assert_eq!((error.field(), error.value()), ("wait_up_to", r#""a""#));
    assert!(error.remedy().starts_with("let it not be soft"), "{error}");
    let builder = RateLimitLayer::builder().policy(soft().wait_up_to(Duration::ZERO));
    assert!(builder.build().is_ok());
}
