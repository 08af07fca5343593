#[cfg(feature = "redis")]
use std::time::Duration;

#[cfg(feature = "redis")]
use tower_ratelimit::RedisStore;
use tower_ratelimit::store::{Change, Changed, Items, Reply, SharedStore};
use tower_ratelimit::{ManualClock, MemoryStore, StoreError};
use tower_ratelimit_testing::Conformance;

use crate::conformance::scratch::Scratch;
use crate::support::items::Map;

#[tokio::test(flavor = "multi_thread")]
async fn the_store_in_memory_conforms() {
    let clock = ManualClock::new();
    let store = MemoryStore::new().clock(clock.clone());
    Conformance::of(store).clock(clock).run().await.unwrap();
    Conformance::of(MemoryStore::new()).run().await.unwrap();
}

#[tokio::test]
async fn items_behind_a_lock_conform() {
    let clock = ManualClock::new();
    let store = SharedStore::new(Map::new(&clock));
    Conformance::of(store).clock(clock).run().await.unwrap();
}

#[tokio::test]
async fn items_that_are_compared_and_swapped_conform() {
    Conformance::of_items(Scratch::new()).run().await.unwrap();
}

/// One item at a time, and later.
#[derive(Clone, Debug)]
struct Slow(Scratch);

impl Items for Slow {
    fn update(&self, change: Change) -> Reply<Result<Changed, StoreError>> {
        let items = self.0.clone();
        Reply::later(async move {
            tokio::task::yield_now().await;
            items.update(change).wait().await
        })
    }

    fn at_once(&self) -> usize {
        1
    }
}

#[tokio::test]
async fn items_that_answer_later_and_one_at_a_time_conform() {
    Conformance::of_items(Slow(Scratch::new()))
        .run()
        .await
        .unwrap();
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread")]
async fn the_store_over_redis_conforms() {
    let server = crate::support::redis::Server::start(&[]);
    // A remembered denial has the numbers of the moment at which it was denied.
    let builder = || {
        let builder = RedisStore::builder().deadline(Duration::from_secs(60));
        builder.remember_denials_for(Duration::ZERO)
    };
    let store = builder().open(server.url()).unwrap();
    Conformance::of(store).run().await.unwrap();
    let clock = ManualClock::new();
    let store = builder().open(server.url()).unwrap().clock(clock.clone());
    Conformance::of(store).clock(clock).run().await.unwrap();
}
