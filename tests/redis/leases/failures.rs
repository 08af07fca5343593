//! Answers that are lost or come too late, and a node that knows more keys than it keeps.

use std::time::Duration;

use tokio::task::JoinSet;
use tower_ratelimit::{Gcra, Limiter, Policy, SlidingLog};

use super::{DAY, is_allowed, leasing, new_year, node, stats, warm};
use crate::scene::{PATIENCE, daily, limiter, patient, used};
use crate::support::proxy::Proxy;
use crate::support::redis::Server;

const LIMIT: u32 = 1_000;

/// Units that were granted meanwhile are charged, and lapse.
#[tokio::test]
async fn an_answer_that_comes_too_late_gives_no_unit_twice() {
    let server = Server::start(&[]);
    let policies = [
        daily("window", LIMIT),
        Policy::new("log", SlidingLog::of(quota()).unwrap()),
        Policy::new("bucket", Gcra::of(quota())),
    ];
    for policy in policies {
        let (name, clock) = (policy.name().to_owned(), new_year());
        let mut proxy = Proxy::start(&server);
        let store = leasing().deadline(Duration::from_millis(200));
        let store = store.open(proxy.url()).unwrap().clock(clock.clone());
        let node = limiter(&store, [policy.clone()]);
        let mut passed = 0;
        while stats(&node).held == 0 {
            // An answer may be late before that, too.
            let told = node.check("ann", 1).await;
            passed += u32::from(told.is_ok_and(|told| told.is_allowed()));
        }
        proxy.delay(Duration::from_millis(600));
        let mut failed = 0;
        while failed < 3 {
            match node.check("ann", 1).await {
                Ok(told) => passed += u32::from(told.is_allowed()),
                Err(_) => failed += 1,
            }
        }
        proxy.delay(Duration::ZERO);
        proxy.cut();
        // All leases have ended, and nothing has drained.
        clock.advance(PATIENCE);
        let other = patient().open(server.url()).unwrap().clock(clock.clone());
        let other = limiter(&other, [policy]);
        while is_allowed(&other, "ann", 1).await {
            passed += 1;
        }
        assert!(passed <= LIMIT + 1, "{name}: {passed}");
        // No question asks for more than a quarter of the remaining units.
        assert!(passed > LIMIT / 3, "{name}: {passed}");
    }
}

/// What nodes hold is part of what the server has admitted. Without it, each node keeps to its share.
#[tokio::test]
async fn an_outage_admits_the_limit_and_the_share_of_each_node() {
    const NODES: u32 = 3;
    let share = LIMIT.div_ceil(NODES);
    let (server, clock) = (Server::start(&[]), new_year());
    let nodes = [(); NODES as usize].map(|()| {
        let store = leasing().nodes(NODES);
        let store = store.open(server.url()).unwrap().clock(clock.clone());
        let limiter = Limiter::builder().policy(daily("a", LIMIT));
        limiter.store(store).build().unwrap()
    });
    let mut passed = 0;
    while passed < LIMIT / 10 * 8 {
        for node in &nodes {
            passed += u32::from(is_allowed(node, "ann", 1).await);
        }
    }
    let held: u64 = nodes.iter().map(|node| stats(node).held).sum();
    let held = u32::try_from(held).unwrap();
    assert!(held > 0 && passed + held <= LIMIT, "{passed} {held}");
    server.kill();
    let (mut leased, mut alone) = (0, 0);
    for node in &nodes {
        loop {
            let told = node.check("ann", 1).await.unwrap();
            if !told.is_allowed() {
                break;
            }
            *(if told.is_degraded() {
                &mut alone
            } else {
                &mut leased
            }) += 1;
        }
    }
    // An answer may have come in between.
    assert!(leased >= held && passed + leased <= LIMIT, "{leased}");
    assert_eq!(alone, NODES * share);
}

fn quota() -> tower_ratelimit::Quota {
    tower_ratelimit::Quota::new(LIMIT, 30 * DAY).unwrap()
}

#[tokio::test]
async fn leases_of_keys_that_a_node_does_not_keep_go_back() {
    let (server, clock) = (Server::start(&[]), new_year());
    let store = node(&server, &clock);
    let node = std::sync::Arc::new(limiter(&store, [daily("a", 100_000)]));
    let asked = warm(&node, "ann").await;
    assert_eq!(stats(&node).given_back, 0);
    let mut tasks = JoinSet::new();
    for task in 0..64_u32 {
        let node = std::sync::Arc::clone(&node);
        tasks.spawn(async move {
            for key in 0..300 {
                assert!(is_allowed(&node, &format!("{task} {key}"), 1).await);
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(stats(&node).held, 0);
    let gone = async { while used(&node.peek("ann", 0).await.unwrap()) != [asked] {} };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
}
