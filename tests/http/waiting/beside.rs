//! What waits beside a waiting request: other policies, blocks, and the inner service.

use std::fmt::Debug;

use http::StatusCode;
use tokio::time::{sleep, timeout};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, ServiceExt};
use tower_ratelimit::key::Key;
use tower_ratelimit::{FixedWindow, RateLimitLayer};

use super::{INTERVAL, SECOND, bucket, by_user, layer, told, turns};
use crate::arrivals::{Arrivals, TICK, behind, request, send, store};
use crate::exchange::{global, now};

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
