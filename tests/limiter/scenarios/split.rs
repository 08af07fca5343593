//! Limits that are divided among nodes which share nothing.

use tower_ratelimit::{
    Algorithm, FixedWindow, Gcra, LeakyBucket, LeakyQueue, Limiter, LocalLimiter, ManualClock,
    MemoryStore, Policy, SharedStore, SlidingLog, SlidingSlots, SlidingWindow, TokenBucket,
};

use crate::support::items::Map;

const LIMIT: u32 = 10;

fn node(algorithm: Algorithm, nodes: u32, clock: &ManualClock) -> LocalLimiter {
    Limiter::builder()
        .policy(Policy::new("a", algorithm))
        .nodes(nodes)
        .store(MemoryStore::new().clock(clock.clone()))
        .build_local()
        .unwrap()
}

/// Returns the units that a client gets if it asks each node for all that there is.
fn admitted(algorithm: Algorithm, nodes: u32, clock: &ManualClock) -> Vec<u32> {
    let nodes = (0..nodes).map(|_| node(algorithm, nodes, clock));
    nodes
        .map(|node| node.acquire_up_to("ann", u32::MAX).now().0)
        .collect()
}

#[test]
fn nodes_admit_the_limit_together_and_less_than_one_more_each() {
    let algorithms: [Algorithm; 8] = [
        FixedWindow::per_hour(LIMIT).into(),
        SlidingLog::per_hour(10).into(),
        SlidingWindow::per_hour(LIMIT).into(),
        SlidingSlots::per_hour(LIMIT).into(),
        TokenBucket::per_hour(LIMIT).into(),
        LeakyBucket::per_hour(LIMIT).into(),
        Gcra::per_hour(LIMIT).into(),
        LeakyQueue::per_hour(LIMIT).places(LIMIT - 1).into(),
    ];
    let clock = ManualClock::new();
    for algorithm in algorithms {
        for nodes in [1, 2, 3, 7, 10, 25] {
            let each = admitted(algorithm, nodes, &clock);
            let together: u32 = each.iter().sum();
            let name = algorithm.name();
            assert!(
                (LIMIT..LIMIT + nodes).contains(&together),
                "{name}: {each:?}"
            );
            assert!(
                each.iter().all(|share| *share == LIMIT.div_ceil(nodes)),
                "{name}: {each:?}"
            );
        }
    }
}

#[test]
fn a_burst_is_split_as_its_rate_is() {
    let clock = ManualClock::new();
    let bucket = TokenBucket::per_hour(100).burst(30);
    let share = node(bucket.into(), 4, &clock);
    let told = share.check("ann", 8).now();
    assert!(told.is_allowed());
    assert_eq!(told.binding().unwrap().1.limit(), 8);
    // A quarter of a hundred in an hour.
    let denied = share.check("ann", 1).now();
    assert_eq!(denied.retry_after().unwrap().as_secs(), 3_600 / 25);
}

#[test]
fn no_nodes_and_a_store_that_they_share_are_refused() {
    let limiter = || Limiter::builder().policy(Policy::new("a", FixedWindow::per_hour(LIMIT)));
    let error = limiter().nodes(0).build_local().unwrap_err();
    assert_eq!(
        error.to_string(),
        "`nodes` cannot be 0: give the number of nodes, 1 or more",
    );
    let shared = limiter()
        .nodes(3)
        .store(SharedStore::new(Map::new(&ManualClock::new())));
    assert_eq!(
        shared.build().unwrap_err().to_string(),
        "`nodes` cannot be 3: leave it out: nodes that share a store share each limit already",
    );
}
