//! Charging after the fact.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use tower_ratelimit::{
    Algorithm, FixedWindow, LeakyQueue, Limiter, LocalLimiter, ManualClock, MemoryStore, Policy,
    TokenBucket,
};

use crate::scenarios::{HOUR, MINUTE, START, every, exhaust, key, longest_wait, quota, retry};
use crate::support::driver::{Driver, limiter, limiter_over, micros};

/// Returns the output of a future over a store in this process, which has nothing to wait for.
fn now<F: IntoFuture>(future: F) -> F::Output {
    match pin!(future.into_future()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("there is no answer yet"),
    }
}

fn used(limiter: &LocalLimiter, key: &str) -> u32 {
    limiter.peek(key, 0).now().binding().unwrap().1.used()
}

#[test]
fn an_estimate_that_was_too_low_is_made_up_for_by_waiting() {
    for algorithm in every(quota(10, MINUTE)) {
        let mut key = key(algorithm);
        assert!(key.decide(START, 4).allowed, "{algorithm}");
        key.settle(START, 11);
        let denied = key.decide(START, 1);
        assert!(!denied.allowed, "{algorithm}");
        assert_eq!((denied.limit, denied.remaining), (10, 0), "{algorithm}");
        let wait = retry(denied);
        assert!(wait <= 2 * longest_wait(algorithm), "{algorithm}");
        assert!(!key.decide(START + wait - 1, 1).allowed, "{algorithm}");
        assert!(key.decide(START + wait, 1).allowed, "{algorithm}");
    }
}

#[test]
fn a_mistaken_settlement_is_refunded() {
    for algorithm in every(quota(10, MINUTE)) {
        let mut key = key(algorithm);
        key.settle(START, 15);
        key.refund(START, 8);
        assert_eq!(key.peek(START, 0).remaining, 3, "{algorithm}");
        assert!(key.decide(START, 3).allowed, "{algorithm}");
        assert!(!key.decide(START, 1).allowed, "{algorithm}");
    }
}

#[test]
fn a_key_that_was_never_seen_is_charged() {
    for algorithm in every(quota(10, MINUTE)) {
        let mut key = key(algorithm);
        key.settle(START, 3);
        assert_eq!(exhaust(&mut key, START), 7, "{algorithm}");
    }
}

#[test]
fn a_bucket_owes_two_capacities_at_most() {
    let mut key = key(TokenBucket::per_second(1).burst(10).into());
    for _ in 0..3 {
        key.settle(START, u32::MAX);
    }
    let denied = key.decide(START, 1);
    assert_eq!(retry(denied), micros(Duration::from_secs(11)));
    assert_eq!(denied.reset_after, micros(Duration::from_secs(20)));
}

#[test]
fn a_client_that_comes_later_leaves_the_queue_later() {
    let clock = ManualClock::new();
    let queue = LeakyQueue::per_second(1).places(9).into();
    let limiter = limiter(&clock, [("queue", queue)]);
    assert_eq!(limiter.check("ann", 1).now().delay(), Duration::ZERO);
    limiter.settle("ann", 4).now();
    assert_eq!(
        limiter.check("ann", 1).now().delay(),
        Duration::from_secs(5)
    );
}

#[test]
fn a_blocked_key_is_settled_and_a_soft_policy_too() {
    let store = MemoryStore::new().clock(ManualClock::new());
    let limiter = Limiter::builder()
        .policy(Policy::new("hard", FixedWindow::per_hour(10)))
        .policy(Policy::new("soft", FixedWindow::per_hour(5)).soft())
        .policy(Policy::new("free", Algorithm::Unlimited))
        .store(store)
        .build_local()
        .unwrap();
    limiter.block("ann", MINUTE).now();
    limiter.settle("ann", 7).now();
    limiter.unblock("ann").now();
    let told = limiter.peek("ann", 0).now();
    let told: Vec<_> = told
        .policies()
        .map(|(name, told)| (name, told.used()))
        .collect();
    assert_eq!(told, [("hard", 7), ("soft", 5)]);
}

#[test]
fn the_same_is_settled_through_any_store() {
    let limiter = limiter(
        &ManualClock::new(),
        [("a", FixedWindow::per_hour(10).into())],
    );
    now(limiter.clone().erased().settle("ann", 4)).unwrap();
    assert_eq!(used(&limiter, "ann"), 4);
}

#[test]
fn a_newcomer_that_is_settled_takes_the_place_of_no_key_that_refuses() {
    for algorithm in every(quota(2, HOUR)) {
        let store = MemoryStore::new().clock(ManualClock::new()).max_keys(20);
        let limiter = limiter_over(&store, [("policy", algorithm)]);
        for key in 0..20_u64 {
            limiter.settle(key, 3).now();
        }
        for key in 20..60_u64 {
            limiter.settle(key, 2).now();
        }
        for key in 0..20_u64 {
            assert!(!limiter.check(key, 1).now().is_allowed(), "{algorithm}");
        }
        // Keys without room are counted together.
        let decision = limiter.check(70_u64, 1).now();
        assert!(!decision.is_allowed(), "{algorithm}");
        assert!(decision.binding().unwrap().1.is_overflow(), "{algorithm}");
        let usage = &store.usage()[0];
        assert_eq!(usage.evicted, 0, "{algorithm}");
    }
}

#[test]
fn threads_that_settle_lose_nothing() {
    for algorithm in every(quota(100_000, HOUR)) {
        let limiter = limiter(&ManualClock::new(), [("policy", algorithm)]);
        thread::scope(|scope| {
            for _ in 0..8 {
                let limiter = limiter.clone();
                scope.spawn(move || {
                    for _ in 0..500 {
                        limiter.settle("key", 2).now();
                        assert!(limiter.check("key", 1).now().is_allowed());
                    }
                });
            }
        });
        assert_eq!(used(&limiter, "key"), 12_000, "{algorithm}");
    }
}
