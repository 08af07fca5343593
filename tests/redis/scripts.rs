//! A server that does not know the script costs one more round trip, and no charge.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tower_ratelimit::ManualClock;

use crate::scene::{
    MINUTE, calls, cluster_store, daily, every, key_on_each, limiter, scripts_run, store, used,
};
use crate::support::redis::{Cluster, Server};

#[tokio::test]
async fn a_script_that_was_flushed_costs_one_round_trip_more_and_one_charge() {
    let server = Server::start(&[]);
    let limiter = limiter(&store(&server), [daily("a", 100), daily("b", 100)]);
    for round in 1..=5_u32 {
        server.ask(&["SCRIPT", "FLUSH"]);
        let (by_digest, by_text) = scripts_run(&server);
        let told = limiter.check("ann", 1).await.unwrap();
        assert_eq!(used(&told), [2 * round - 1; 2]);
        assert_eq!(scripts_run(&server), (by_digest + 1, by_text + 1));
        let told = limiter.check("ann", 1).await.unwrap();
        assert_eq!(used(&told), [2 * round; 2]);
        assert_eq!(scripts_run(&server), (by_digest + 2, by_text + 1));
    }
    assert_eq!(calls(&server, "script|load"), 0);
}

#[tokio::test]
async fn every_verb_is_done_once_by_a_server_that_has_forgotten_the_scripts() {
    let server = Server::start(&[]);
    for policy in every(100, MINUTE) {
        let name = policy.name().to_owned();
        let limiter = limiter(&store(&server), [policy]);
        let forget = || server.ask(&["SCRIPT", "FLUSH"]);
        forget();
        assert!(limiter.check("ann", 10).await.unwrap().is_allowed());
        forget();
        limiter.settle("ann", 50).await.unwrap();
        forget();
        limiter.refund("ann", 20).await.unwrap();
        forget();
        let told = limiter.peek("ann", 0).await.unwrap();
        // A part of the minute, and its edge, may have passed.
        assert!(used(&told)[0] <= 40, "{name}");
        forget();
        limiter.block("ann", MINUTE).await.unwrap();
        forget();
        assert!(
            limiter
                .check("ann", 0)
                .await
                .unwrap()
                .binding()
                .unwrap()
                .1
                .is_blocked()
        );
        forget();
        limiter.unblock("ann").await.unwrap();
        forget();
        limiter.reset("ann").await.unwrap();
        assert_eq!(used(&limiter.peek("ann", 0).await.unwrap()), [0], "{name}");
    }
}

/// It took one call for the requested number, another for the available number, and a peek if there was none. Other
/// requests could come in between, and then it began again.
#[tokio::test]
async fn the_available_units_are_taken_in_one_call() {
    let server = Server::start(&[]);
    for policy in every(10, MINUTE) {
        let name = policy.name().to_owned();
        let store = store(&server).clock(ManualClock::new());
        let limiter = limiter(&store, [policy, daily("other", 100)]);
        assert_eq!(
            limiter.acquire_up_to("bob", 3).await.unwrap().0,
            3,
            "{name}"
        );
        for (most, taken) in [(4, 4), (9, 6), (9, 0)] {
            let (before, texts) = scripts_run(&server);
            let (units, decision) = limiter.acquire_up_to("ann", most).await.unwrap();
            assert_eq!(units, taken, "{name}");
            assert_eq!(decision.is_allowed(), taken > 0, "{name}");
            assert_eq!(scripts_run(&server), (before + 1, texts), "{name}");
        }
        server.ask(&["FLUSHALL"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_are_flushed_under_load_leave_exactly_one_charge_a_call() {
    const TASKS: u32 = 32;
    const CALLS: u32 = 40;
    let server = Server::start(&[]);
    let limiter = limiter(
        &store(&server),
        [daily("a", 1_000_000), daily("b", 1_000_000)],
    );
    let is_over = AtomicBool::new(false);
    let flushes = std::thread::scope(|scope| {
        let flushing = scope.spawn(|| {
            let mut connection = server.connection();
            let mut flushes = 0_u32;
            while !is_over.load(Ordering::Relaxed) {
                crate::support::redis::ask(&mut connection, &["SCRIPT", "FLUSH"]);
                flushes += 1;
                std::thread::sleep(Duration::from_micros(200));
            }
            flushes
        });
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                let mut tasks = JoinSet::new();
                for _ in 0..TASKS {
                    let limiter = limiter.clone();
                    tasks.spawn(async move {
                        for _ in 0..CALLS {
                            assert!(limiter.check("ann", 1).await.unwrap().is_allowed());
                        }
                    });
                }
                let done = tasks.join_all().await;
                is_over.store(true, Ordering::Relaxed);
                drop(done);
            });
        });
        flushing.join().unwrap()
    });
    let told = limiter.peek("ann", 0).await.unwrap();
    assert_eq!(used(&told), [TASKS * CALLS; 2]);
    // The peek is one more call. Simultaneous requests may share a call.
    let (by_digest, by_text) = scripts_run(&server);
    assert!(by_digest <= u64::from(TASKS * CALLS) + 1);
    assert!(
        by_text > 0 && by_text < by_digest,
        "{by_text} of {by_digest}, {flushes} flushes"
    );
}

#[tokio::test]
async fn in_a_cluster_the_text_goes_to_the_node_of_the_slot_alone() {
    let cluster = Cluster::start();
    let store = cluster_store(&cluster);
    let limiter = limiter(&store, [daily("a", 100), daily("b", 100)]);
    let keys = key_on_each(&cluster, &store, &daily("a", 100));
    let run = || -> Vec<(u64, u64)> { cluster.nodes.iter().map(scripts_run).collect() };
    assert_eq!(run(), [(0, 0); 3]);
    for _ in 0..2 {
        assert!(limiter.check(keys[1], 1).await.unwrap().is_allowed());
    }
    assert_eq!(run(), [(0, 0), (2, 1), (0, 0)]);
    assert!(limiter.check(keys[2], 1).await.unwrap().is_allowed());
    assert_eq!(run(), [(0, 0), (2, 1), (1, 1)]);
    cluster.nodes[1].ask(&["SCRIPT", "FLUSH"]);
    assert!(limiter.check(keys[1], 1).await.unwrap().is_allowed());
    assert!(limiter.check(keys[2], 1).await.unwrap().is_allowed());
    assert_eq!(run(), [(0, 0), (3, 2), (2, 1)]);
    for node in &cluster.nodes {
        assert_eq!(calls(node, "script|load"), 0);
    }
    assert_eq!(used(&limiter.peek(keys[1], 0).await.unwrap()), [3; 2]);
}
