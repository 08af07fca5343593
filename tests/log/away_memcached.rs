//! A memcached that is killed and restarted, and the log of the outage.
//!
//! In a process of its own, because `tracing` may cache that a call site logs nothing on another thread.

#[path = "../../examples/custom_store.rs"]
#[allow(dead_code, reason = "the example's `main` is not called")]
mod custom_store;
use std::time::{Duration, Instant};

use tower_ratelimit::store::SharedStore;
use tower_ratelimit::{FixedWindow, Limiter, OnStoreFailure, Policy};

use self::custom_store::Memcached;
use crate::support::log::{Log, LogLine};
use tower_ratelimit_testing::servers::program::Server;

const PATIENCE: Duration = Duration::from_secs(60);

/// Far longer than a request that does not wait for the store, and far shorter than the deadline.
const AT_ONCE: Duration = Duration::from_secs(20);

fn store(server: &Server) -> SharedStore<Memcached> {
    let items = Memcached::at(server.address());
    let store = SharedStore::new(items).nodes(2).deadline(PATIENCE);
    store.named(format!("memcached {}", server.address()))
}

fn limiter(store: &SharedStore<Memcached>, policy: Policy) -> Limiter {
    let limiter = Limiter::builder().policy(policy);
    limiter.store(store.clone()).build().unwrap()
}

/// Sends requests until the store decides again.
async fn is_back(limiter: &Limiter) {
    let began = Instant::now();
    while limiter.check("back", 0).await.unwrap().is_degraded() {
        assert!(began.elapsed() < PATIENCE, "it does not come back");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn run(scene: impl Future<Output = ()>) -> Vec<LogLine> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let ((), lines) = Log::of(|| runtime.unwrap().block_on(scene));
    lines
}

#[test]
fn requests_go_on_limited_by_the_node_and_the_log_tells_the_loss_and_the_return() {
    let mut address = String::new();
    let lines = run(async {
        let mut server = Server::memcached();
        address = format!("memcached {}", server.address());
        let store = store(&server);
        let logins = Policy::new("logins", FixedWindow::per_day(9));
        let logins = limiter(&store, logins.on_store_failure(OnStoreFailure::Refuse));
        let reads = limiter(&store, Policy::new("reads", FixedWindow::per_day(10)));
        assert!(!reads.check("ann", 9).await.unwrap().is_degraded());
        server.kill();
        let mut admitted = 0;
        for _ in 0..100 {
            let began = Instant::now();
            let decision = reads.check("ann", 1).await.unwrap();
            assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
            assert!(decision.is_degraded());
            admitted += u32::from(decision.is_allowed());
        }
        assert_eq!(admitted, 5);
        assert!(logins.check("ann", 1).await.is_err());
        let server = Server::memcached_at(server.address());
        is_back(&reads).await;
        // The server has lost its data, and the node has not counted there meanwhile.
        let decision = reads.check("ann", 10).await.unwrap();
        assert!(
            decision.is_allowed() && !decision.is_degraded(),
            "{}",
            server.log()
        );
        assert!(logins.check("ann", 1).await.unwrap().is_allowed());
    });
    let [first, away, back] = &*lines else {
        panic!("{lines:?}");
    };
    assert_eq!(first.level, tracing::Level::WARN);
    assert!(first.fields["message"].contains("the first one for an hour"));
    assert_eq!(away.level, tracing::Level::WARN);
    assert!(away.fields["message"].contains("does not answer"));
    assert_eq!(away.fields["server"], address);
    assert_eq!(away.fields["local"], "reads");
    assert_eq!(away.fields["refuse"], "logins");
    assert_eq!(back.level, tracing::Level::INFO);
    assert!(back.fields["message"].contains("answers again"));
    let decided: u64 = back.fields["decided"].parse().unwrap();
    assert!(decided >= 96, "{decided}");
}
