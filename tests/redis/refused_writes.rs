//! A server that answers and refuses writes: it is full, or misses its replicas.

use std::time::{Duration, Instant};

use tokio::time::sleep;
use tower_ratelimit::{Limiter, ManualClock, OnStoreFailure};

use crate::renewed_slots::are_renewed;
use crate::scene::{MINUTE, PATIENCE, ask, daily, every, keys, limiter, patient, until};
use crate::slots::{LIFE, Node, at_once, members, set_of, short_lived};
use crate::support::redis::Server;

fn full(server: &Server, is_full: bool) {
    let most = if is_full { "1" } else { "0" };
    server.ask(&["CONFIG", "SET", "maxmemory", most]);
}

/// Once, 36 of 6 requests were in flight after 12 s.
#[test]
fn a_full_server_gives_no_slot_and_renews_those_that_are_held() {
    let server = Server::start(&["--maxmemory-policy", "noeviction"]);
    let store = short_lived(&server);
    let node = Node::new(&store, [at_once(6)]);
    let set = set_of(&store, 7);
    assert!(node.takes(7));
    full(&server, true);
    let refused = node
        .runtime
        .block_on(node.limiter.reserve(7_u64, 1).into_future());
    let reason = refused.err().and_then(|error| error.reason());
    assert_eq!(reason, Some("out of memory"));
    are_renewed(&[(&server, set.clone())], LIFE);
    assert_eq!(members(&server, &set), 1);
    full(&server, false);
    assert!(node.takes(7));
    assert_eq!(members(&server, &set), 2);
}

/// Returns the states of all keys, byte for byte.
fn states(server: &Server) -> Vec<(String, Option<Vec<u8>>)> {
    let keys = keys(server).into_iter();
    keys.map(|key| (key.clone(), ask(server, &["DUMP", &key])))
        .collect()
}

#[tokio::test]
async fn what_fails_on_a_full_server_has_changed_nothing() {
    let server = Server::start(&["--maxmemory-policy", "noeviction"]);
    let clock = ManualClock::new();
    let mut failed = 0;
    let slots = [at_once(4)];
    for policy in every(4, MINUTE).into_iter().chain(slots) {
        for pause in [0, 20, 50, 70].map(Duration::from_secs) {
            server.ask(&["FLUSHALL"]);
            let store = patient().open(server.url()).unwrap().clock(clock.clone());
            let limiter = limiter(
                &store,
                [daily("first", 9), policy.clone(), daily("last", 9)],
            );
            let mut held = Vec::new();
            for _ in 0..3 {
                held.push(limiter.reserve("ann", 1).await.unwrap());
                clock.advance(Duration::from_secs(1));
            }
            clock.advance(pause);
            full(&server, true);
            let before = states(&server);
            for cost in [1, 2] {
                if limiter.reserve("ann", cost).await.is_err() {
                    failed += 1;
                    assert_eq!(states(&server), before, "{} after {pause:?}", policy.name());
                }
            }
            if limiter.refund("ann", 1).await.is_err() {
                failed += 1;
                assert_eq!(states(&server), before, "{} after {pause:?}", policy.name());
            }
            full(&server, false);
            held.into_iter().for_each(std::mem::forget);
        }
    }
    assert!(failed > 40, "{failed}");
}

/// Once, 1,787 of 1,851 requests were refused in 15 s, with none in flight.
#[tokio::test]
async fn a_server_that_refuses_writes_is_away_though_it_answers_with_denials() {
    let server = Server::start(&[]);
    // No slot ends by itself.
    let builder = patient().nodes(1).slot_ttl(60 * MINUTE);
    let store = builder.open(server.url()).unwrap();
    let policy = at_once(6).on_store_failure(OnStoreFailure::Local);
    let builder = Limiter::builder().policy(policy).store(store);
    let limiter = builder.build().unwrap();
    let mut held = Vec::new();
    for _ in 0..6 {
        held.push(limiter.reserve(7_u64, 1).await.unwrap());
    }
    let refuses = |refuses: bool| {
        let replicas = if refuses { "1" } else { "0" };
        server.ask(&["CONFIG", "SET", "min-replicas-to-write", replicas]);
    };
    refuses(true);
    let failures = || limiter.snapshot().store.failures;
    for one in held {
        let before = failures();
        drop(one);
        until("its release fails", || failures() > before).await;
        if failures() < 5 {
            // A denial in between, which the server answers.
            let denied = limiter.reserve(7_u64, 1).await.unwrap();
            assert!(!denied.is_allowed() && !denied.decision().is_degraded());
        } else {
            break;
        }
    }
    let started = Instant::now();
    let is_away = async |expected: bool| loop {
        let told = limiter.reserve(7_u64, 1).await.unwrap();
        if told.decision().is_degraded() == expected {
            return told.is_allowed();
        }
        assert!(started.elapsed() < PATIENCE, "{expected}: not in time");
        sleep(Duration::from_millis(2)).await;
    };
    assert!(is_away(true).await);
    refuses(false);
    is_away(false).await;
}
