//! Keys of one request on several nodes of a cluster. They are charged one after another, and earlier charges are
//! given back when a later key denies.

use std::time::Duration;

use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::key::IntoKey;
use tower_ratelimit::store::{Amendment, Backend, Charge, Store};
use tower_ratelimit::{
    Decision, FixedWindow, LeakyQueue, Limiter, ManualClock, Micros, Policy, RedisStore,
};

use crate::scene::{
    MINUTE, cluster_store, daily, every, key_on_each, keys, limiter, story, until, used,
    without_a_standby,
};
use crate::support::redis::{Cluster, Server};

struct Scene {
    cluster: Cluster,
    store: RedisStore,
    /// One on each node, and under each policy.
    keys: Vec<u64>,
}

impl Scene {
    fn new() -> Self {
        let cluster = Cluster::start();
        let store = cluster_store(&cluster);
        let keys = key_on_each(&cluster, &store, &daily("a", 1));
        Self {
            cluster,
            store,
            keys,
        }
    }

    fn limiter(&self, policies: impl IntoIterator<Item = Policy>) -> Limiter {
        limiter(&self.store, policies)
    }

    /// Sends the first policy's key to the first node, and so on.
    async fn check(&self, limiter: &Limiter, cost: u32) -> Decision {
        let asked = ["a", "b", "c"].into_iter().zip(&self.keys);
        let asked = asked.map(|(name, key)| (name, *key, cost));
        limiter.named(asked).unwrap().check().await.unwrap()
    }

    /// Returns the usage of each key.
    async fn used(&self, limiter: &Limiter) -> Vec<u32> {
        used(&self.check(limiter, 0).await)
    }

    fn keys_on(&self, node: usize) -> Vec<String> {
        keys(&self.cluster.nodes[node])
    }
}

fn three(limits: [u32; 3]) -> [Policy; 3] {
    let [a, b, c] = limits;
    [daily("a", a), daily("b", b), daily("c", c)]
}

#[tokio::test]
async fn all_are_charged_if_all_allow_it() {
    let scene = Scene::new();
    let limiter = scene.limiter(three([5, 5, 5]));
    let told = scene.check(&limiter, 2).await;
    assert!(told.is_allowed());
    assert_eq!(used(&told), [2, 2, 2]);
    assert_eq!([0, 1, 2].map(|node| scene.keys_on(node).len()), [1, 1, 1]);
    assert_eq!(scene.used(&limiter).await, [2, 2, 2]);
}

#[tokio::test]
async fn whichever_denies_none_is_charged() {
    let scene = Scene::new();
    for denying in 0..3 {
        let mut limits = [5; 3];
        limits[denying] = 1;
        let limiter = scene.limiter(three(limits));
        let told = scene.check(&limiter, 2).await;
        assert!(!told.is_allowed());
        assert_eq!(used(&told), [0, 0, 0], "told when {denying} denied");
        assert_eq!([0, 1, 2].map(|node| scene.keys_on(node).len()), [0; 3]);
        let names: Vec<&str> = told.policies().map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "b", "c"]);
    }
}

#[tokio::test]
async fn giving_back_leaves_each_algorithm_as_it_was() {
    let scene = Scene::new();
    let clock = ManualClock::new();
    clock.set_micros(Micros::new(1_704_067_200_123_457));
    let store = scene.store.clone().clock(clock.clone());
    for policy in every(5, MINUTE) {
        let algorithm = *policy.algorithm();
        let limiter = limiter(&store, [Policy::new("a", algorithm), daily("b", 1)]);
        let alone = |cost| limiter.named([("a", scene.keys[0], cost)]).unwrap().check();
        assert!(alone(2).await.unwrap().is_allowed());
        clock.advance(MINUTE / 7);
        let before = alone(0).await.unwrap();
        let denied = scene.check_two(&limiter).await;
        assert!(!denied.is_allowed());
        let after = alone(0).await.unwrap();
        assert_eq!(format!("{after:?}"), format!("{before:?}"), "{algorithm}");
        limiter.reset(scene.keys[0]).await.unwrap();
    }
}

impl Scene {
    /// A request that the second node denies.
    async fn check_two(&self, limiter: &Limiter) -> Decision {
        let asked = [("a", self.keys[0], 2), ("b", self.keys[1], 2)];
        limiter.named(asked).unwrap().check().await.unwrap()
    }
}

/// The turn of a denied request passes unused if another request has the turn behind it by then.
#[tokio::test]
async fn a_denied_request_takes_no_turn_of_a_queue_from_the_requests_behind_it() {
    let scene = Scene::new();
    let clock = ManualClock::new();
    clock.set_micros(Micros::new(1_704_067_200_123_457));
    let store = scene.store.clone().clock(clock);
    let queue = || Policy::new("a", LeakyQueue::per_minute(60).places(9));
    let both = limiter(&store, [queue(), daily("b", 1)]);
    let alone = limiter(&store, [queue()]);
    let delay = async || {
        let decision = alone.check(scene.keys[0], 1).await.unwrap();
        decision.binding().unwrap().1.delay()
    };
    assert_eq!(delay().await, Duration::ZERO);

    // The first server has given the turn, and the second does not answer yet.
    scene.cluster.nodes[1].freeze();
    let asked = [("a", scene.keys[0], 1), ("b", scene.keys[1], 2)];
    let denied = tokio::spawn(both.named(asked).unwrap().check().into_future());
    let peek = async || alone.peek(scene.keys[0], 0).await.unwrap();
    while peek().await.binding().unwrap().1.used() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(delay().await, Duration::from_secs(2));
    scene.cluster.nodes[1].thaw();
    assert!(!denied.await.unwrap().unwrap().is_allowed());
    assert_eq!(delay().await, Duration::from_secs(3));
}

#[tokio::test]
async fn a_soft_one_that_was_left_out_is_given_nothing_back() {
    let scene = Scene::new();
    let limiter = scene.limiter([daily("a", 1).soft(), daily("b", 5), daily("c", 1)]);
    let first = limiter.named([("a", scene.keys[0], 1)]).unwrap().check();
    assert!(first.await.unwrap().is_allowed());
    let told = scene.check(&limiter, 2).await;
    assert!(!told.is_allowed());
    assert_eq!(used(&told), [1, 0, 0]);
    assert_eq!(scene.used(&limiter).await, [1, 0, 0]);
    // A soft policy is left out, and the others are charged.
    let told = scene.check(&limiter, 1).await;
    assert!(told.is_allowed());
    assert_eq!(used(&told), [1, 1, 1]);
}

#[tokio::test]
async fn an_error_of_a_later_one_gives_back_what_was_taken() {
    let scene = Scene::new();
    let limiter = scene.limiter(three([5, 5, 5]));
    let damaged = scene.store.store_key(&daily("c", 5), scene.keys[2]);
    scene.cluster.nodes[2].ask(&["SET", &damaged, "nonsense"]);
    let asked = ["a", "b", "c"].into_iter().zip(&scene.keys);
    let asked = asked.map(|(name, key)| (name, *key, 1));
    let error = limiter.named(asked).unwrap().check().await.unwrap_err();
    assert_eq!(
        error.kind(),
        StoreErrorKind::Misconfigured,
        "{}",
        story(&error)
    );
    assert_eq!([0, 1].map(|node| scene.keys_on(node).len()), [0; 2]);
}

/// The node that denies may answer late. Meanwhile the window of the charge on the first node has ended, and another
/// request was charged in the next window.
#[tokio::test]
async fn units_of_an_ended_window_are_not_given_back_to_the_next() {
    let scene = Scene::new();
    let clock = ManualClock::at(Micros::new(1_704_067_200_000_000));
    let store = scene.store.clone().clock(clock.clone());
    let second = Policy::new("a", FixedWindow::per_second(5));
    let limiter = limiter(&store, [second, daily("b", 1)]);
    let (first, denying) = (scene.keys[0], scene.keys[1]);
    let ask = async |asked: &[(&str, u64, u32)]| {
        let asked = limiter.named(asked.iter().copied()).unwrap().check();
        asked.await.unwrap()
    };
    assert!(ask(&[("b", denying, 1)]).await.is_allowed());
    let late: &Server = &scene.cluster.nodes[1];
    late.ask(&["CLIENT", "PAUSE", "20000", "WRITE"]);
    let asked = [("a", first, 2), ("b", denying, 1)];
    let denied = tokio::spawn(limiter.named(asked).unwrap().check().into_future());
    until("the first node is charged", || scene.keys_on(0).len() == 1).await;
    clock.advance(Duration::from_secs(1));
    assert!(ask(&[("a", first, 3)]).await.is_allowed());
    late.ask(&["CLIENT", "UNPAUSE"]);
    assert!(!denied.await.unwrap().unwrap().is_allowed());
    assert_eq!(used(&ask(&[("a", first, 0)]).await), [3]);
}

/// A charge that cannot be given back on one node does not keep the charges on the others.
#[tokio::test]
async fn each_node_is_given_back_to_whatever_the_others_say() {
    let scene = Scene::new();
    let policies = three([5, 5, 5]).map(without_a_standby).map(Into::into);
    let backend = scene.store.open(&policies).unwrap();
    let charges: Vec<Charge> = scene
        .keys
        .iter()
        .enumerate()
        .map(|(policy, key)| Charge::new(policy, key.into_key(), 1))
        .collect();
    assert!(backend.decide(&charges).wait().await.unwrap().is_allowed());
    let damaged = scene.store.store_key(&policies[0], scene.keys[0]);
    scene.cluster.nodes[0].ask(&["SET", &damaged, "nonsense"]);
    let error = backend
        .amend(&charges, Amendment::Refund)
        .wait()
        .await
        .unwrap_err();
    assert_eq!(
        error.kind(),
        StoreErrorKind::Misconfigured,
        "{}",
        story(&error)
    );
    assert_eq!([1, 2].map(|node| scene.keys_on(node).len()), [0; 2]);
}

/// A settlement of 4,000 tokens of one key must not count 4,000 requests of another key, on any node.
#[tokio::test]
async fn policies_on_several_nodes_are_refunded_and_settled_by_name() {
    let scene = Scene::new();
    let limiter = scene.limiter(three([9, 9, 9]));
    assert!(scene.check(&limiter, 5).await.is_allowed());
    let [a, b, c] = scene.keys[..] else {
        panic!("there are three nodes");
    };
    let refunded = limiter.named([("c", c, 4), ("a", a, 1)]).unwrap().refund();
    refunded.await.unwrap();
    assert_eq!(scene.used(&limiter).await, [4, 5, 1]);
    let settled = limiter.named([("b", b, 3), ("c", c, 2)]).unwrap().settle();
    settled.await.unwrap();
    assert_eq!(scene.used(&limiter).await, [4, 8, 3]);
}

#[tokio::test]
async fn a_future_that_is_dropped_still_gives_back() {
    let scene = Scene::new();
    let limiter = scene.limiter(three([5, 5, 1]));
    assert!(
        limiter
            .named([("c", scene.keys[2], 1)])
            .unwrap()
            .check()
            .await
            .unwrap()
            .is_allowed()
    );
    let last: &Server = &scene.cluster.nodes[2];
    last.ask(&["CLIENT", "PAUSE", "20000", "WRITE"]);
    let asked = ["a", "b", "c"].into_iter().zip(scene.keys.clone());
    let asked = asked.map(|(name, key)| (name, key, 1));
    let question = tokio::spawn(limiter.named(asked).unwrap().check().into_future());
    let charged = || [0, 1].map(|node| scene.keys_on(node).len());
    until("what the first two took", || charged() == [1, 1]).await;
    question.abort();
    assert!(question.await.unwrap_err().is_cancelled());
    last.ask(&["CLIENT", "UNPAUSE"]);
    until("what they are given back", || charged() == [0, 0]).await;
}

#[tokio::test]
async fn a_peek_tells_of_all_what_a_decision_would_and_changes_none() {
    let scene = Scene::new();
    let policies = three([5, 5, 1]).map(Into::into);
    let backend = scene.store.open(&policies).unwrap();
    let charges = |cost| -> Vec<Charge> {
        let keys = scene.keys.iter().enumerate();
        keys.map(|(policy, key)| Charge::new(policy, key.into_key(), cost))
            .collect()
    };
    for cost in [1, 2] {
        let peeked = backend.peek(&charges(cost)).wait().await.unwrap();
        assert_eq!([0, 1, 2].map(|node| scene.keys_on(node).len()), [0; 3]);
        let told = backend.decide(&charges(cost)).wait().await.unwrap();
        assert_eq!(peeked.is_allowed(), told.is_allowed());
        let numbers = |outcomes: &tower_ratelimit::decision::Outcomes| -> Vec<_> {
            outcomes
                .iter()
                .map(|(_, told)| (told.is_allowed(), told.remaining()))
                .collect()
        };
        assert_eq!(numbers(&peeked), numbers(&told), "at cost {cost}");
        let reset = backend.amend(&charges(0), Amendment::Reset);
        reset.wait().await.unwrap();
    }
}
