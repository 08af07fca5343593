//! The counts of stores.

use std::time::Duration;

use tower_ratelimit::{FixedWindow, Limiter, MemoryStore, OnStoreFailure, Policy, RedisStore};

use crate::support::redis::Server;

fn limiter(server: &Server) -> Limiter {
    let store = RedisStore::builder()
        .deadline(Duration::from_secs(5))
        .nodes(1)
        .open(server.url())
        .unwrap();
    let free = FixedWindow::per_day(3);
    Limiter::builder()
        .policy(Policy::new("local", FixedWindow::per_day(2)))
        .policy(Policy::new("free", free).on_store_failure(OnStoreFailure::Allow))
        .store(store)
        .build()
        .unwrap()
}

#[tokio::test]
async fn calls_denials_and_an_outage_of_redis_are_counted() {
    let server = Server::start(&[]);
    let limiter = limiter(&server);
    for allowed in [true, true, false, false] {
        let decision = limiter.check("ann", 1).await.unwrap();
        assert_eq!(decision.is_allowed(), allowed);
    }
    let snapshot = limiter.snapshot();
    let store = &snapshot.store;
    assert_eq!(
        (store.kind, store.is_up, store.failures),
        ("redis", true, 0)
    );
    assert_eq!((store.calls, store.remembered_denials), (3, 1));
    let latency = store.latency.unwrap();
    assert!(latency.p50 > Duration::ZERO && latency.p50 <= latency.p99);
    assert!(
        store.name.contains(&server.port().to_string()),
        "{}",
        store.name
    );
    let local = snapshot.policy("local").unwrap();
    assert_eq!((local.allowed, local.refused, local.degraded), (2, 2, 0));

    server.kill();
    for number in 0_u32..10 {
        assert!(limiter.check(number, 1).await.unwrap().is_degraded());
    }
    let snapshot = limiter.snapshot();
    let store = &snapshot.store;
    assert!(!store.is_up && store.away_since.is_some() && store.failing_parts == 1);
    assert!(store.failures >= 5, "{store:?}");
    for policy in ["local", "free"] {
        let told = snapshot.policy(policy).unwrap();
        assert_eq!((told.degraded, told.allowed), (10, 12), "{policy}");
    }
    // A request that went on without a decision was not charged.
    assert_eq!(snapshot.policy("free").unwrap().cost, 2);
    assert_eq!(snapshot.requests.degraded, 10);
}

#[tokio::test]
async fn a_request_on_which_a_store_cannot_decide_has_failed() {
    let server = Server::start(&[]);
    let store = RedisStore::builder().nodes(1).open(server.url()).unwrap();
    let logins = Policy::new("logins", FixedWindow::per_day(2));
    let limiter = Limiter::builder()
        .policy(logins.on_store_failure(OnStoreFailure::Refuse))
        .store(store)
        .build()
        .unwrap();
    server.kill();
    assert!(limiter.check("ann", 1).await.is_err());
    let snapshot = limiter.snapshot();
    assert_eq!(snapshot.policy("logins").unwrap().failed, 1);
    assert_eq!(snapshot.requests.failed, 1);
}

#[test]
fn the_store_in_this_process_tells_its_keys() {
    let limiter = Limiter::builder()
        .policy(Policy::new("a", FixedWindow::per_day(9)))
        .store(MemoryStore::new().max_keys(64))
        .build_local()
        .unwrap();
    for number in 0_u32..1_000 {
        let _ = limiter.check(number, 5).now();
    }
    let snapshot = limiter.snapshot();
    let keys = snapshot.policy("a").unwrap().keys.unwrap();
    assert!(keys.kept <= keys.most && keys.most < 1_000, "{keys:?}");
    assert!(keys.bytes > 0);
    let all = keys.kept + keys.evicted + keys.overflowed;
    assert_eq!(all, 1_000, "{keys:?}");
    assert_eq!((snapshot.store.kind, snapshot.store.calls), ("memory", 0));
}
