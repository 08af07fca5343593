//! Newcomers to a store that is full of refused keys: they wait and go away, by a clock that tokio has paused.

use std::time::Duration;

use http::StatusCode;
use tokio::time::{sleep, timeout};
use tower_ratelimit::middleware::Deadline;
use tower_ratelimit::policy::Http;
use tower_ratelimit::{
    Algorithm, AnchoredWindow, LeakyQueue, Limiter, LocalLimiter, Policy, RateLimitLayer,
    TokenBucket,
};

use crate::arrivals::{Arrivals, TICK, behind, request, send, store};
use crate::waiting::{SECOND, by_user, told};

/// Returns a layer with these policies over a store without room for newcomers, and a limiter over that.
fn full(policies: impl IntoIterator<Item = Policy<Http>>) -> (RateLimitLayer, LocalLimiter) {
    let (store, policies) = (store().max_keys(2), Vec::from_iter(policies));
    let over = |policies: &[Policy<Http>]| -> LocalLimiter {
        let plain = policies
            .iter()
            .map(|policy| Policy::new(policy.name(), *policy.algorithm()));
        let builder = Limiter::builder().policies(plain).store(store.clone());
        builder.build_local().unwrap()
    };
    let limiter = over(&policies);
    for policy in &policies {
        // As many keys as stay on a page.
        let most = 2 * policy.algorithm().limit().unwrap();
        for key in ["one", "two"] {
            over(std::slice::from_ref(policy)).settle(key, most).now();
        }
    }
    let layer = RateLimitLayer::builder().policies(policies).store(store);
    (layer.build().unwrap(), limiter)
}

/// Two a second.
fn queue() -> Policy<Http> {
    by_user("queue", LeakyQueue::per_second(2).places(99))
}

const INTERVAL: Duration = Duration::from_millis(500);

/// Both requests get a wait of three seconds. The second one, which is denied again then, was told to come back at
/// once, as if its key had its own entry.
#[tokio::test(start_paused = true)]
async fn a_request_that_waited_in_vain_is_told_the_true_wait() {
    let bucket = TokenBucket::per_minute(20).burst(10);
    let (layer, limiter) = full([by_user("bucket", bucket).wait_up_to(4 * SECOND)]);
    assert!(limiter.admit("newcomer", 10).now());
    let service = behind(&layer, &Arrivals::new());
    let first = send(&service, request(1, 0)).await;
    let second = send(&service, request(2, 1)).await;
    assert_eq!(first.await.unwrap().status, StatusCode::OK);
    let wait = told(&second.await.unwrap()).unwrap();
    assert!(
        wait <= 3 * SECOND && wait + 5 * TICK >= 3 * SECOND,
        "{wait:?}"
    );
    sleep(wait).await;
    let again = timeout(TICK, send(&service, request(2, 2)).await);
    assert_eq!(again.await.unwrap().unwrap().status, StatusCode::OK);
}

/// Six places that were given back were lost, and held the next request for three seconds.
#[tokio::test(start_paused = true)]
async fn places_that_newcomers_leave_are_given_back() {
    let (layer, _) = full([queue()]);
    let arrivals = Arrivals::new();
    let service = behind(&layer, &arrivals);
    let mut waiting = Vec::new();
    for user in 0..=6 {
        waiting.push(send(&service, request(user, user)).await);
    }
    for leaves in waiting.drain(1..).rev() {
        leaves.abort();
        tokio::task::yield_now().await;
    }
    send(&service, request(7, 7)).await.await.unwrap();
    assert_eq!(arrivals.log(), [(0, Duration::ZERO), (7, INTERVAL)]);
}

/// As under a timeout outside of the layer. Newcomers wait in one queue, and only the last place of that was given back.
#[tokio::test(start_paused = true)]
async fn places_that_newcomers_leave_the_oldest_first_are_given_back() {
    let (layer, _) = full([queue()]);
    let arrivals = Arrivals::new();
    let service = behind(&layer, &arrivals);
    let mut waiting = Vec::new();
    for user in 0..=6 {
        waiting.push(send(&service, request(user, user)).await);
    }
    for leaves in waiting.drain(1..) {
        leaves.abort();
        tokio::task::yield_now().await;
    }
    send(&service, request(7, 7)).await.await.unwrap();
    assert_eq!(arrivals.log(), [(0, Duration::ZERO), (7, INTERVAL)]);
}

/// The place and the other charge of a request that would leave too late were lost.
#[tokio::test(start_paused = true)]
async fn a_newcomer_whose_turn_comes_too_late_gets_its_charge_back() {
    let hourly: Algorithm = AnchoredWindow::per_hour(50).into();
    let (layer, limiter) = full([queue(), by_user("hourly", hourly)]);
    let arrivals = Arrivals::new();
    let service = behind(&layer, &arrivals);
    send(&service, request(0, 0)).await.await.unwrap();
    for user in 1..=6 {
        let mut late = request(user, user);
        late.extensions_mut().insert(Deadline::after(INTERVAL / 2));
        let refused = send(&service, late).await.await.unwrap();
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    }
    let used: Vec<u32> = limiter
        .peek("newcomer", 0)
        .now()
        .policies()
        .map(|(_, outcome)| outcome.used())
        .collect();
    assert_eq!(used, [1, 1]);
    send(&service, request(7, 7)).await.await.unwrap();
    assert_eq!(arrivals.log(), [(0, Duration::ZERO), (7, INTERVAL)]);
}
