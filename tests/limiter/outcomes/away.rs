//! Settlements while a shared store is away.

use std::time::Duration;

use tower_ratelimit::policy::Penalty;
use tower_ratelimit::store::SharedStore;
use tower_ratelimit::{FixedWindow, Limiter, Policy};

use crate::away::switch::Switch;

fn limiter(switch: &Switch) -> Limiter {
    let policy = Policy::new("units", FixedWindow::per_day(100));
    let limiter = Limiter::builder().policy(policy);
    limiter
        .store(SharedStore::new(switch.clone()))
        .build()
        .unwrap()
}

async fn used(limiter: &Limiter) -> (u32, bool) {
    let decision = limiter.peek("ann", 0).await.unwrap();
    let (_, outcome) = decision.binding().unwrap();
    (outcome.used(), decision.is_degraded())
}

/// Lets the tasks of the runtime end that have nothing to wait for.
async fn rest() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

async fn lose(switch: &Switch, limiter: &Limiter) {
    switch.fail();
    for number in 0..5_u8 {
        let _ = limiter.check(("lost", number), 0).await;
    }
}

async fn find_again(switch: &Switch, limiter: &Limiter) {
    switch.answer();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!used(limiter).await.1);
}

#[tokio::test(start_paused = true)]
async fn nothing_waits_for_a_settlement() {
    let switch = Switch::new();
    let limiter = limiter(&switch);
    for (estimate, cost) in [(30, 10), (10, 30)] {
        let reservation = limiter.reserve("ann", estimate).await.unwrap();
        let calls = switch.calls();
        reservation.settle(cost);
        assert_eq!(switch.calls(), calls);
        rest().await;
        assert_eq!(switch.calls(), calls + 1);
    }
    assert_eq!(used(&limiter).await, (40, false));
    assert_eq!(limiter.lost_settlements(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_settlement_that_fails_is_lost_and_counted_and_charged_nowhere_else() {
    let switch = Switch::new();
    let limiter = limiter(&switch);
    let down = limiter.reserve("ann", 30).await.unwrap();
    let up = limiter.reserve("ann", 20).await.unwrap();
    let known_away = limiter.reserve("ann", 10).await.unwrap();
    switch.fail();
    down.settle(5);
    up.settle(25);
    rest().await;
    assert_eq!(limiter.lost_settlements(), 2);
    lose(&switch, &limiter).await;
    known_away.settle(0);
    rest().await;
    assert_eq!(limiter.lost_settlements(), 3);
    // What was charged there is settled there or not at all.
    assert_eq!(used(&limiter).await, (0, true));
    find_again(&switch, &limiter).await;
    assert_eq!(used(&limiter).await, (60, false));
}

#[tokio::test(start_paused = true)]
async fn a_charge_in_this_process_is_settled_in_this_process() {
    let switch = Switch::new();
    let limiter = limiter(&switch);
    assert!(limiter.check("ann", 50).await.unwrap().is_allowed());
    lose(&switch, &limiter).await;
    let down = limiter.reserve("ann", 30).await.unwrap();
    let up = limiter.reserve("ann", 20).await.unwrap();
    assert!(down.decision().is_degraded());
    find_again(&switch, &limiter).await;
    let calls = switch.calls();
    down.settle(5);
    up.settle(25);
    rest().await;
    assert_eq!(switch.calls(), calls);
    assert_eq!(used(&limiter).await, (50, false));
    lose(&switch, &limiter).await;
    assert_eq!(used(&limiter).await, (30, true));
    assert_eq!(limiter.lost_settlements(), 0);
}

/// What this process refuses in place of the store counts for no block, here or there.
#[tokio::test(start_paused = true)]
async fn refusals_without_the_store_count_for_no_penalty() {
    let switch = Switch::new();
    let penalty = Penalty::after(3, Duration::from_secs(3_600));
    let closed = Policy::new("units", FixedWindow::per_day(0)).penalty(penalty);
    let limiter = Limiter::builder().policy(closed);
    let store = SharedStore::new(switch.clone());
    let limiter = limiter.store(store).build().unwrap();
    let is_blocked = async || {
        let denied = limiter.check("ann", 1).await.unwrap();
        assert!(!denied.is_allowed());
        denied.binding().unwrap().1.is_blocked()
    };
    assert!(!is_blocked().await);
    lose(&switch, &limiter).await;
    for _ in 0..9 {
        assert!(!is_blocked().await);
    }
    find_again(&switch, &limiter).await;
    assert!(!is_blocked().await);
    assert!(is_blocked().await);
}

#[test]
fn a_settlement_without_a_runtime_is_made_in_that_of_its_request() {
    let switch = Switch::new();
    let limiter = limiter(&switch);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let reservation = runtime
        .block_on(limiter.reserve("ann", 30).into_future())
        .unwrap();
    reservation.settle(10);
    runtime.block_on(rest());
    assert_eq!(runtime.block_on(used(&limiter)).0, 10);

    let reservation = runtime
        .block_on(limiter.reserve("ann", 30).into_future())
        .unwrap();
    drop(runtime);
    reservation.settle(10);
    assert_eq!(limiter.lost_settlements(), 1);
}
