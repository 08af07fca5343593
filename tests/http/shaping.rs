//! Requests that wait in a leaky queue, by a clock that tokio has paused.

use std::convert::Infallible;
use std::future::pending;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tokio::time::{sleep, timeout};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::key::Key;
use tower_ratelimit::response::Refusal;
use tower_ratelimit::{
    FixedWindow, LeakyQueue, MemoryStore, Policy, RateLimitLayer, TokenBucket, key,
};

use crate::arrivals::{Arrivals, StillClock, TICK, behind, hello_by_tokio, request, send, store};
use crate::exchange::{Behind, Hello, ask, get, global, now, poll};
use crate::slow_store::SlowStore;

const INTERVAL: Duration = Duration::from_millis(200);

/// Five a second by the header `x-user`, with this many places.
fn queue(places: u32) -> RateLimitLayer {
    let queue = LeakyQueue::per_second(5).places(places);
    RateLimitLayer::builder()
        .policy(Policy::new("queue", queue).key(key::header("x-user")))
        .store(store())
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_burst_leaves_one_by_one_and_a_request_without_a_place_is_told_the_true_wait() {
    let arrivals = Arrivals::new();
    let service = behind(&queue(3), &arrivals);
    let mut sent = Vec::new();
    for number in 0..4 {
        sent.push(send(&service, request(1, number)).await);
    }
    let refused = send(&service, request(1, 4)).await.await.unwrap();
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.field("retry-after"), Some("1"));
    assert_eq!(
        refused.field("ratelimit-policy"),
        Some(r#""queue";q=4;w=1"#)
    );
    for sent in sent {
        assert_eq!(sent.await.unwrap().status, StatusCode::OK);
    }
    let turns: Vec<_> = (0..4).map(|turn| (turn, turn * INTERVAL)).collect();
    assert_eq!(arrivals.log(), turns);
}

#[tokio::test(start_paused = true)]
async fn after_the_wait_that_was_told_there_is_a_place() {
    let service = behind(&queue(0), &Arrivals::new());
    send(&service, request(1, 0)).await.await.unwrap();
    let refused = send(&service, request(1, 1)).await.await.unwrap();
    let told: u64 = refused.field("retry-after").unwrap().parse().unwrap();
    sleep(Duration::from_secs(told)).await;
    let answer = send(&service, request(1, 2)).await.await.unwrap();
    assert_eq!(answer.status, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn clients_wait_in_queues_of_their_own() {
    let arrivals = Arrivals::new();
    let service = behind(&queue(1), &arrivals);
    for (number, user) in [1, 1, 2, 2].into_iter().enumerate() {
        send(&service, request(user, u32::try_from(number).unwrap())).await;
    }
    sleep(INTERVAL + TICK).await;
    let at_once = Duration::ZERO;
    let mut log = arrivals.log();
    log.sort_unstable();
    let expected = [(0, at_once), (1, INTERVAL), (2, at_once), (3, INTERVAL)];
    assert_eq!(log, expected);
}

#[tokio::test(start_paused = true)]
async fn requests_that_stay_leave_in_order_one_in_each_turn() {
    let arrivals = Arrivals::new();
    let service = behind(&queue(100), &arrivals);
    let mut waiting = Vec::new();
    for number in 0..=100 {
        waiting.push(send(&service, request(1, number)).await);
    }
    // Any thirty requests: some at once, some while others leave.
    let leaves = |number: u32| number % 10 < 3 && number > 0;
    for (number, sent) in (0..).zip(&waiting) {
        if leaves(number) && number % 2 == 0 {
            sent.abort();
        }
    }
    sleep(INTERVAL / 2).await;
    for (number, sent) in (0..).zip(&waiting) {
        if leaves(number) {
            sent.abort();
        }
    }
    sleep(101 * INTERVAL).await;
    let stay = (0..=100_u32).filter(|number| !leaves(*number));
    let expected: Vec<_> = stay
        .zip(0..)
        .map(|(n, turn)| (n, turn * INTERVAL))
        .collect();
    assert_eq!(arrivals.log(), expected);
}

#[tokio::test(start_paused = true)]
async fn the_next_takes_a_place_that_is_freed_and_the_last_one_is_given_back() {
    let arrivals = Arrivals::new();
    let service = behind(&queue(3), &arrivals);
    let mut waiting = Vec::new();
    for number in 0..4 {
        waiting.push(send(&service, request(1, number)).await);
    }
    for (leaving, coming) in [(2, 4), (3, 5)] {
        waiting[leaving].abort();
        tokio::task::yield_now().await;
        waiting.push(send(&service, request(1, coming)).await);
        let refused = send(&service, request(1, 6)).await.await.unwrap();
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "one place");
    }
    assert_eq!(waiting.pop().unwrap().await.unwrap().status, StatusCode::OK);
    let left = [(0, 0), (1, 1), (4, 2), (5, 3)].map(|(number, turn)| (number, turn * INTERVAL));
    assert_eq!(arrivals.log(), left);
}

#[tokio::test(start_paused = true)]
async fn a_place_that_was_used_is_not_given_back() {
    let arrivals = Arrivals::new();
    let layer = queue(1);
    let log = arrivals.clone();
    // The inner service never answers; its clients go away while they wait for it.
    let stuck = service_fn(move |request: Request<()>| {
        let number = request.headers()["x-number"].to_str().unwrap();
        log.note(number.parse().unwrap());
        pending::<Result<Response<Full<bytes::Bytes>>, Infallible>>()
    });
    let service = layer.layer(stuck);
    let first = send(&service, request(1, 0)).await;
    let second = send(&service, request(1, 1)).await;
    sleep(INTERVAL + TICK).await;
    first.abort();
    second.abort();
    tokio::task::yield_now().await;
    let third = send(&service, request(1, 2)).await;
    sleep(INTERVAL + TICK).await;
    third.abort();
    let expected = [0, 1, 2].map(|number| (number, number * INTERVAL));
    assert_eq!(arrivals.log(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_costs_more_takes_more_turns() {
    let arrivals = Arrivals::new();
    let queue = LeakyQueue::per_second(5).places(9);
    let layer = RateLimitLayer::builder()
        .policy(global("queue", queue).cost(|head| {
            let number = head.header("x-number").unwrap();
            number.parse::<u32>().unwrap() + 1
        }))
        .store(store())
        .build()
        .unwrap();
    let service = behind(&layer, &arrivals);
    let mut sent = Vec::new();
    for number in 0..3 {
        sent.push(send(&service, request(1, number)).await);
    }
    for sent in sent {
        sent.await.unwrap();
    }
    let turns = [(0, 0), (1, 1), (2, 3)].map(|(number, turn)| (number, turn * INTERVAL));
    assert_eq!(arrivals.log(), turns);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_another_policy_denies_takes_no_turn() {
    let arrivals = Arrivals::new();
    let layer = RateLimitLayer::builder()
        .policy(global("queue", LeakyQueue::per_second(5).places(9)))
        .policy(global("day", FixedWindow::per_day(2)))
        .store(store())
        .build()
        .unwrap();
    let service = behind(&layer, &arrivals);
    let mut statuses = Vec::new();
    for number in 0..4 {
        statuses.push(send(&service, request(1, number)).await);
    }
    for (number, sent) in statuses.into_iter().enumerate() {
        assert_eq!(sent.await.unwrap().status.is_success(), number < 2);
    }
    assert_eq!(arrivals.log(), [(0, Duration::ZERO), (1, INTERVAL)]);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_request_holds_no_permit_of_the_inner_service() {
    let arrivals = Arrivals::new();
    let layer = queue(5);
    let service = layer.layer(ConcurrencyLimit::new(arrivals.service(), 1));
    for number in 0..3 {
        send(&service, request(1, number)).await;
    }
    // Another client does not wait for them.
    let other = send(&service, request(2, 9)).await;
    let answered = timeout(Duration::from_millis(1), other).await;
    assert_eq!(answered.unwrap().unwrap().status, StatusCode::OK);
    sleep(2 * INTERVAL + TICK).await;
    let first: Vec<_> = arrivals.log().iter().map(|(number, _)| *number).collect();
    assert_eq!(first, [0, 9, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn turns_begin_when_a_store_that_answers_later_has_answered() {
    let arrivals = Arrivals::new();
    let store = SlowStore::new();
    let layer = RateLimitLayer::builder()
        .policy(global("queue", LeakyQueue::per_second(5).places(2)))
        .store(store.clone())
        .build()
        .unwrap();
    let inner = ConcurrencyLimit::new(arrivals.service(), 1);
    let service = layer.layer(inner);
    let mut sent = Vec::new();
    for number in 0..4 {
        sent.push(send(&service, request(1, number)).await);
    }
    sleep(INTERVAL).await;
    assert_eq!(arrivals.log(), []);
    store.release(4);
    let mut statuses = Vec::new();
    for sent in sent {
        statuses.push(sent.await.unwrap().status.as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 429]);
    let turns: Vec<_> = (0..3).map(|turn| (turn, (turn + 1) * INTERVAL)).collect();
    assert_eq!(arrivals.log(), turns);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_due_and_looked_too_early_goes_on_right_after_the_one_before_it() {
    let arrivals = Arrivals::new();
    let service = behind(&queue(5), &arrivals);
    send(&service, request(1, 0)).await.await.unwrap();
    let mut first = Box::pin(service.clone().oneshot(request(1, 1)));
    let mut second = Box::pin(service.clone().oneshot(request(1, 2)));
    assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
    // Both timers have fired, as on a busy runtime, and the other thread is quicker.
    tokio::time::advance(2 * INTERVAL + TICK).await;
    assert!(poll(second.as_mut()).is_pending());
    assert!(poll(first.as_mut()).is_ready());
    assert!(poll(second.as_mut()).is_ready());
}

#[tokio::test(start_paused = true)]
async fn one_that_is_not_polled_holds_the_others_up_for_a_second_at_most() {
    let arrivals = Arrivals::new();
    let service = behind(&queue(5), &arrivals);
    send(&service, request(1, 0)).await.await.unwrap();
    let mut forgotten = Box::pin(service.clone().oneshot(request(1, 1)));
    let mut unpolled = Context::from_waker(std::task::Waker::noop());
    assert!(matches!(
        Future::poll(forgotten.as_mut(), &mut unpolled),
        Poll::Pending
    ));
    let behind = send(&service, request(1, 2)).await;
    assert_eq!(behind.await.unwrap().status, StatusCode::OK);
    let late = 2 * INTERVAL + Duration::from_secs(1);
    assert_eq!(arrivals.log(), [(0, Duration::ZERO), (2, late)]);
    // It goes on when it is polled again.
    forgotten.await.unwrap();
    assert_eq!(arrivals.log().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_forgotten_holds_up_those_behind_it_for_a_second_and_no_others() {
    let arrivals = Arrivals::new();
    let queue = global("queue", LeakyQueue::per_second(5).places(9));
    let layer = RateLimitLayer::builder().policy(queue).store(store());
    let service = behind(&layer.build().unwrap(), &arrivals);
    send(&service, request(1, 0)).await;
    let mut forgotten = Box::pin(service.clone().oneshot(request(1, 1)));
    assert!(poll(forgotten.as_mut()).is_pending());
    std::mem::forget(forgotten);
    let mut idle = Box::pin(service.clone().oneshot(request(1, 2)));
    assert!(poll(idle.as_mut()).is_pending());
    for number in 3..=4 {
        send(&service, request(1, number)).await;
    }
    sleep(Duration::from_secs(5)).await;
    send(&service, request(1, 5)).await.await.unwrap();
    idle.await.unwrap();
    let ms = Duration::from_millis;
    assert_eq!(
        arrivals.log(),
        [
            (0, ms(0)),
            (3, ms(1_600)),
            (4, ms(1_600)),
            (5, ms(5_000)),
            (2, ms(5_000))
        ],
    );
}

#[test]
fn where_nothing_would_wake_it_a_request_is_refused_and_the_log_says_why() {
    let service = hello_by_tokio(global("queue", LeakyQueue::per_second(5).places(9)));
    assert_eq!(ask(&service, get()).status, StatusCode::OK);
    let refused = ask(&service, get());
    assert_eq!(refused.status, StatusCode::INTERNAL_SERVER_ERROR);
    let Some(Refusal::CannotHold(diagnostic)) = refused.refusal else {
        panic!("{refused:?}");
    };
    assert_eq!(diagnostic.code(), "TRL009");
}

/// It was charged all the same, and the queue stood as if it waited there.
#[test]
fn a_request_that_nothing_would_wake_is_charged_nothing() {
    let layer = RateLimitLayer::builder()
        .policy(global("queue", LeakyQueue::per_second(5).places(9)))
        .policy(global("day", FixedWindow::per_day(100)))
        .store(MemoryStore::new().clock(StillClock));
    let layer = layer.build().unwrap();
    let service = Hello::behind(&layer);
    assert_eq!(ask(&service, get()).status, StatusCode::OK);
    assert_eq!(
        ask(&service, get()).status,
        StatusCode::INTERNAL_SERVER_ERROR
    );
    let peeked = now(layer.limiter().peek(Key::GLOBAL, 0)).unwrap();
    let used: Vec<_> = peeked.policies().map(|(_, it)| it.used()).collect();
    assert_eq!(used, [1, 1]);
}

#[test]
fn a_runtime_without_timers_is_none_that_would_wake_it() {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.unwrap();
    let _within = runtime.enter();
    for (policy, status) in [
        (global("a", LeakyQueue::per_second(5).places(9)), 500),
        (
            global("a", TokenBucket::per_second(1)).wait_up_to(Duration::from_secs(9)),
            429,
        ),
    ] {
        let service = hello_by_tokio(policy);
        assert_eq!(ask(&service, get()).status, StatusCode::OK);
        assert_eq!(ask(&service, get()).status, status);
    }
}

#[test]
fn queues_that_could_not_keep_their_promise_are_refused_when_built() {
    let queue = |name| global(name, LeakyQueue::per_second(5).places(1));
    let two = RateLimitLayer::builder().policies([queue("a"), queue("b")]);
    let error = two.build().unwrap_err();
    assert_eq!((error.field(), error.value()), ("leaky queue", r#""b""#));
    assert!(error.remedy().starts_with("leave one queue"), "{error}");
    let soft = RateLimitLayer::builder().policy(queue("a").soft());
    let error = soft.build().unwrap_err();
    assert!(error.remedy().starts_with("let it not be soft"), "{error}");
    let others = RateLimitLayer::builder()
        .policy(queue("a"))
        .policy(global("b", TokenBucket::per_second(1)).soft());
    assert!(others.build().is_ok());
}
