//! Units of limits that are divided among tenants. What tenants have while many nodes lease is tested in virtual time, in
//! `tests/unit/leases/shares.rs` of the store.

use tower_ratelimit::key::{IntoKey, Key};
use tower_ratelimit::policy::Fair;

use super::*;

fn tenant(name: &str) -> Key {
    Key::branch(Key::GLOBAL, &[name.into_key()])
}

fn upstream() -> Policy {
    let fair = Fair::new().active_for(Duration::from_secs(60));
    Policy::new("upstream", TokenBucket::per_second(1_000)).fair(fair)
}

async fn passes(limiter: &Limiter, name: &str) -> bool {
    let decision = limiter.check(tenant(name), 1).await.unwrap();
    decision.is_allowed()
}

/// Sends requests of a tenant that has claimed a part of the limit, until its node holds this many units. Returns how many.
async fn hold(limiter: &Limiter, clock: &ManualClock, name: &str, units: u64) -> u32 {
    assert!(passes(limiter, name).await);
    clock.advance(Duration::from_millis(900));
    for asked in 1..500 {
        assert!(passes(limiter, name).await);
        if stats(limiter).held >= units {
            return asked;
        }
    }
    panic!("too little is leased: {:?}", stats(limiter));
}

/// Returns how many units are used, and how many of them nodes hold.
async fn used_and_held(limiter: &Limiter, name: &str) -> (u32, u32) {
    let inspection = limiter.inspect(tenant(name)).await.unwrap();
    let held = inspection.leased().map(|(_, units)| units).sum();
    let peeked = limiter.peek(tenant(name), 0).await.unwrap();
    (used(&peeked)[0], held)
}

async fn is_decided_without_a_call(server: &Server, limiter: &Limiter, clock: &ManualClock) {
    hold(limiter, clock, "ann", 40).await;
    let before = scripts_run(server);
    for _ in 0..9 {
        assert!(passes(limiter, "ann").await);
    }
    assert_eq!(scripts_run(server), before);
    assert!(passes(limiter, "ben").await, "he has none here");
    assert_ne!(scripts_run(server), before);
}

#[tokio::test]
async fn a_node_spends_units_of_a_share_without_a_call() {
    let (server, clock) = (Server::start(&[]), new_year());
    let store = node(&server, &clock);
    let limiter = limiter(&store, [upstream()]);
    is_decided_without_a_call(&server, &limiter, &clock).await;
}

#[tokio::test]
async fn units_of_a_share_are_leased_together_with_those_of_other_policies() {
    let (server, clock) = (Server::start(&[]), new_year());
    let store = node(&server, &clock);
    let both = limiter(&store, [upstream(), daily("all", 100_000)]);
    hold(&both, &clock, "ann", 40).await;
    let saved = stats(&both).calls_saved;
    for _ in 0..200 {
        assert!(passes(&both, "ann").await);
    }
    let saved = stats(&both).calls_saved - saved;
    assert!(saved >= 100, "{saved} of 200");
    let apart = limiter(&store, [upstream(), daily("apart", 9).without_lease()]);
    let before = stats(&apart);
    for _ in 0..9 {
        assert!(passes(&apart, "ann").await);
    }
    assert!(!passes(&apart, "ann").await, "each of them asks");
    assert_eq!(stats(&apart), before);
}

/// The turns of a queue have an order, so that nobody can hold some of them.
#[tokio::test]
async fn each_request_of_a_divided_queue_asks_the_server() {
    let (server, clock) = (Server::start(&[]), new_year());
    let store = node(&server, &clock);
    let queue = LeakyQueue::per_second(1_000).places(999);
    let limiter = limiter(&store, [Policy::new("queue", queue).fair(Fair::new())]);
    assert!(passes(&limiter, "ann").await);
    clock.advance(Duration::from_millis(900));
    let (before, _) = scripts_run(&server);
    for _ in 0..100 {
        assert!(passes(&limiter, "ann").await);
    }
    assert_eq!(scripts_run(&server).0, before + 100);
    assert_eq!(used_and_held(&limiter, "ann").await, (100, 0));
}

#[tokio::test]
async fn a_cluster_leases_units_of_shares() {
    let (cluster, clock) = (Cluster::start(), new_year());
    let store = over(leasing(), &cluster).clock(clock.clone());
    let limiter = limiter(&store, [upstream()]);
    hold(&limiter, &clock, "ann", 40).await;
    let saved = stats(&limiter).calls_saved;
    for _ in 0..9 {
        assert!(passes(&limiter, "ann").await);
    }
    assert_eq!(stats(&limiter).calls_saved, saved + 9);
    store.give_leases_back().await;
    assert_eq!(used_and_held(&limiter, "ann").await.1, 0);
}

#[tokio::test]
async fn a_node_that_stops_leaves_an_exact_account() {
    let (server, clock) = (Server::start(&[]), new_year());
    let stores = [node(&server, &clock), node(&server, &clock)];
    let nodes = [0, 1].map(|place: usize| limiter(&stores[place], [upstream()]));
    let asked = hold(&nodes[0], &clock, "ann", 40).await;
    let (used, held) = used_and_held(&nodes[1], "ann").await;
    assert!(held >= 40 && used >= asked, "{used} {held}");
    stores[0].give_leases_back().await;
    assert_eq!(used_and_held(&nodes[1], "ann").await, (asked, 0));
}

#[tokio::test]
async fn what_a_request_has_cost_is_settled_with_units_of_a_share() {
    let (server, clock) = (Server::start(&[]), new_year());
    let store = node(&server, &clock);
    let limiter = limiter(&store, [upstream()]);
    let mut asked = hold(&limiter, &clock, "ann", 40).await;
    let runs = scripts_run(&server);
    for (estimate, cost) in [(9, 4), (2, 50)] {
        let reservation = limiter.reserve(tenant("ann"), estimate).await.unwrap();
        assert!(estimate != 9 || scripts_run(&server) == runs);
        reservation.settle(cost);
        asked += cost;
    }
    store.give_leases_back().await;
    assert_eq!(used_and_held(&limiter, "ann").await, (asked, 0));
}

#[tokio::test]
async fn a_block_and_a_reset_end_what_a_node_holds_of_a_share() {
    let (server, clock) = (Server::start(&[]), new_year());
    let stores = [node(&server, &clock), node(&server, &clock)];
    let nodes = [0, 1].map(|place: usize| limiter(&stores[place], [upstream()]));
    hold(&nodes[0], &clock, "ann", 40).await;
    let minute = Duration::from_secs(60);
    nodes[1].block(tenant("ann"), minute).await.unwrap();
    assert!(passes(&nodes[0], "ann").await, "its units last");
    clock.advance(LIFE);
    assert!(!passes(&nodes[0], "ann").await);
    assert!(passes(&nodes[0], "ben").await);
    assert!(nodes[1].unblock(tenant("ann")).await.unwrap());
    clock.advance(REMEMBERED);
    hold(&nodes[0], &clock, "ann", 40).await;
    nodes[0].reset(tenant("ann")).await.unwrap();
    assert_eq!(stats(&nodes[0]).held, 0);
    assert_eq!(used_and_held(&nodes[0], "ann").await, (0, 0));
}

#[tokio::test]
async fn while_the_server_is_away_a_node_spends_its_units_of_a_share() {
    let (server, clock) = (Server::start(&[]), new_year());
    let store = node(&server, &clock);
    let limiter = limiter(&store, [upstream()]);
    hold(&limiter, &clock, "ann", 20).await;
    let held = stats(&limiter).held;
    server.kill();
    for _ in 0..held {
        assert!(passes(&limiter, "ann").await);
    }
    assert!(limiter.check(tenant("ann"), 1).await.is_err());
}
