//! Limits that are divided among tenants, while the items are away.

use std::time::Duration;

use tower_ratelimit::key::{IntoKey, Key};
use tower_ratelimit::limiter::Reservation;
use tower_ratelimit::policy::Fair;
use tower_ratelimit::store::SharedStore;
use tower_ratelimit::{Algorithm, Concurrency, LeakyQueue, Limiter, Policy, TokenBucket};

use super::switch::Switch;
use super::{limiter, lose};

fn tenant(name: &str) -> Key {
    Key::branch(Key::GLOBAL, &[name.into_key()])
}

/// Returns two nodes that have one limit.
fn nodes(switch: &Switch, algorithm: impl Into<Algorithm>) -> [Limiter; 2] {
    let algorithm = algorithm.into();
    [(); 2].map(|()| {
        let fair = Fair::new().active_for(Duration::from_secs(3_600));
        let policy = Policy::new("upstream", algorithm).fair(fair);
        limiter(&SharedStore::new(switch.clone()).nodes(2), [policy])
    })
}

async fn take(limiter: &Limiter, name: &str, is_away: bool) -> Option<Reservation> {
    let reservation = limiter.reserve(tenant(name), 1).await.unwrap();
    assert_eq!(reservation.decision().is_degraded(), is_away);
    reservation.is_allowed().then_some(reservation)
}

/// Lets two tenants ask in turn while the items are away, and returns what each of them was given.
async fn ask_in_turn(limiter: &Limiter) -> [Vec<Reservation>; 2] {
    let mut had = [Vec::new(), Vec::new()];
    for _ in 0..20 {
        for (name, had) in ["hog", "ann"].into_iter().zip(&mut had) {
            had.extend(take(limiter, name, true).await);
        }
    }
    had
}

/// Returns all that a tenant is given by the items.
async fn take_all(limiter: &Limiter, name: &str) -> Vec<Reservation> {
    let mut all = Vec::new();
    while let Some(reservation) = take(limiter, name, false).await {
        all.push(reservation);
    }
    all
}

async fn come_back(switch: &Switch) {
    switch.answer();
    tokio::time::sleep(Duration::from_secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn each_node_divides_its_part_and_then_the_items_do_again() {
    for algorithm in [
        Algorithm::from(TokenBucket::per_hour(40).burst(20)),
        LeakyQueue::per_hour(40).places(19).into(),
    ] {
        let switch = Switch::new();
        let nodes = nodes(&switch, algorithm);
        assert!(take(&nodes[0], "ann", false).await.is_some());
        for node in &nodes {
            lose(&switch, node).await;
            let had = ask_in_turn(node).await.map(|had| had.len());
            assert_eq!(had, [5, 5], "{algorithm}");
        }
        come_back(&switch).await;
        // What nodes have counted meanwhile stays theirs.
        let [first, second] = &nodes;
        assert_eq!(take_all(first, "hog").await.len(), 19, "{algorithm}");
        assert_eq!(take_all(second, "ann").await.len(), 0, "{algorithm}");
        // Five units come back, and Ann has had one of hers before.
        switch.map.clock.advance(Duration::from_secs(450));
        assert_eq!(take_all(first, "hog").await.len(), 3, "{algorithm}");
        assert_eq!(take_all(second, "ann").await.len(), 2, "{algorithm}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_node_divides_its_part_of_the_slots_and_then_the_items_do_again() {
    let switch = Switch::new();
    let nodes = nodes(&switch, Concurrency::of(8));
    for node in &nodes {
        lose(&switch, node).await;
        let had = ask_in_turn(node).await;
        assert_eq!(had.map(|had| had.len()), [2, 2]);
    }
    come_back(&switch).await;
    let [first, second] = &nodes;
    let mut hog = take_all(first, "hog").await;
    assert_eq!(hog.len(), 8);
    assert_eq!(take_all(second, "ann").await.len(), 0);
    hog.truncate(5);
    tokio::task::yield_now().await;
    assert!(take(first, "hog", false).await.is_none());
    assert_eq!(take_all(second, "ann").await.len(), 3);
}
