//! A denied request that cannot pass yet is denied again without a call to the server.

use std::time::{Duration, Instant};

use tower_ratelimit::algorithm::Limit;
use tower_ratelimit::key::IntoKey;
use tower_ratelimit::store::{Backend, Charge, RedisStoreBuilder, Store};
use tower_ratelimit::{
    AnchoredWindow, FixedWindow, Gcra, Limiter, Policy, Quota, RedisStore, SlidingLog, TokenBucket,
};

use crate::scene::{
    MINUTE, PATIENCE, calls, daily, key_on_each, limiter, over, patient, scripts_run, until_told,
    used,
};
use crate::support::redis::{Cluster, Server};

/// Longer than any test takes.
fn remembering() -> RedisStoreBuilder {
    patient().remember_denials_for(PATIENCE * 3)
}

fn open(builder: RedisStoreBuilder, server: &Server) -> RedisStore {
    builder.open(server.url()).unwrap()
}

async fn exhaust(limiter: &Limiter, key: &str) {
    while limiter.check(key, 1).await.unwrap().is_allowed() {}
}

#[tokio::test]
async fn a_flood_against_a_denied_key_does_not_reach_the_server() {
    let server = Server::start(&[]);
    let store = open(remembering(), &server);
    let limiter = limiter(&store, [daily("a", 5), daily("b", 3).soft()]);
    exhaust(&limiter, "ann").await;
    let before = scripts_run(&server);
    let commands = |server: &Server| -> u64 {
        let info: String = crate::scene::ask(server, &["INFO", "stats"]);
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix("total_commands_processed:"));
        line.unwrap().trim().parse().unwrap()
    };
    let heard = commands(&server);
    let mut told = limiter
        .check("ann", 1)
        .await
        .unwrap()
        .retry_after()
        .unwrap();
    for _ in 0..20_000 {
        let denied = limiter.check("ann", 1).await.unwrap();
        let retry = denied.retry_after().unwrap();
        assert!(retry <= told && used(&denied) == [5, 3]);
        told = retry;
    }
    assert_eq!(scripts_run(&server), before);
    // Reading the number is a command or two, on a connection of its own.
    assert!(commands(&server) - heard < 10);
}

#[tokio::test]
async fn a_denial_says_nothing_of_other_costs_keys_and_policies() {
    let server = Server::start(&[]);
    let store = open(remembering(), &server);
    let bucket = Policy::new("a", TokenBucket::per_day(10));
    let limiter = limiter(&store, [bucket, daily("b", 100)]);
    assert!(limiter.check("ann", 7).await.unwrap().is_allowed());
    for _ in 0..3 {
        assert!(!limiter.check("ann", 4).await.unwrap().is_allowed());
    }
    assert!(limiter.check("bob", 4).await.unwrap().is_allowed());
    assert!(limiter.check("ann", 2).await.unwrap().is_allowed());
    let asked = |name| limiter.named([(name, "ann", 4)]).unwrap().check();
    assert!(!asked("a").await.unwrap().is_allowed());
    assert!(asked("b").await.unwrap().is_allowed());
    assert!(!limiter.check("ann", 4).await.unwrap().is_allowed());
    assert!(limiter.check("ann", 0).await.unwrap().is_allowed());
}

/// Law 11: a request that one limit denies may pass under another, and the other way round.
#[tokio::test]
async fn a_denial_says_nothing_of_other_limits() {
    let server = Server::start(&[]);
    let store = open(remembering(), &server);
    let bucket = Policy::new("a", TokenBucket::per_day(10));
    let backend = store.open(&[bucket.into()]).unwrap();
    let charge = Charge::new(0, "ann".into_key(), 1);
    let [own, low, high] = [
        charge,
        charge.under(Limit::new(5, 5)),
        charge.under(Limit::new(20, 20)),
    ];
    let allows = async |charge: Charge| {
        let told = backend.decide(&[charge]).wait().await.unwrap();
        let (_, told) = told.iter().next().unwrap();
        (told.is_allowed(), told.limit(), told.is_overridden())
    };
    for _ in 0..5 {
        assert_eq!(allows(low).await, (true, 5, false));
    }
    let denied = async |charge: Charge| {
        let before = scripts_run(&server);
        let told = allows(charge).await;
        (told, scripts_run(&server) == before)
    };
    assert_eq!(denied(low).await, ((false, 5, false), false));
    assert_eq!(denied(low).await, ((false, 5, false), true));
    for _ in 0..5 {
        assert_eq!(allows(own).await, (true, 10, false));
    }
    assert_eq!(denied(own).await, ((false, 10, false), false));
    // A named limit is the policy's own limit, if both are equal.
    let named = charge.under(Limit::new(10, 10));
    assert_eq!(allows(named).await, (false, 10, false));
    for limit in 0..10 {
        assert_eq!(allows(high).await, (true, 20, false), "{limit}");
    }
    assert_eq!(denied(low).await, ((false, 5, false), false));
    assert_eq!(denied(own).await, ((false, 10, false), false));
    assert_eq!(denied(high).await, ((false, 20, false), false));
    for (charge, limit) in [(low, 5), (own, 10), (high, 20)] {
        let (told, is_remembered) = denied(charge).await;
        assert_eq!((told.0, told.1, is_remembered), (false, limit, true));
    }
}

/// For each verb that changes a key: whether the next denied request calls the server.
#[tokio::test]
async fn whatever_changes_a_key_through_the_store_ends_what_is_remembered() {
    let server = Server::start(&[]);
    let store = open(remembering(), &server);
    let policies = || [daily("a", 5)];
    let gone = async |one: &Limiter, key: &str| {
        let before = scripts_run(&server);
        let denied = one.check(key, 1).await.unwrap();
        assert_ne!(
            scripts_run(&server),
            before,
            "{key}: the server was not asked"
        );
        denied.is_allowed()
    };
    for node in ["one", "other"] {
        let one = limiter(&store, policies());
        // A limiter of the same store, such as an operator's beside that of the layer.
        let other = limiter(&store.clone(), policies());
        let limiter = if node == "one" { &one } else { &other };
        let key = |verb: &str| format!("{verb}-{node}");
        for verb in ["refund", "reset", "settle", "unblock"] {
            exhaust(&one, &key(verb)).await;
            let before = scripts_run(&server);
            assert!(!one.check(&key(verb), 1).await.unwrap().is_allowed());
            assert_eq!(scripts_run(&server), before);
        }
        limiter.refund(&key("refund"), 1).await.unwrap();
        assert!(gone(&one, &key("refund")).await);
        limiter.reset(&key("reset")).await.unwrap();
        assert!(gone(&one, &key("reset")).await);
        limiter.settle(&key("settle"), 1).await.unwrap();
        assert!(!gone(&one, &key("settle")).await);
        limiter.unblock(&key("unblock")).await.unwrap();
        assert!(!gone(&one, &key("unblock")).await);

        limiter.block(&key("blocked"), MINUTE).await.unwrap();
        assert!(!one.check(&key("blocked"), 1).await.unwrap().is_allowed());
        limiter.unblock(&key("blocked")).await.unwrap();
        assert!(gone(&one, &key("blocked")).await);
    }
}

/// The bound is the setting, counted from the end of the other call.
#[tokio::test]
async fn a_refund_by_another_node_is_seen_within_the_configured_time() {
    let longest = Duration::from_millis(150);
    let server = Server::start(&[]);
    let near = limiter(
        &open(patient().remember_denials_for(longest), &server),
        [daily("a", 5)],
    );
    let far = limiter(&open(remembering(), &server), [daily("a", 5)]);
    until_told(async || {
        exhaust(&near, "ann").await;
        far.reset("ann").await.unwrap();
        let given_back = Instant::now();
        let mut unnoticed = 0;
        loop {
            let asked = Instant::now();
            if near.check("ann", 1).await.unwrap().is_allowed() {
                break;
            }
            unnoticed += 1;
            assert!(asked < given_back + longest, "{:?}", asked - given_back);
        }
        // The denial has been remembered.
        (unnoticed > 0).then_some(())
    })
    .await;
}

/// A client that asks without a pause passes as soon as there is room, and its wait is never too short.
#[tokio::test]
async fn no_request_is_denied_for_longer_than_the_limit_says() {
    let period = Duration::from_millis(300);
    // The clock of this test and the server's may differ by this much.
    let slack = Duration::from_millis(5);
    let quota = Quota::new(1, period).unwrap();
    let server = Server::start(&[]);
    for policy in [
        Policy::new("a", AnchoredWindow::of(quota)),
        Policy::new("b", SlidingLog::of(quota).unwrap()),
        Policy::new("c", Gcra::of(quota)),
    ] {
        let name = policy.name().to_owned();
        let limiter = limiter(&open(remembering(), &server), [policy]);
        let mut key = 0_u32;
        let denials = until_told(async || {
            key += 1;
            let not_before = Instant::now() + period;
            assert!(limiter.check(key, 1).await.unwrap().is_allowed());
            let no_later = Instant::now() + period;
            let mut denials = 0_u64;
            loop {
                let asked = Instant::now();
                let told = limiter.check(key, 1).await.unwrap();
                let answered = Instant::now();
                if told.is_allowed() {
                    assert!(answered + slack >= not_before, "{name}: too soon");
                    break;
                }
                denials += 1;
                assert!(asked <= no_later + slack, "{name}: denied for too long");
                let passes = answered + told.retry_after().unwrap();
                assert!(
                    passes + slack >= not_before,
                    "{name}: told too short a wait"
                );
            }
            (denials > 0).then_some(denials)
        })
        .await;
        let asked = calls(&server, "evalsha");
        assert!(
            asked < denials || denials < 10,
            "{name}: {asked} of {denials} asked"
        );
    }
}

#[tokio::test]
async fn with_a_length_of_zero_the_server_is_asked_each_time() {
    let server = Server::start(&[]);
    let limiter = limiter(&open(patient(), &server), [daily("a", 5)]);
    exhaust(&limiter, "ann").await;
    let (before, _) = scripts_run(&server);
    for _ in 0..10 {
        assert!(!limiter.check("ann", 1).await.unwrap().is_allowed());
    }
    assert_eq!(scripts_run(&server).0, before + 10);
}

/// The calls of 1,000 denied requests, as docs/many-nodes.md tells them.
#[tokio::test]
async fn a_flood_reaches_the_server_where_another_node_could_make_the_wait_longer() {
    let server = Server::start(&[]);
    let window = || Policy::new("window", FixedWindow::per_day(5));
    let bucket = || Policy::new("bucket", TokenBucket::per_day(5));
    let calls = async |policies: Vec<Policy>, (left, cost): (u32, u32), settles: bool| {
        let store = open(remembering(), &server);
        let limiter = limiter(&store, policies);
        limiter.reset("ann").await.unwrap();
        if settles {
            limiter.settle("ann", 5 - left).await.unwrap();
        } else {
            assert!(limiter.check("ann", 5 - left).await.unwrap().is_allowed());
        }
        let (before, _) = scripts_run(&server);
        for _ in 0..1_000 {
            let _ = limiter.check("ann", cost).await.unwrap();
        }
        scripts_run(&server).0 - before
    };
    let (all, some) = ((0, 1), (2, 3));
    // A day or a bucket's unit may end meanwhile.
    let few = 0..20;
    assert!(few.contains(&calls(vec![window()], all, false).await));
    assert!(few.contains(&calls(vec![bucket()], all, false).await));
    assert!(few.contains(&calls(vec![window()], some, false).await));
    assert!(few.contains(&calls(vec![window()], all, true).await));
    assert_eq!(calls(vec![bucket()], some, false).await, 1_000);
    assert_eq!(calls(vec![bucket()], all, true).await, 1_000);
    // The other policy has room, and a longer wait if it has none.
    let month = Policy::new(
        "month",
        AnchoredWindow::of(Quota::new(9, MINUTE * 60 * 24 * 30).unwrap()),
    );
    assert_eq!(calls(vec![bucket(), month], all, false).await, 1_000);
    let second = Policy::new("second", TokenBucket::per_second(9));
    assert!(few.contains(&calls(vec![bucket(), second], all, false).await));
}

/// In a cluster, the charge of the first key is given back each time that the second denies.
#[tokio::test]
async fn a_flood_of_denials_by_the_second_of_two_nodes_reaches_neither() {
    let cluster = Cluster::start();
    let store = over(remembering(), &cluster);
    let keys = key_on_each(&cluster, &store, &daily("a", 5));
    let limiter = limiter(&store, [daily("a", 5), daily("b", 1)]);
    let check = || {
        limiter
            .named([("a", keys[0], 1), ("b", keys[1], 1)])
            .unwrap()
            .check()
    };
    assert!(check().await.unwrap().is_allowed());
    assert!(!check().await.unwrap().is_allowed());
    let run = || -> Vec<(u64, u64)> { cluster.nodes.iter().map(scripts_run).collect() };
    let before = run();
    for _ in 0..100 {
        let denied = check().await.unwrap();
        assert_eq!(used(&denied), [1, 1]);
    }
    assert_eq!(run(), before);
    // Units that are given back to the key that denies end the remembered denial.
    let asked = limiter.named([("a", keys[1], 0)]).unwrap().check();
    assert!(asked.await.unwrap().is_allowed());
    limiter.reset(keys[1]).await.unwrap();
    assert!(check().await.unwrap().is_allowed());
}
