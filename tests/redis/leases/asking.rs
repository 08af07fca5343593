//! What a node asks for beside its requests, and what it does not ask for.

use std::pin::pin;
use std::time::Duration;

use tower_ratelimit::store::Lease;
use tower_ratelimit::{Gcra, Limiter, Policy, SlidingLog, TokenBucket};

use super::{is_allowed, leasing, new_year, node, poll_once, stats, warm};
use crate::scene::{ask, daily, key_on_each, limiter, over, patient, store, until, used};
use crate::support::proxy::Proxy;
use crate::support::redis::{Cluster, Server};

/// Asks until the node holds units, and spends seven of eight at once. Returns how many requests that were, and
/// how many units were granted before they were spent.
async fn runs_low(limiter: &Limiter) -> (u32, u64) {
    let mut asked = 0;
    while stats(limiter).held < 40 {
        assert!(is_allowed(limiter, "ann", 1).await);
        asked += 1;
    }
    // More may come while they are spent.
    let granted = stats(limiter).granted;
    for _ in 0..stats(limiter).held * 7 / 8 {
        let told = poll_once(pin!(limiter.check("ann", 1).into_future()));
        assert!(told.expect("it is decided here").unwrap().is_allowed());
        asked += 1;
    }
    (asked, granted)
}

#[tokio::test]
async fn a_node_with_few_units_left_asks_for_more_while_no_request_waits() {
    let (server, clock) = (Server::start(&[]), new_year());
    let limiter = limiter(&node(&server, &clock), [daily("a", 100_000)]);
    let (_, granted) = runs_low(&limiter).await;
    until("more units come", || stats(&limiter).granted > granted).await;
}

/// Units that come after all others went back would lapse with the process.
#[tokio::test]
async fn units_on_their_way_go_back_too_before_a_process_ends() {
    let (server, clock) = (Server::start(&[]), new_year());
    let mut proxy = Proxy::start(&server);
    let leasing = leasing().open(proxy.url()).unwrap().clock(clock.clone());
    let node = limiter(&leasing, [daily("a", 100_000)]);
    proxy.delay(Duration::from_millis(20));
    let (asked, granted) = runs_low(&node).await;
    leasing.give_leases_back().await;
    let after = stats(&node);
    assert!(after.granted > granted, "{after:?}");
    assert_eq!((after.held, after.lapsed), (0, 0), "{after:?}");
    let direct = store(&server).clock(clock);
    let observer = limiter(&direct, [daily("a", 100_000)]);
    let peeked = observer.peek("ann", 0).await.unwrap();
    assert_eq!(used(&peeked), [asked]);
}

/// A bucket drains in no time, and a log forgets in a second. What nodes hold would be forgotten with either.
#[tokio::test]
async fn a_state_lives_as_long_as_nodes_hold_units_of_it() {
    let server = Server::start(&[]);
    for policy in [
        Policy::new("bucket", TokenBucket::per_second(1_000).burst(100)),
        Policy::new("gcra", Gcra::per_second(1_000).burst(100)),
        Policy::new("log", SlidingLog::per_second(100)),
    ] {
        let leasing = patient().lease(Lease::up_to(Duration::from_secs(60)));
        let leasing = leasing.open(server.url()).unwrap();
        let key = leasing.store_key(&policy, "ann");
        let node = limiter(&leasing, [policy.clone()]);
        let lasts: i64 = loop {
            warm(&node, "ann").await;
            let lasts = ask(&server, &["PTTL", &key]);
            // The thread of the store may have given them back, if the machine stood still.
            if stats(&node).held > 0 {
                break lasts;
            }
        };
        // A class ends after half of the life or more. The machine may have stood still for some of it.
        assert!(lasts >= 10_000, "{}: {lasts} ms", policy.name());
    }
}

#[tokio::test]
async fn requests_with_keys_of_several_servers_ask_each_time() {
    let cluster = Cluster::start();
    let leasing = over(leasing(), &cluster).clock(new_year());
    let keys = key_on_each(&cluster, &leasing, &daily("a", 1));
    let policies = || [daily("a", 100_000), daily("b", 100_000)];
    for (pair, leases) in [([keys[0], keys[1]], false), ([keys[0], keys[0]], true)] {
        let node = limiter(&leasing, policies());
        for _ in 0..50 {
            let asked = ["a", "b"].into_iter().zip(pair);
            let asked = asked.map(|(name, key)| (name, key, 1));
            let told = node.named(asked).unwrap().check().await.unwrap();
            assert!(told.is_allowed());
        }
        assert_eq!(stats(&node).granted > 0, leases, "{pair:?}");
    }
}
