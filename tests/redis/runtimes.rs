//! Requests of runtimes that do nothing more, beside those of one that runs.

use std::env;
use std::pin::pin;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tower_ratelimit::limiter::Reservation;
use tower_ratelimit::store::{Backend as _, Lease, Store as _};
use tower_ratelimit::{Limiter, RedisStore};

use crate::scene::{PATIENCE, ask, cluster_store, daily, limiter, over, patient, store, used};
use crate::sentinel::names;
use crate::slots::{at_once, members, set_of, short_lived};
use crate::support::redis::{Cluster, Server, until};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Runtimes that do nothing for what requests have begun in them, as long as this exists.
struct Idle {
    /// Its only thread is blocked until this is dropped.
    _blocks: Sender<()>,
    blocked: Runtime,
    /// It is run by nothing.
    asleep: Runtime,
}

impl Idle {
    fn new() -> Self {
        let mut builder = Builder::new_multi_thread();
        let blocked = builder.worker_threads(1).enable_all().build().unwrap();
        let ((blocks, until_dropped), (tell, told)) = (channel::<()>(), channel());
        blocked.spawn(async move {
            tell.send(()).unwrap();
            let _ = until_dropped.recv();
        });
        told.recv().unwrap();
        Self {
            _blocks: blocks,
            blocked,
            asleep: runtime(),
        }
    }

    /// Begins requests in each, and in a runtime that then ends.
    fn begins_requests(limiter: &Limiter) -> Self {
        let ends = runtime();
        drops_requests(&ends, limiter, 1);
        drop(ends);
        let idle = Self::new();
        for runtime in [&idle.asleep, &idle.blocked] {
            drops_requests(runtime, limiter, 3);
        }
        idle
    }
}

/// Begins so many requests, lets each reach its task, and drops them: what they have begun is left to the runtime.
fn drops_requests(runtime: &Runtime, limiter: &Limiter, requests: usize) {
    runtime.block_on(async {
        for _ in 0..requests {
            let mut check = pin!(limiter.check("ann", 1).into_future());
            for _ in 0..2 {
                let polled = check.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                if polled.is_ready() {
                    break;
                }
            }
        }
    });
}

/// Some come one after the other, and some at once.
fn every_request_is_decided_by_the_server(store: &RedisStore) {
    let limiter = limiter(store, [daily("a", 100_000)]);
    let _idle = Idle::begins_requests(&limiter);
    let runs = runtime();
    for at_once in [1, 1, 1, 1, 1, 100] {
        let checks = (0..at_once).map(|_| limiter.check("ann", 1).into_future());
        for told in runs.block_on(join_all(checks)) {
            let told = told.unwrap();
            assert!(told.is_allowed() && !told.is_degraded());
        }
    }
}

/// Calls were tasks in the runtime of a request: 97 of 100 requests took the deadline.
#[test]
fn requests_share_no_fate_with_the_runtime_that_began_their_calls() {
    let server = Server::start(&[]);
    every_request_is_decided_by_the_server(&store(&server));
}

#[test]
fn nor_do_they_over_a_cluster() {
    every_request_is_decided_by_the_server(&cluster_store(&Cluster::start()));
}
#[test]
fn nor_do_they_at_a_master_that_a_sentinel_names() {
    let server = Server::start(&[]);
    let port = server.port();
    let sentinel = names(move || port);
    let store = patient().open_sentinel("mymaster", [sentinel.url()]);
    every_request_is_decided_by_the_server(&store.unwrap());
}

#[test]
fn leases_share_no_fate_with_the_runtime_that_asked_for_them() {
    let server = Server::start(&[]);
    let lease = Lease::up_to(Duration::from_secs(60));
    let store = patient().lease(lease).open(server.url()).unwrap();
    every_request_is_decided_by_the_server(&store);
}

/// The task that probes was one of the runtime whose request failed.
#[test]
fn an_outage_that_was_found_in_a_runtime_that_is_not_run_any_more_ends_without_requests() {
    for kind in 0..2 {
        let mut server = Server::start(&[]);
        let limiter = limiter(&store(&server), [daily("a", 100_000)]);
        let idle = Idle::new();
        let runtime = [&idle.asleep, &idle.blocked][kind];
        server.kill();
        while limiter.snapshot().store.is_up {
            assert!(
                runtime
                    .block_on(limiter.check("ann", 1).into_future())
                    .is_err()
            );
        }
        server.restart();
        until("the server is found again", || {
            limiter.snapshot().store.is_up
        });
    }
}

/// Such as by a subscriber of the log that blocks. Requests waited for it without an end, and no outage was told.
fn requests_do_without_a_thread_that_is_stuck(store: &RedisStore) {
    let policies = [daily("a", 1_000_000)];
    let limiter = Limiter::builder().policies(policies).store(store.clone());
    let limiter = limiter.build().unwrap();
    let runs = runtime();
    let mut keys = 0_u64..;
    // Each is of another key, for which this node holds no units.
    let mut is_degraded = || {
        let key = keys.next().unwrap();
        runs.block_on(limiter.check(key, 1).into_future())
            .unwrap()
            .is_degraded()
    };
    until("the store decides", || !is_degraded());
    let (blocks, until_dropped) = channel::<()>();
    let of_store = store.open(&[]).unwrap().runtime().unwrap();
    of_store.spawn(async move { until_dropped.recv() });
    until("the store is away", || {
        is_degraded() && !limiter.snapshot().store.is_up
    });
    drop(blocks);
    // Nor does the probe need a runtime of requests.
    until("the store is back", || limiter.snapshot().store.is_up);
    until("the store decides again", || !is_degraded());
}

#[test]
fn requests_have_a_clock_of_their_own_while_the_thread_of_the_store_is_stuck() {
    let server = Server::start(&[]);
    let store = RedisStore::builder().nodes(1).open(server.url()).unwrap();
    requests_do_without_a_thread_that_is_stuck(&store);
}

/// Each request took twice the deadline, and the store was never found to be away.
#[test]
fn so_have_requests_that_ask_for_units() {
    let server = Server::start(&[]);
    let lease = Lease::up_to(Duration::from_secs(60));
    let store = RedisStore::builder().nodes(1).lease(lease);
    requests_do_without_a_thread_that_is_stuck(&store.open(server.url()).unwrap());
}

#[test]
fn so_have_requests_over_a_cluster() {
    let cluster = Cluster::start();
    let store = over(RedisStore::builder().nodes(1), &cluster);
    requests_do_without_a_thread_that_is_stuck(&store);
}

/// It waited without an end.
#[test]
fn so_has_the_giving_back_of_leases() {
    let server = Server::start(&[]);
    let lease = Lease::up_to(Duration::from_secs(60));
    let store = RedisStore::builder().lease(lease);
    let store = store.open(server.url()).unwrap();
    let limiter = limiter(&store, [daily("a", 1_000_000)]);
    let runs = runtime();
    until("units are leased", || {
        runs.block_on(limiter.check("ann", 1).into_future()).is_ok()
    });
    let (blocks, until_dropped) = channel::<()>();
    let of_store = store.open(&[]).unwrap().runtime().unwrap();
    of_store.spawn(async move { until_dropped.recv() });
    runs.block_on(async {
        let given = timeout(PATIENCE, store.give_leases_back()).await;
        assert!(given.is_ok(), "it waits for a thread that is stuck");
    });
    drop(blocks);
}

/// Each request was decided without the store, no outage was found, and the log said nothing.
#[test]
fn a_store_that_gets_no_thread_is_away() {
    const URL: &str = "A_STORE_THAT_GETS_NO_THREAD";
    let Ok(url) = env::var(URL) else {
        let server = Server::start(&[]);
        let name = thread::current().name().unwrap().to_owned();
        let child = Command::new(env::current_exe().unwrap())
            .args([&name, "--exact", "--test-threads=1", "--nocapture"])
            .env(URL, server.url())
            // No thread can have such a stack.
            .env("RUST_MIN_STACK", (1_u64 << 60).to_string())
            .output();
        let child = child.unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success(), "{child:?}");
        assert!(said.contains("found away"), "{said}");
        return;
    };
    let lease = Lease::up_to(Duration::from_secs(60));
    let builder = || RedisStore::builder().nodes(1);
    for builder in [builder(), builder().lease(lease)] {
        let policies = [daily("a", 1_000_000)];
        let store = builder.open(&*url).unwrap();
        let limiter = Limiter::builder().policies(policies).store(store);
        let limiter = limiter.build().unwrap();
        let runs = runtime();
        for _ in 0..5 {
            assert!(limiter.snapshot().store.is_up);
            let told = runs
                .block_on(limiter.check("ann", 1).into_future())
                .unwrap();
            assert!(told.is_degraded());
        }
        assert!(!limiter.snapshot().store.is_up);
    }
    println!("found away");
}

/// Fifty requests that reserved 100 and settled 1 stayed charged 5,000.
#[test]
fn what_is_settled_where_no_runtime_runs_is_settled() {
    let server = Server::start(&[]);
    let limiter = limiter(&store(&server), [daily("a", 100_000)]);
    let (idle, runs) = (Idle::new(), runtime());
    for runtime in [&idle.asleep, &idle.blocked] {
        for _ in 0..25 {
            let held = runtime
                .block_on(limiter.reserve("ann", 100).into_future())
                .unwrap();
            // Dropped in the runtime, which does nothing more.
            let _inside = runtime.enter();
            held.settle(1);
        }
    }
    until("all are settled", || {
        used(&runs.block_on(limiter.peek("ann", 0).into_future()).unwrap()) == [50]
    });
    assert_eq!(limiter.lost_settlements(), 0);
}

/// The first slot began the task that renews all of them.
#[test]
fn slots_are_renewed_though_the_runtime_of_the_first_is_asleep_or_has_ended() {
    let server = Server::start(&[]);
    let store = short_lived(&server);
    let limiter = limiter(&store, [at_once(1)]);
    let (idle, ends, runs) = (Idle::new(), runtime(), runtime());
    let first = [
        idle.asleep
            .block_on(limiter.reserve(6_u64, 1).into_future())
            .unwrap(),
        idle.blocked
            .block_on(limiter.reserve(7_u64, 1).into_future())
            .unwrap(),
        ends.block_on(limiter.reserve(8_u64, 1).into_future())
            .unwrap(),
    ];
    drop(ends);
    let second = runs
        .block_on(limiter.reserve(9_u64, 1).into_future())
        .unwrap();
    assert!(second.is_allowed() && first.iter().all(Reservation::is_allowed));
    for key in [6, 7, 8, 9] {
        let set = set_of(&store, key);
        let ends =
            || ask::<Vec<(String, f64)>>(&server, &["ZRANGE", &set, "0", "-1", "WITHSCORES"]);
        let begun = ends()[0].1;
        until("it was renewed past two lives", || {
            ends().first().is_some_and(|(_, end)| *end > begun + 2e6)
        });
        assert_eq!(members(&server, &set), 1);
    }
    drop((first, second));
}
