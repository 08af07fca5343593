//! The circuit breaker of a store that fails, and the answers of each policy in the meantime.

use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::{AnchoredWindow, Limiter, OnStoreFailure, Policy, RedisStore};

use crate::scene::{NODES, Setting};
use crate::support::proxy::Proxy;
use crate::support::redis::Server;

/// The failures in a row after which a node sends no more requests.
const FAILURES: usize = 5;

#[test]
fn a_store_that_does_not_answer_is_asked_by_one_probe_at_a_time() {
    let server = Server::start(&[]);
    let mut proxy = Proxy::start(&server);
    let scene = Setting::new().start(|builder| builder.open(proxy.url()).unwrap());
    let mut scene = scene.warm();
    let (began, before) = (Instant::now(), proxy.arrivals());
    scene.strike();
    proxy.swallow(true);
    scene.lasts();
    // A call that is sent may be two arrivals, and so may a connection. The first probe comes 250 ms after
    // the last failure or, by chance, somewhat earlier.
    let probes = began.elapsed().as_millis() / 125 + 1;
    let each = 2 * (2 * FAILURES + usize::try_from(probes).unwrap());
    let arrived = proxy.arrivals() - before;
    let most = each * usize::try_from(NODES).unwrap();
    assert!(arrived <= most, "{arrived} of {most}");
    proxy.swallow(false);
    scene.recovers().felt_by_each_node();
}

/// Probes are seconds apart after a long outage.
#[test]
fn a_store_that_was_away_for_long_is_found_again() {
    let mut server = Server::start(&[]);
    let scene = Setting::new().start(|builder| builder.open(server.url()).unwrap());
    let mut scene = scene.warm();
    scene.strike();
    server.kill();
    scene.lasts_for(Duration::from_secs(8));
    server.restart();
    let run = scene.recovers().felt_by_each_node();
    run.loses(|_| 1).row("`kill -9`, away for 8 s, empty");
}

fn limiter(server: &Server, on: OnStoreFailure) -> Limiter {
    // No fault is a late answer.
    let store = RedisStore::builder().deadline(Duration::from_secs(60));
    let store = store.nodes(4).open(server.url()).unwrap();
    let policy = Policy::new("a", AnchoredWindow::per_day(10)).on_store_failure(on);
    Limiter::builder()
        .policy(policy)
        .store(store)
        .build()
        .unwrap()
}

#[test]
fn each_policy_does_what_it_is_told() {
    let server = Server::start(&[]);
    let runtime = Runtime::new().unwrap();
    let told = [
        OnStoreFailure::Local,
        OnStoreFailure::Allow,
        OnStoreFailure::Refuse,
    ];
    let limiters = told.map(|on| limiter(&server, on));
    for limiter in &limiters {
        let told = runtime
            .block_on(limiter.check("ann", 1).into_future())
            .unwrap();
        assert!(told.is_allowed() && !told.is_degraded());
    }
    server.kill();
    let [local, allow, refuse] = &limiters;
    for number in 0..20 {
        let told = runtime
            .block_on(local.check("ann", 1).into_future())
            .unwrap();
        // A quarter of ten, rounded up.
        assert_eq!(told.is_allowed(), number < 3, "{number}: {told:?}");
        assert!(told.is_degraded());
        let told = runtime
            .block_on(allow.check("ann", 1).into_future())
            .unwrap();
        assert!(told.is_allowed() && told.is_degraded());
        let error = runtime
            .block_on(refuse.check("ann", 1).into_future())
            .unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    }
}
