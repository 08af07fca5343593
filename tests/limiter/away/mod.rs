//! A node whose shared store is away, for stores other than Redis.

mod fair;
mod first_of;
mod own;
pub(crate) mod switch;
mod trees;

use std::time::Duration;

use tokio::time::timeout;
use tower_ratelimit::store::{Items, NodeCount, SharedStore};
use tower_ratelimit::{FixedWindow, Limiter, OnStoreFailure, Policy};

use switch::Switch;

/// The number of failures in a row that open the breaker.
const FAILURES: usize = 5;

/// The longest pause before the first probe.
const FIRST_PROBE: Duration = Duration::from_millis(250);

fn daily(limit: u32) -> Policy {
    Policy::new("daily", FixedWindow::per_day(limit))
}

fn limiter<I: Items>(
    store: &SharedStore<I>,
    policies: impl IntoIterator<Item = Policy>,
) -> Limiter {
    let limiter = Limiter::builder().policies(policies);
    limiter.store(store.clone()).build().unwrap()
}

/// Fails until the breaker opens.
async fn lose(switch: &Switch, limiter: &Limiter) {
    switch.fail();
    for number in 0..FAILURES {
        let _ = limiter.check(("lost", number), 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_decided_here_and_the_store_is_not_asked_after_five_failures() {
    let switch = Switch::new();
    let limiter = limiter(&SharedStore::new(switch.clone()), [daily(10)]);
    assert!(!limiter.check("ann", 1).await.unwrap().is_degraded());
    lose(&switch, &limiter).await;
    let calls = switch.calls();
    for used in 1..=10 {
        let decision = limiter.check("ann", 1).await.unwrap();
        assert!(decision.is_allowed() && decision.is_degraded());
        assert_eq!(decision.binding().unwrap().1.used(), used);
    }
    assert!(!limiter.check("ann", 1).await.unwrap().is_allowed());
    assert!(limiter.peek("bob", 1).await.unwrap().is_degraded());
    assert_eq!(limiter.acquire_up_to("bob", 30).await.unwrap().0, 10);
    limiter.refund("bob", 3).await.unwrap();
    assert_eq!(limiter.acquire_up_to("bob", 30).await.unwrap().0, 3);
    assert_eq!(switch.calls(), calls);
}

#[tokio::test(start_paused = true)]
async fn it_is_asked_now_and_then_and_decides_again_once_it_writes() {
    let switch = Switch::new();
    let limiter = limiter(&SharedStore::new(switch.clone()), [daily(10)]);
    assert!(limiter.check("ann", 4).await.unwrap().is_allowed());
    lose(&switch, &limiter).await;
    assert!(limiter.check("ann", 9).await.unwrap().is_allowed());
    let calls = switch.calls();
    // 250 ms, 500 ms and 1 s, each less up to a quarter.
    tokio::time::sleep(FIRST_PROBE * 7).await;
    assert_eq!(switch.calls() - calls, 3);
    switch.answer();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let decision = limiter.check("ann", 0).await.unwrap();
    assert!(!decision.is_degraded());
    // Units that were counted here meanwhile stay here.
    assert_eq!(decision.binding().unwrap().1.used(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_takes_too_long_has_failed() {
    let switch = Switch::new();
    let deadline = Duration::from_millis(30);
    let store = SharedStore::new(switch.clone()).deadline(deadline);
    let limiter = limiter(&store, [daily(10)]);
    switch.hang();
    for number in 0..20_usize {
        let began = tokio::time::Instant::now();
        let answer = timeout(deadline * 2, limiter.check("ann", 0)).await;
        let decision = answer.expect("it is not waited for any longer");
        assert!(decision.unwrap().is_degraded());
        let took = began.elapsed();
        if number < FAILURES {
            assert!(
                took >= deadline && took < deadline * 2,
                "{number}: {took:?}"
            );
        } else {
            assert_eq!(took, Duration::ZERO, "{number}");
        }
    }
}

/// Denials write nothing, and so succeed. Once, each of them ended the row of failures.
#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_writes_is_away_though_it_answers_denials() {
    let switch = Switch::new();
    let limiter = limiter(&SharedStore::new(switch.clone()), [daily(1)]);
    assert!(limiter.check("ann", 1).await.unwrap().is_allowed());
    switch.refuse_writes();
    for number in 0..FAILURES {
        let denied = limiter.check("ann", 1).await.unwrap();
        assert!(!denied.is_allowed() && !denied.is_degraded());
        assert!(!limiter.peek("ann", 1).await.unwrap().is_degraded());
        assert!(limiter.check(number, 1).await.unwrap().is_degraded());
    }
    let calls = switch.calls();
    assert!(limiter.check("ann", 1).await.unwrap().is_degraded());
    assert_eq!(switch.calls(), calls);
    switch.answer();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!limiter.check("bob", 1).await.unwrap().is_degraded());
}

/// Each request that could pass waited for the deadline, for ever.
#[tokio::test(start_paused = true)]
async fn a_store_whose_writes_hang_is_away_though_it_answers_denials() {
    let switch = Switch::new();
    let limiter = limiter(&SharedStore::new(switch.clone()), [daily(1)]);
    assert!(limiter.check("ann", 1).await.unwrap().is_allowed());
    switch.hang_at_writes();
    for number in 0..FAILURES {
        let denied = limiter.check("ann", 1).await.unwrap();
        assert!(!denied.is_allowed() && !denied.is_degraded());
        assert!(!limiter.peek("ann", 1).await.unwrap().is_degraded());
        assert!(limiter.check(number, 1).await.unwrap().is_degraded());
    }
    let calls = switch.calls();
    assert!(limiter.check("ann", 1).await.unwrap().is_degraded());
    assert_eq!(switch.calls(), calls);
    switch.answer();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!limiter.check("bob", 1).await.unwrap().is_degraded());
}

/// What failed once, and what was written since, are no row of failures.
#[tokio::test(start_paused = true)]
async fn a_write_that_succeeds_ends_a_row_of_failed_writes() {
    let switch = Switch::new();
    let limiter = limiter(&SharedStore::new(switch.clone()), [daily(9)]);
    for kind in ["charge", "take", "reset"] {
        for key in 0..2 * FAILURES {
            switch.refuse_writes();
            assert!(limiter.check("ann", 1).await.unwrap().is_degraded());
            switch.answer();
            match kind {
                "charge" => assert!(limiter.check(key, 1).await.unwrap().is_allowed()),
                "take" => assert_eq!(limiter.acquire_up_to(key, 1).await.unwrap().0, 1),
                _ => limiter.reset(key).await.unwrap(),
            }
        }
        assert!(!limiter.check("bob", 1).await.unwrap().is_degraded());
    }
}

/// What the store did not charge under the soft policy, it did under the other.
#[tokio::test(start_paused = true)]
async fn a_charge_that_leaves_a_soft_policy_out_is_a_write() {
    let switch = Switch::new();
    let soft = Policy::new("soft", FixedWindow::per_day(0)).soft();
    let limiter = limiter(&SharedStore::new(switch.clone()), [daily(9), soft]);
    for key in 0..2 * FAILURES {
        switch.refuse_writes();
        assert!(limiter.check("ann", 1).await.unwrap().is_degraded());
        switch.answer();
        assert!(!limiter.check(key, 1).await.unwrap().is_degraded());
    }
}

#[tokio::test(start_paused = true)]
async fn each_policy_does_what_it_says() {
    let switch = Switch::new();
    let store = SharedStore::new(switch.clone());
    let of = |what| limiter(&store, [daily(1).on_store_failure(what)]);
    let refuse = of(OnStoreFailure::Refuse);
    let allow = of(OnStoreFailure::Allow);
    allow
        .block("mallory", Duration::from_secs(60))
        .await
        .unwrap();
    lose(&switch, &refuse).await;
    let error = refuse.check("ann", 1).await.unwrap_err();
    assert!(error.is_transient());
    for _ in 0..5 {
        let decision = allow.check("ann", 1).await.unwrap();
        assert!(decision.is_allowed() && decision.is_degraded());
        assert_eq!(decision.policies().len(), 0);
    }
    assert!(!allow.check("mallory", 1).await.unwrap().is_allowed());
}

/// Another process has blocked the key, and this process knows the block.
#[tokio::test(start_paused = true)]
async fn a_block_that_the_store_has_told_of_holds_while_it_is_away() {
    let switch = Switch::new();
    let store = |switch: &Switch| SharedStore::new(switch.clone());
    let here = limiter(&store(&switch), [daily(9)]);
    let elsewhere = limiter(&store(&switch), [daily(9)]);
    let minute = Duration::from_secs(60);
    for key in ["mallory", "oscar"] {
        elsewhere.block(key, minute).await.unwrap();
        assert!(!here.check(key, 0).await.unwrap().is_allowed());
    }
    elsewhere.unblock("oscar").await.unwrap();
    assert!(here.check("oscar", 0).await.unwrap().is_allowed());
    lose(&switch, &here).await;
    assert!(!here.check("mallory", 1).await.unwrap().is_allowed());
    assert!(here.check("oscar", 1).await.unwrap().is_allowed());
}

#[tokio::test(start_paused = true)]
async fn an_unsupported_operation_is_an_error_and_no_outage() {
    let switch = Switch::new();
    switch.support_nothing();
    let limiter = limiter(&SharedStore::new(switch.clone()), [daily(9)]);
    for _ in 0..2 * FAILURES {
        let error = limiter.check("ann", 1).await.unwrap_err();
        assert!(!error.is_transient());
    }
    assert_eq!(switch.calls(), 2 * FAILURES);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_key_does_not_affect_the_others() {
    let switch = Switch::new();
    let limiter = limiter(&SharedStore::new(switch.clone()), [daily(9)]);
    assert!(limiter.check("ann", 1).await.unwrap().is_allowed());
    for value in switch.map.items().values_mut() {
        value.pop();
    }
    for _ in 0..2 * FAILURES {
        assert!(limiter.check("ann", 0).await.unwrap().is_degraded());
    }
    assert!(!limiter.check("bob", 1).await.unwrap().is_degraded());
}

/// A limit of L that n nodes share: L from the store, and a share from each node.
#[tokio::test(start_paused = true)]
async fn all_nodes_together_admit_no_more_than_the_limit_and_their_shares() {
    const NODES: u32 = 4;
    const LIMIT: u32 = 30;
    const SHARE: u32 = LIMIT.div_ceil(NODES);
    let switch = Switch::new();
    let node = || SharedStore::new(switch.clone()).nodes(NODES);
    let nodes: Vec<_> = (0..NODES)
        .map(|_| limiter(&node(), [daily(LIMIT)]))
        .collect();
    let mut admitted = 0;
    let flood = async |requests: u32| {
        let mut admitted = 0;
        for request in 0..requests {
            let node = &nodes[request as usize % nodes.len()];
            admitted += u32::from(node.check("ann", 1).await.unwrap().is_allowed());
        }
        admitted
    };
    admitted += flood(LIMIT / 2).await;
    switch.fail();
    admitted += flood(10 * LIMIT).await;
    assert_eq!(admitted, LIMIT / 2 + NODES * SHARE);
    let decision = nodes[0].check("ann", 0).await.unwrap();
    assert_eq!(decision.binding().unwrap().1.limit(), SHARE);
    switch.answer();
    tokio::time::sleep(Duration::from_secs(5)).await;
    admitted += flood(10 * LIMIT).await;
    assert_eq!(admitted, LIMIT + NODES * SHARE);
}

#[test]
fn options_that_cannot_be_are_errors() {
    let build = |store: SharedStore<Switch>| {
        let limiter = Limiter::builder().policy(daily(1)).store(store);
        limiter.build().unwrap_err()
    };
    let store = || SharedStore::new(Switch::new());
    assert_eq!(build(store().nodes(0)).field(), "nodes");
    for deadline in [Duration::ZERO, Duration::from_secs(61)] {
        assert_eq!(build(store().deadline(deadline)).field(), "deadline");
    }
}

/// What was counted under the first share still counts.
#[tokio::test(start_paused = true)]
async fn the_share_of_a_node_follows_the_number_of_nodes_and_what_was_used_stays_used() {
    let (switch, nodes) = (Switch::new(), NodeCount::new(2));
    let store = SharedStore::new(switch.clone()).nodes(nodes.clone());
    let limiter = limiter(&store, [daily(12)]);
    limiter.block("ben", Duration::from_secs(60)).await.unwrap();
    lose(&switch, &limiter).await;
    let take = async |key: &'static str, units| {
        let told = limiter.check(key, units).await.unwrap();
        let limit = told.binding().unwrap().1.limit();
        (told.is_allowed(), limit)
    };
    assert_eq!(take("ann", 4).await, (true, 6));
    nodes.set(3).unwrap();
    assert_eq!(take("ann", 1).await, (false, 4));
    assert!(!take("ben", 1).await.0);
    nodes.set(1).unwrap();
    assert_eq!(take("ann", 8).await, (true, 12));
    assert_eq!(take("ann", 1).await, (false, 12));
    let error = nodes.set(0).unwrap_err();
    assert!(error.to_string().contains("1 or more"), "{error}");
    assert_eq!(nodes.get(), 1);
}
