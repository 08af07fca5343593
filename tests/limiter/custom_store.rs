//! The example of a custom store is correct and short.

#[path = "../../examples/custom_store.rs"]
#[allow(dead_code, reason = "the example's `main` is not called")]
mod memcached;
use std::fmt::Display;
use std::sync::atomic::{AtomicUsize, Ordering};

use tower_ratelimit::StoreError;
use tower_ratelimit::store::{Change, Changed, Items, Reply};
use tower_ratelimit_testing::Conformance;

use memcached::Memcached;
use tower_ratelimit_testing::servers::program::Server;

/// Asks the conformance suite, and again if the example gave up: in its two seconds, a busy machine may not run the
/// server.
async fn conforms<E: Display>(memcached: &Server, mut run: impl AsyncFnMut() -> Result<(), E>) {
    let mut attempts = 0;
    while let Err(broken) = run().await {
        attempts += 1;
        let told = broken.to_string();
        let is_late = told.contains("deadline has elapsed");
        assert!(
            is_late && attempts < 9,
            "{told}; memcached: {}",
            memcached.log()
        );
    }
}

/// It asks the conformance suite itself.
#[tokio::test(flavor = "multi_thread")]
async fn the_store_over_memcached_conforms() {
    let memcached = Server::memcached();
    conforms(&memcached, || memcached::run(memcached.address())).await;
}

/// Two nodes over one memcached in turn: each one sees the blocks of the other.
#[derive(Debug)]
struct Nodes {
    each: [Memcached; 2],
    updates: AtomicUsize,
}

impl Items for Nodes {
    fn update(&self, change: Change) -> Reply<Result<Changed, StoreError>> {
        let turn = self.updates.fetch_add(1, Ordering::Relaxed);
        self.each[turn % 2].update(change)
    }

    fn at_once(&self) -> usize {
        self.each[0].at_once()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_over_one_memcached_conform() {
    let memcached = Server::memcached();
    let nodes = || Nodes {
        each: [(); 2].map(|()| Memcached::at(memcached.address())),
        updates: AtomicUsize::new(0),
    };
    conforms(&memcached, || Conformance::of_items(nodes()).run()).await;
}

#[test]
fn the_example_has_fewer_than_200_lines() {
    let text = include_str!("../../examples/custom_store.rs");
    assert!(text.lines().count() < 200);
}
