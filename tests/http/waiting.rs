//! Requests that wait for their turn under any algorithm, and who does not, under a clock that tokio
//! has paused.

use std::fmt::Debug;
use std::time::Duration;

use http::{Request, StatusCode};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, ServiceExt};
use tower_ratelimit::key::Key;
use tower_ratelimit::policy::Http;
use tower_ratelimit::response::Refusal;
use tower_ratelimit::{
    Algorithm, AnchoredWindow, FixedWindow, LeakyQueue, Policy, RateLimitLayer, TokenBucket, key,
};

use crate::arrivals::{Arrivals, TICK, behind, hello_by_tokio, request, send, store};
use crate::exchange::{Answer, ask, cost, get, global, now};

pub(crate) const INTERVAL: Duration = Duration::from_millis(200);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// One at once and five a second in the long run.
pub(crate) fn bucket() -> TokenBucket {
    TokenBucket::per_second(5).burst(1)
}

/// Of one user, by the header `x-user`.
pub(crate) fn by_user(name: &str, algorithm: impl Into<Algorithm>) -> Policy<Http> {
    Policy::new(name, algorithm).key(key::header("x-user"))
}

pub(crate) fn layer(policies: impl IntoIterator<Item = Policy<Http>>) -> RateLimitLayer {
    let builder = RateLimitLayer::builder().policies(policies).store(store());
    builder.build().unwrap()
}

pub(crate) fn costing(number: u32, units: u32) -> Request<()> {
    let mut request = request(1, number);
    request.headers_mut().insert("x-cost", units.into());
    request
}

/// How long a refused client is told to wait, to the microsecond.
#[track_caller]
pub(crate) fn told(answer: &Answer) -> Option<Duration> {
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    match &answer.refusal {
        Some(Refusal::Denied(decision)) => {
            assert!(!decision.is_allowed());
            decision.retry_after()
        }
        other => panic!("{other:?}"),
    }
}

pub(crate) fn turns(numbers: impl IntoIterator<Item = (u32, u32)>) -> Vec<(u32, Duration)> {
    let numbers = numbers.into_iter();
    numbers
        .map(|(number, turn)| (number, turn * INTERVAL))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn they_go_on_in_order_each_as_soon_as_it_can_and_are_told_the_numbers_of_then() {
    let arrivals = Arrivals::new();
    let service = behind(
        &layer([by_user("a", bucket()).wait_up_to(SECOND)]),
        &arrivals,
    );
    let mut sent = Vec::new();
    for number in 0..=5 {
        sent.push(send(&service, request(1, number)).await);
    }
    for sent in sent {
        let answer = sent.await.unwrap();
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.field("ratelimit"), Some(r#""a";r=0;t=1"#));
        assert_eq!(answer.field("retry-after"), None);
    }
    assert_eq!(
        arrivals.log(),
        turns((0..=5).map(|number| (number, number)))
    );
}

#[tokio::test(start_paused = true)]
async fn whose_turn_comes_later_is_refused_at_once_and_the_wait_it_is_told_works() {
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

/// Of the user 1, under this limit, with some places.
pub(crate) async fn the_wait_told_behind_a_line_works(layer: &RateLimitLayer, limit: Algorithm) {
    let service = behind(layer, &Arrivals::new());
    let mut sent = Vec::new();
    for number in 0..20 {
        sent.push(send(&service, request(1, number)).await);
        sleep(7 * TICK).await;
    }
    // No other request goes away, so each is told the same or more.
    let start = Instant::now();
    let refused = send(&service, request(1, 20)).await.await.unwrap();
    let wait = told(&refused).unwrap_or_else(|| panic!("{limit:?}: no wait can help"));
    for sent in sent {
        sent.await.unwrap();
    }
    sleep((start + wait).saturating_duration_since(Instant::now())).await;
    let again = Instant::now();
    let answer = send(&service, request(1, 21)).await.await.unwrap();
    assert_eq!(answer.status, StatusCode::OK, "{limit:?}, {wait:?}");
    let queued = Duration::from_millis(334);
    assert!(again.elapsed() <= queued, "{limit:?}, {wait:?}");
}

#[tokio::test(start_paused = true)]
async fn no_request_overtakes_even_if_there_is_enough_for_it_and_not_for_the_one_in_front() {
    let arrivals = Arrivals::new();
    let bucket = TokenBucket::per_second(5).burst(5);
    let service = behind(
        &layer([by_user("a", bucket).cost(cost).wait_up_to(9 * SECOND)]),
        &arrivals,
    );
    send(&service, costing(0, 4)).await;
    send(&service, costing(1, 5)).await;
    send(&service, costing(2, 1)).await;
    // What asks for nothing takes no request's turn.
    send(&service, costing(3, 0)).await;
    sleep(9 * SECOND).await;
    assert_eq!(arrivals.log(), turns([(0, 0), (3, 0), (1, 4), (2, 5)]));
}

#[tokio::test(start_paused = true)]
async fn who_finds_no_place_is_refused_at_once_and_told_when_all_will_have_gone() {
    let arrivals = Arrivals::new();
    let patient = by_user("a", bucket()).wait_up_to(9 * SECOND).wait_places(2);
    let service = behind(&layer([patient]), &arrivals);
    for number in 0..3 {
        send(&service, request(1, number)).await;
    }
    let refused = timeout(TICK, send(&service, request(1, 3)).await);
    assert_eq!(told(&refused.await.unwrap().unwrap()), Some(3 * INTERVAL));
    // Others have a line of their own.
    for number in 4..7 {
        send(&service, request(2, number)).await;
    }
    sleep(INTERVAL + TICK).await;
    send(&service, request(1, 7)).await.await.unwrap();
    let mut log = arrivals.log();
    log.retain(|(number, _)| ![4, 5, 6].contains(number));
    assert_eq!(log, turns([(0, 0), (1, 1), (2, 2), (7, 3)]));
}

/// A request that waits under one policy and is then denied by another goes to the line of that one. The places
/// of a line were looked at only when a request began to wait, so three stood in a line with one place.
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
    // The first goes on, the second finds the place, and the others are told to come back.
    sleep(SECOND).await;
    let ended: Vec<_> = waiting.iter().map(JoinHandle::is_finished).collect();
    assert_eq!(ended, [true, false, true, true]);
    for refused in waiting.split_off(2) {
        // Behind the one that waits.
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
async fn of_a_hundred_that_wait_those_that_stay_leave_in_order_and_close_the_gaps() {
    let arrivals = Arrivals::new();
    let service = behind(
        &layer([by_user("a", bucket()).wait_up_to(100 * SECOND)]),
        &arrivals,
    );
    let mut waiting = Vec::new();
    for number in 0..=100 {
        waiting.push(send(&service, request(1, number)).await);
    }
    let leaves = |number: u32| (number % 10 < 3 || number == 100) && number > 0;
    for (number, sent) in (0..).zip(&waiting) {
        if leaves(number) && number % 2 == 0 {
            sent.abort();
        }
    }
    sleep(INTERVAL / 2).await;
    // The one in front among them.
    for (number, sent) in (0..).zip(&waiting) {
        if leaves(number) {
            sent.abort();
        }
    }
    sleep(101 * INTERVAL).await;
    let stay = (0..=100_u32).filter(|number| !leaves(*number));
    assert_eq!(arrivals.log(), turns(stay.zip(0..)));
}

#[tokio::test(start_paused = true)]
async fn when_all_have_gone_away_the_next_is_asked_about_as_if_no_request_had_been_there() {
    let arrivals = Arrivals::new();
    let service = behind(
        &layer([by_user("a", bucket()).wait_up_to(SECOND)]),
        &arrivals,
    );
    let mut waiting = Vec::new();
    for number in 0..4 {
        waiting.push(send(&service, request(1, number)).await);
    }
    for sent in waiting.iter().rev() {
        sent.abort();
    }
    sleep(INTERVAL).await;
    send(&service, request(1, 4)).await.await.unwrap();
    assert_eq!(arrivals.log(), turns([(0, 0), (4, 1)]));
}

#[tokio::test(start_paused = true)]
async fn under_two_policies_it_waits_for_both_and_is_charged_by_none_meanwhile() {
    let arrivals = Arrivals::new();
    let layer = layer([
        global("a", bucket()).wait_up_to(5 * SECOND),
        global("b", FixedWindow::per_second(2)).wait_up_to(5 * SECOND),
    ]);
    let service = behind(&layer, &arrivals);
    for number in 0..4 {
        send(&service, request(1, number)).await;
    }
    sleep(3 * INTERVAL).await;
    // Two have been charged, and a has filled again while the others wait for b.
    let peeked = now(layer.limiter().peek(Key::GLOBAL, 0)).unwrap();
    let remaining: Vec<_> = peeked.policies().map(|(_, it)| it.remaining()).collect();
    assert_eq!(remaining, [1, 0]);
    sleep(4 * SECOND).await;
    assert_eq!(arrivals.log(), turns([(0, 0), (1, 1), (2, 5), (3, 6)]));
}

#[tokio::test(start_paused = true)]
async fn who_is_denied_by_a_policy_that_does_not_wait_is_refused_at_once() {
    let arrivals = Arrivals::new();
    let layer = layer([
        global("a", bucket()).wait_up_to(5 * SECOND),
        global("day", FixedWindow::per_day(2)),
    ]);
    let service = behind(&layer, &arrivals);
    send(&service, request(1, 0)).await;
    let second = send(&service, request(1, 1)).await;
    // Behind the second, this one is told the truth only by the day, which it may still have.
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
async fn a_request_that_waits_long_for_its_own_limit_does_not_hold_up_those_that_wait_for_the_common_one()
 {
    let arrivals = Arrivals::new();
    let layer = layer([
        global("all", bucket()).wait_up_to(60 * SECOND),
        by_user("user", FixedWindow::per_minute(1)).wait_up_to(60 * SECOND),
    ]);
    let service = behind(&layer, &arrivals);
    for number in 0..3 {
        send(&service, request(1, number)).await;
    }
    for user in 2..6 {
        send(&service, request(user, user + 1)).await;
    }
    sleep(30 * SECOND).await;
    assert_eq!(
        arrivals.log(),
        turns([(0, 0), (3, 1), (4, 2), (5, 3), (6, 4)])
    );
    // At the next minute the second of the first user goes on; the third was told two minutes.
    sleep(31 * SECOND).await;
    assert_eq!(arrivals.log()[5..], [(1, 60 * SECOND)]);
}

#[tokio::test(start_paused = true)]
async fn a_block_is_waited_for_if_it_is_short() {
    let layer = layer([global("a", bucket()).wait_up_to(SECOND)]);
    let arrivals = Arrivals::new();
    let service = behind(&layer, &arrivals);
    now(layer.limiter().block(Key::GLOBAL, SECOND)).unwrap();
    send(&service, request(1, 0)).await;
    sleep(SECOND / 2).await;
    assert_eq!(arrivals.log(), []);
    // While that request waits, and while none does.
    now(layer.limiter().block(Key::GLOBAL, 10 * SECOND)).unwrap();
    let refused = timeout(TICK, send(&service, request(1, 1)).await);
    let both = 10 * SECOND + INTERVAL;
    assert_eq!(told(&refused.await.unwrap().unwrap()), Some(both));
    sleep(SECOND / 2 + TICK).await;
    let refused = timeout(TICK, send(&service, request(1, 2)).await);
    assert!(told(&refused.await.unwrap().unwrap()) > Some(9 * SECOND));
    now(layer.limiter().unblock(Key::GLOBAL)).unwrap();
    now(layer.limiter().block(Key::GLOBAL, SECOND)).unwrap();
    send(&service, request(1, 3)).await.await.unwrap();
    let arrived: Vec<_> = arrivals.log().iter().map(|(number, _)| *number).collect();
    assert_eq!(arrived, [3]);
}

#[tokio::test(start_paused = true)]
async fn what_can_never_pass_does_not_wait() {
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

#[tokio::test(start_paused = true)]
async fn who_waits_holds_no_permit_of_the_inner_service() {
    let arrivals = Arrivals::new();
    let layer = layer([by_user("a", bucket()).wait_up_to(5 * SECOND)]);
    let service = layer.layer(ConcurrencyLimit::new(arrivals.service(), 1));
    for number in 0..3 {
        send(&service, request(1, number)).await;
    }
    let other = timeout(TICK, send(&service, request(2, 9)).await);
    assert_eq!(other.await.unwrap().unwrap().status, StatusCode::OK);
    sleep(SECOND).await;
    let order: Vec<_> = arrivals.log().iter().map(|(number, _)| *number).collect();
    assert_eq!(order, [0, 9, 1, 2]);
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

#[tokio::test(start_paused = true)]
async fn over_a_soft_limit_a_request_goes_on_at_once_and_a_layer_without_headers_waits_too() {
    let arrivals = Arrivals::new();
    let builder = RateLimitLayer::builder().store(store()).without_headers();
    let builder = builder.policy(global("soft", FixedWindow::per_day(1)).soft());
    let layer = builder.policy(global("a", bucket()).wait_up_to(SECOND));
    let service = behind(&layer.build().unwrap(), &arrivals);
    let hard = RateLimitLayer::builder().store(store()).without_headers();
    let hard = hard.policy(global("a", bucket()).wait_up_to(SECOND));
    let others = Arrivals::new();
    let other = behind(&hard.build().unwrap(), &others);
    for number in 0..3 {
        send(&service, request(1, number)).await;
        send(&other, request(1, number)).await;
    }
    sleep(SECOND).await;
    for arrivals in [arrivals, others] {
        assert_eq!(arrivals.log(), turns([(0, 0), (1, 1), (2, 2)]));
    }
}

/// A future of a response can be spawned while it waits.
#[tokio::test(start_paused = true)]
async fn a_response_that_waits_says_so() {
    fn looks<F: Future + Send + Debug>(future: F) -> F {
        assert!(format!("{future:?}").starts_with("ResponseFuture"));
        future
    }
    let layer = layer([global("a", bucket()).wait_up_to(SECOND)]);
    let mut service = layer.layer(Arrivals::new().service());
    for _ in 0..2 {
        let ready = service.ready().await.unwrap();
        looks(tower::Service::call(ready, request(1, 0)))
            .await
            .unwrap();
    }
}
