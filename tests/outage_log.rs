//! What the log says while Redis is away.
//!
//! In a process of their own: a place that logs nothing on another thread may be taken for one that never
//! does.

#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use tokio::time::timeout;
use tower_ratelimit::store::RedisLedger;
use tower_ratelimit::{AnchoredWindow, Limiter, Policy, RedisStore};

use crate::support::log::{Line, Log};
use crate::support::redis::Server;

const PATIENCE: Duration = Duration::from_secs(20);

fn store(server: &Server) -> RedisStore {
    let builder = RedisStore::builder().deadline(PATIENCE).nodes(2);
    builder.open(&server.url()).unwrap()
}

fn daily(name: &str) -> Policy {
    Policy::new(name, AnchoredWindow::per_day(9))
}

fn limiter(store: &RedisStore, policies: impl IntoIterator<Item = Policy>) -> Limiter<RedisLedger> {
    let limiter = Limiter::builder().policies(policies);
    limiter.store(store.clone()).build().unwrap()
}

/// Lets the server take nothing more, or everything again, and waits until the store knows.
async fn fill(server: &Server, limiter: &Limiter<RedisLedger>, is_full: bool) {
    server.ask(&[
        "CONFIG",
        "SET",
        "maxmemory",
        if is_full { "1" } else { "0" },
    ]);
    let known = async {
        for number in 0_u32.. {
            let asked = limiter.check(("somebody", number), u32::from(is_full));
            if asked.await.unwrap().is_degraded() == is_full && (!is_full || number > 5) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PATIENCE, known).await.unwrap();
}

/// What is logged of the store meanwhile.
fn logged(scene: impl Future<Output = ()>) -> Vec<Line> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let ((), lines) = Log::of(|| runtime.unwrap().block_on(scene));
    let of_the_store = |line: &Line| line.fields["message"].starts_with("the rate limiter's store");
    lines.into_iter().filter(of_the_store).collect()
}

#[test]
fn f42_each_change_is_told_once_with_its_reason_and_no_request_is() {
    let lines = logged(async {
        let server = Server::start(&[]);
        let store = store(&server);
        let limiter = limiter(&store, [daily("a"), daily("b")]);
        fill(&server, &limiter, true).await;
        for _ in 0..20 {
            assert!(limiter.check("ann", 0).await.unwrap().is_degraded());
        }
        fill(&server, &limiter, false).await;
        assert!(!limiter.check("ann", 1).await.unwrap().is_degraded());
    });
    let [away, back] = &*lines else {
        panic!("{lines:?}");
    };
    assert_eq!(away.level, tracing::Level::WARN);
    assert_eq!(away.fields["reason"], "out of memory");
    assert!(away.fields["message"].contains("does not answer"));
    assert_eq!(back.level, tracing::Level::INFO);
    assert!(back.fields["message"].contains("answers again"));
    let decided: u64 = back.fields["decided"].parse().unwrap();
    assert!(decided >= 21, "{decided}");
}

#[test]
fn f47_what_is_wrong_with_keys_is_told_once_and_names_none() {
    let lines = logged(async {
        let server = Server::start(&[]);
        let store = store(&server);
        let policy = daily("a");
        let limiter = limiter(&store, [policy.clone()]);
        for key in ["amelia", "bob"] {
            server.ask(&["LPUSH", &store.store_key(&policy, key), "x"]);
            assert!(limiter.check(key, 1).await.unwrap().is_degraded());
        }
    });
    let [line] = &*lines else {
        panic!("{lines:?}");
    };
    assert_eq!(line.fields["reason"], "wrong type");
    assert!(!format!("{line:?}").contains("amelia"), "{line:?}");
}
