//! Requests of a runtime that is not run any more, or has ended, beside those of another one.

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tower_ratelimit::store::Lease;
use tower_ratelimit::{Limiter, RedisStore};

use crate::scene::{ask, daily, limiter, patient, store, used};
use crate::slots::{at_once, members, set_of, short_lived};
use crate::support::redis::{Server, until};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Begins so many requests, lets each reach its task, and drops them: what they have begun is left to the runtime.
fn drops_requests(runtime: &Runtime, limiter: &Limiter, requests: usize) {
    runtime.block_on(async {
        for _ in 0..requests {
            let mut check = pin!(limiter.check("ann", 1));
            for _ in 0..2 {
                let polled = check.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                if polled.is_ready() {
                    break;
                }
            }
        }
    });
}

/// One request before them came from a runtime that has ended, others from one that is asleep until they are decided.
fn every_request_is_decided_by_the_server(store: &RedisStore) {
    let limiter = limiter(store, [daily("a", 100_000)]);
    let (ends, asleep, runs) = (runtime(), runtime(), runtime());
    drops_requests(&ends, &limiter, 1);
    drop(ends);
    drops_requests(&asleep, &limiter, 3);
    for _ in 0..100 {
        let told = runs.block_on(limiter.check("ann", 1)).unwrap();
        assert!(told.is_allowed() && !told.is_degraded());
    }
    drop(asleep);
}

/// Calls were tasks in the runtime of a request: 97 of 100 requests took the deadline.
#[test]
fn requests_share_no_fate_with_the_runtime_that_began_their_calls() {
    let server = Server::start(&[]);
    every_request_is_decided_by_the_server(&store(&server));
}

#[test]
fn leases_share_no_fate_with_the_runtime_that_asked_for_them() {
    let server = Server::start(&[]);
    let lease = Lease::up_to(Duration::from_secs(60));
    let store = patient().lease(lease).open(server.url()).unwrap();
    every_request_is_decided_by_the_server(&store);
}

/// Fifty requests that reserved 100 and settled 1 stayed charged 5,000.
#[test]
fn what_is_settled_where_no_runtime_runs_is_settled() {
    let server = Server::start(&[]);
    let limiter = limiter(&store(&server), [daily("a", 100_000)]);
    let (asleep, runs) = (runtime(), runtime());
    for _ in 0..50 {
        let held = asleep.block_on(limiter.reserve("ann", 100)).unwrap();
        // Dropped in the runtime, which does nothing more.
        let _inside = asleep.enter();
        held.settle(1);
    }
    until("all are settled", || {
        used(&runs.block_on(limiter.peek("ann", 0)).unwrap()) == [50]
    });
    assert_eq!(limiter.lost_settlements(), 0);
}

/// The first slot began the task that renews all of them.
#[test]
fn slots_are_renewed_though_the_runtime_of_the_first_is_asleep_or_has_ended() {
    let server = Server::start(&[]);
    let store = short_lived(&server);
    let limiter = limiter(&store, [at_once(1)]);
    let (asleep, ends, runs) = (runtime(), runtime(), runtime());
    let first = [
        asleep.block_on(limiter.reserve(7_u64, 1)).unwrap(),
        ends.block_on(limiter.reserve(8_u64, 1)).unwrap(),
    ];
    drop(ends);
    let second = runs.block_on(limiter.reserve(9_u64, 1)).unwrap();
    assert!(second.is_allowed() && first.iter().all(|held| held.is_allowed()));
    for key in [7, 8, 9] {
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
