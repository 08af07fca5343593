//! Blocks for refusals: a counter and hooks show when one begins.

use std::time::Duration;

use tower_ratelimit::policy::Penalty;
use tower_ratelimit::store::{SharedStore, Store};
use tower_ratelimit::{AnchoredWindow, Limiter, ManualClock, MemoryStore, Policy, RedisStore};

use crate::support::items::Map;
use crate::support::redis::Server;

const HOUR: Duration = Duration::from_secs(3_600);

/// Two requests pass in an hour. Three refusals block the key.
fn limiter<S: Store>(store: S) -> Limiter {
    let login = Policy::new("login", AnchoredWindow::per_hour(2));
    let login = login.penalty(Penalty::after(3, HOUR).block(2 * HOUR));
    let builder = Limiter::builder().policy(login).store(store);
    builder.build().unwrap()
}

/// Returns, for this many requests, whether each is refused, and whether a block of its key begins with it.
async fn asked(limiter: &Limiter, requests: usize) -> String {
    let mut seen = String::new();
    for _ in 0..requests {
        let decision = limiter.check("eve", 1).await.unwrap();
        let told = decision.binding().unwrap().1;
        assert!(told.is_blocked() || !told.is_penalized());
        seen.push(match (told.is_allowed(), told.is_blocked()) {
            (true, _) => 'a',
            (false, false) => 'r',
            (false, true) if told.is_penalized() => 'P',
            (false, true) => 'b',
        });
    }
    seen
}

async fn each_block_that_begins_is_told_and_counted(limiter: Limiter) {
    assert_eq!(asked(&limiter, 7).await, "aarrPbb");
    limiter.unblock("eve").await.unwrap();
    assert_eq!(asked(&limiter, 5).await, "rrPbb");
    let snapshot = limiter.snapshot();
    let login = snapshot.policy("login").unwrap();
    let counts = (login.allowed, login.refused, login.blocked, login.penalized);
    assert_eq!(counts, (2, 10, 6, 2));
}

#[tokio::test]
async fn in_this_process() {
    let store = MemoryStore::new().clock(ManualClock::new());
    each_block_that_begins_is_told_and_counted(limiter(store)).await;
}

#[tokio::test]
async fn in_a_shared_store() {
    let store = SharedStore::new(Map::new(&ManualClock::new()));
    each_block_that_begins_is_told_and_counted(limiter(store)).await;
}

/// The last refusals are remembered denials.
#[tokio::test]
async fn in_redis() {
    let server = Server::start(&[]);
    let store = RedisStore::builder().deadline(Duration::from_secs(20));
    let limiter = limiter(store.open(server.url()).unwrap());
    each_block_that_begins_is_told_and_counted(limiter).await;
}
