//! Requests at once, over nodes that share a server: slots that end by themselves, unless they are renewed.

use std::convert::Infallible;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinSet, yield_now};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::clock::Clock;
use tower_ratelimit::limiter::Reservation;
use tower_ratelimit::policy::Mode;
use tower_ratelimit::{
    Concurrency, Limiter, ManualClock, Micros, OnStoreFailure, Policy, RateLimitLayer, RedisStore,
    key,
};

use crate::renewed_slots::are_renewed;
use crate::scene::{self, ask, calls, cluster_store, daily, limiter, patient, store, used};
use crate::support::proxy::Proxy;
use crate::support::redis::{Cluster, Server, until};

pub(crate) const LIFE: Duration = Duration::from_secs(1);

pub(crate) fn at_once(most: u32) -> Policy {
    Policy::new("at once", Concurrency::of(most))
}

pub(crate) fn short_lived(server: &Server) -> RedisStore {
    patient().slot_ttl(LIFE).open(server.url()).unwrap()
}

/// Returns the name of the set of slots of this key.
pub(crate) fn set_of(store: &RedisStore, key: u64) -> String {
    store.store_key(&at_once(1), key)
}

/// Returns how many slots are in the set.
pub(crate) fn members(server: &Server, set: &str) -> u64 {
    ask(server, &["ZCARD", set])
}

/// A node that can die: its requests never end, and the server hears no more of it.
pub(crate) struct Node {
    pub(crate) runtime: Runtime,
    pub(crate) limiter: Limiter,
}

impl Node {
    pub(crate) fn new(store: &RedisStore, policies: impl IntoIterator<Item = Policy>) -> Self {
        Self {
            runtime: Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .unwrap(),
            limiter: limiter(store, policies),
        }
    }

    /// Takes a slot, which it holds as long as it lives.
    pub(crate) fn takes(&self, key: u64) -> bool {
        let held = self
            .runtime
            .block_on(self.limiter.reserve(key, 1).into_future())
            .unwrap();
        let is_allowed = held.is_allowed();
        mem::forget(held);
        is_allowed
    }

    fn dies(self, mut line: Proxy) {
        line.refuse();
        self.runtime.shutdown_background();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_never_serve_more_than_the_limit_and_leave_nothing_behind() {
    const LIMIT: u32 = 5;
    let server = Server::start(&[]);
    let store = store(&server);
    let nodes = [(); 2].map(|()| limiter(&store, [daily("rate", 400), at_once(LIMIT)]));
    let inside = Arc::new(AtomicU32::new(0));
    let most = Arc::new(AtomicU32::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..32 {
        let node = nodes[task % 2].clone();
        let (inside, most) = (Arc::clone(&inside), Arc::clone(&most));
        tasks.spawn(async move {
            let mut passed = 0;
            for _ in 0..40 {
                let held = node.reserve(7_u64, 1).await.unwrap();
                if held.is_allowed() {
                    passed += 1;
                    let there = inside.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(there, Ordering::SeqCst);
                    yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
            }
            passed
        });
    }
    let passed: u32 = tasks.join_all().await.into_iter().sum();
    let most = most.load(Ordering::SeqCst);
    assert!((1..=LIMIT).contains(&most), "{most} at once");
    until("all slots are given back", || {
        members(&server, &set_of(&store, 7)) == 0
    });
    // Those that found no slot were not charged.
    let told = nodes[0].peek(7_u64, 0).await.unwrap();
    assert_eq!(used(&told), [passed, 0]);
}

#[test]
fn a_node_that_dies_frees_its_slots_within_one_life() {
    let server = Server::start(&[]);
    let line = Proxy::start(&server);
    let store = patient().slot_ttl(LIFE).open(line.url()).unwrap();
    // Each node has connections of its own.
    let (dying, other) = (
        Node::new(&store, [at_once(2)]),
        Node::new(&short_lived(&server), [at_once(2)]),
    );
    assert!(dying.takes(7) && dying.takes(7));
    assert!(!other.takes(7));
    // As long as it lives, its slots last.
    let set = set_of(&store, 7);
    let within_a_life = || {
        let (seconds, micros): (f64, f64) = ask(&server, &["TIME"]);
        (seconds + LIFE.as_secs_f64()) * 1e6 + micros
    };
    let ends = || -> Vec<f64> {
        let members: Vec<(String, f64)> = ask(&server, &["ZRANGE", &set, "0", "-1", "WITHSCORES"]);
        members.into_iter().map(|(_, end)| end).collect()
    };
    let first = ends();
    assert!(first.iter().all(|end| *end <= within_a_life()), "{first:?}");
    let lasts = LIFE.as_secs_f64() * 1e6 * 2.0;
    until("the slots were renewed past two lives", || {
        ends()
            .iter()
            .zip(&first)
            .all(|(now, first)| *now > first + lasts)
    });
    assert!(!other.takes(7));
    dying.dies(line);
    // By the clock of the server, no slot has more than a life to last.
    let ends = ends();
    assert!(ends.iter().all(|end| *end <= within_a_life()), "{ends:?}");
    until("a slot is free", || other.takes(7));
    assert!(other.takes(7) && !other.takes(7));
}

/// The set does not end with the slots of the dead node, because another node renews its own.
#[test]
fn slots_of_a_node_that_has_died_are_free_beside_those_of_a_node_that_lives() {
    let server = Server::start(&[]);
    let store = short_lived(&server);
    let line = Proxy::start(&server);
    let through = patient().slot_ttl(LIFE).open(line.url()).unwrap();
    let (dying, other) = (
        Node::new(&through, [at_once(2)]),
        Node::new(&store, [at_once(2)]),
    );
    assert!(dying.takes(7) && other.takes(7));
    dying.dies(line);
    assert!(!other.takes(7));
    until("the slot of the dead node is free", || other.takes(7));
    assert!(!other.takes(7));
    are_renewed(&[(&server, set_of(&store, 7))], LIFE);
    assert!(!other.takes(7));
}

/// Otherwise they stay taken for as long as the clock has stepped back, and a life.
#[test]
fn slots_of_a_dead_node_end_within_a_life_though_the_clock_has_stepped_back() {
    const HOUR: u64 = 3_600_000_000;
    let server = Server::start(&[]);
    let clock = ManualClock::new();
    let line = Proxy::start(&server);
    let through = patient().slot_ttl(LIFE).open(line.url()).unwrap();
    let node = |store: RedisStore| Node::new(&store.clock(clock.clone()), [at_once(2)]);
    let (dying, other) = (node(through), node(short_lived(&server)));
    assert!(dying.takes(7) && dying.takes(7));
    dying.dies(line);
    let back = clock.now().get() - HOUR;
    clock.set_micros(Micros::new(back));
    assert!(!other.takes(7));
    clock.advance(LIFE.saturating_sub(Duration::from_micros(1)));
    assert!(!other.takes(7));
    clock.advance(Duration::from_micros(1));
    assert!(other.takes(7) && other.takes(7) && !other.takes(7));
}

#[tokio::test]
async fn a_request_has_a_slot_and_its_rate_or_neither() {
    let server = Server::start(&[]);
    let store = store(&server);
    let node = limiter(&store, [daily("rate", 2), at_once(1)]);
    let set = set_of(&store, 7);
    let held = node.reserve(7_u64, 1).await.unwrap();
    assert!(!node.reserve(7_u64, 1).await.unwrap().is_allowed());
    assert_eq!(used(&node.peek(7_u64, 0).await.unwrap()), [1, 1]);
    drop(held);
    until("the slot is free", || members(&server, &set) == 0);
    drop(node.reserve(7_u64, 1).await.unwrap());
    until("the slot is free", || members(&server, &set) == 0);
    assert!(!node.reserve(7_u64, 1).await.unwrap().is_allowed());
    assert_eq!(used(&node.peek(7_u64, 0).await.unwrap()), [2, 0]);
    assert_eq!(members(&server, &set), 0);
}

#[tokio::test]
async fn slots_are_given_back_though_a_policy_in_shadow_had_no_room() {
    let server = Server::start(&[]);
    let store = store(&server);
    let shadow = daily("rate", 1).mode(Mode::Shadow);
    let node = limiter(&store, [shadow, at_once(2)]);
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(node.reserve(7_u64, 1).await.unwrap());
    }
    assert!(held.iter().all(Reservation::is_allowed));
    drop(held);
    until("both are given back", || {
        members(&server, &set_of(&store, 7)) == 0
    });
}

/// It stands in line for a slot, asks for the one that is free again, and goes away before the answer.
#[tokio::test]
async fn a_request_that_goes_away_while_it_asks_again_holds_no_slot() {
    let server = Server::start(&[]);
    let mut proxy = Proxy::start(&server);
    // Nothing ends by itself.
    let store = patient().slot_ttl(Duration::from_secs(3_600));
    let store = store.open(proxy.url()).unwrap();
    let at_once = at_once(1)
        .key(key::global())
        .wait_up_to(Duration::from_secs(60));
    let layer = RateLimitLayer::builder().policy(at_once).store(store);
    let inner =
        service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new())));
    let service = layer.build().unwrap().layer(inner);
    scene::until_told(async || {
        let first = service.clone().oneshot(Request::new(())).await.unwrap();
        let asked = calls(&server, "evalsha");
        let waits = tokio::spawn(service.clone().oneshot(Request::new(())));
        let taken = calls(&server, "zadd");
        // It asks a hundred times a second.
        scene::until("it asks", || calls(&server, "evalsha") > asked + 3).await;
        proxy.delay(Duration::from_millis(200));
        drop(first);
        scene::until("it has a slot", || calls(&server, "zadd") > taken).await;
        waits.abort();
        proxy.delay(Duration::ZERO);
        // Its answer may have come before that.
        let is_cancelled = waits.await.is_err_and(|error| error.is_cancelled());
        is_cancelled.then_some(())
    })
    .await;
    let set: Vec<String> = ask(&server, &["KEYS", "*at once*"]);
    assert_eq!(set.len(), 1);
    scene::until("its slot is free", || members(&server, &set[0]) == 0).await;
    drop(service.oneshot(Request::new(())).await.unwrap());
}

#[test]
fn slots_that_are_lost_while_their_requests_go_on_are_taken_again() {
    let server = Server::start(&[]);
    let store = short_lived(&server);
    let (one, other) = (
        Node::new(&store, [at_once(1)]),
        Node::new(&store, [at_once(1)]),
    );
    assert!(one.takes(7));
    let set = set_of(&store, 7);
    let _: u64 = ask(&server, &["DEL", &set]);
    // Nothing knows that it is taken, unless the first node is quicker than this one.
    until("the other takes it", || {
        let takes = other.takes(7);
        if !takes {
            let _: u64 = ask(&server, &["DEL", &set]);
        }
        takes
    });
    until("it is taken again, above the limit", || {
        members(&server, &set) == 2
    });
    assert!(!other.takes(7));
}

#[test]
fn a_request_that_goes_away_before_its_answer_holds_no_slot() {
    let server = Server::start(&[]);
    let mut proxy = Proxy::start(&server);
    let store = patient().open(proxy.url()).unwrap();
    let node = Node::new(&store, [at_once(1)]);
    assert!(node.runtime.block_on(async {
        let held = node.limiter.reserve(9_u64, 1).await.unwrap();
        held.is_allowed()
    }));
    proxy.delay(Duration::from_millis(50));
    node.runtime.block_on(async {
        let mut call = pin!(node.limiter.reserve(7_u64, 1).into_future());
        for _ in 0..10 {
            let polled = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(polled, Poll::Pending));
            yield_now().await;
        }
    });
    let set = set_of(&store, 7);
    let zadds = calls(&server, "zadd");
    until("the call has been made", || {
        calls(&server, "zadd") > zadds || zadds >= 2
    });
    until("its slot is given back", || members(&server, &set) == 0);
}

/// A response may be dropped where there is no runtime, such as in a thread of the program's own.
#[test]
fn a_slot_that_is_given_back_outside_of_its_runtime_is_free_at_once_or_within_a_life() {
    let server = Server::start(&[]);
    let take = |store: &RedisStore| {
        let node = Node::new(store, [at_once(1)]);
        let held = node
            .runtime
            .block_on(node.limiter.reserve(7_u64, 1).into_future());
        let held = held.unwrap();
        assert!(held.is_allowed());
        (node, held)
    };
    // Nothing ends by itself.
    let lasting = patient().slot_ttl(Duration::from_secs(3_600));
    let lasting = lasting.open(server.url()).unwrap();
    let (node, held) = take(&lasting);
    let set = set_of(&lasting, 7);
    assert_eq!(members(&server, &set), 1);
    drop(held);
    until("its slot is free", || members(&server, &set) == 0);
    drop(node);

    // Where its runtime has ended, nothing can tell the server.
    let (node, held) = take(&short_lived(&server));
    let Node { runtime, limiter } = node;
    runtime.shutdown_background();
    drop((held, limiter));
    let other = Node::new(&short_lived(&server), [at_once(1)]);
    until("its slot has ended", || other.takes(7));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_hold_for_keys_with_slots_and_what_changes_usage_frees_none() {
    let server = Server::start(&[]);
    let store = store(&server);
    let node = limiter(&store, [at_once(2)]);
    let held = node.reserve(7_u64, 2).await.unwrap();
    node.reset(7_u64).await.unwrap();
    node.refund(7_u64, 2).await.unwrap();
    node.settle(7_u64, 1).await.unwrap();
    assert_eq!(used(&node.peek(7_u64, 0).await.unwrap()), [2]);
    assert!(!node.check(7_u64, 1).await.unwrap().is_allowed());
    node.block(7_u64, Duration::from_secs(60)).await.unwrap();
    drop(held);
    let set = set_of(&store, 7);
    until("only the block is left", || members(&server, &set) == 1);
    let blocked = node.reserve(7_u64, 1).await.unwrap();
    assert!(blocked.decision().binding().unwrap().1.is_blocked());
    node.unblock(7_u64).await.unwrap();
    until("nothing is left", || members(&server, &set) == 0);
    // To ask takes nothing.
    assert!(node.check(7_u64, 2).await.unwrap().is_allowed());
    assert_eq!(members(&server, &set), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_a_request_has_its_slot_and_its_rate_or_neither() {
    let cluster = Cluster::start();
    let store = cluster_store(&cluster);
    let node = limiter(&store, [daily("rate", 3), at_once(2)]);
    for key in 0..6_u64 {
        let asked = |user: u64| [("rate", user, 1), ("at once", key, 1)];
        let first = node
            .named(asked(100 + key))
            .unwrap()
            .reserve()
            .await
            .unwrap();
        let second = node
            .named(asked(100 + key))
            .unwrap()
            .reserve()
            .await
            .unwrap();
        assert!(first.is_allowed() && second.is_allowed());
        // No slot: another user's rate is not charged.
        assert!(
            !node
                .named(asked(200 + key))
                .unwrap()
                .reserve()
                .await
                .unwrap()
                .is_allowed()
        );
        let told = node.peek(200 + key, 0).await.unwrap();
        assert_eq!(used(&told)[0], 0);
        drop(second);
        let third = loop {
            let third = node
                .named(asked(100 + key))
                .unwrap()
                .reserve()
                .await
                .unwrap();
            if third.is_allowed() {
                break third;
            }
        };
        drop((first, third));
        // No rate: no slot is taken.
        assert!(
            !node
                .named(asked(100 + key))
                .unwrap()
                .reserve()
                .await
                .unwrap()
                .is_allowed()
        );
        let mut left = node.peek(key, 0).await.unwrap();
        while used(&left)[1] > 0 {
            left = node.peek(key, 0).await.unwrap();
        }
    }
}

#[tokio::test]
async fn while_the_server_is_away_a_node_has_its_share_of_slots() {
    let server = Server::start(&[]);
    let builder = RedisStore::builder()
        .deadline(Duration::from_millis(50))
        .nodes(2);
    let store = builder.open(server.url()).unwrap();
    let policy = at_once(3).on_store_failure(OnStoreFailure::Local);
    let node = Limiter::builder()
        .policy(policy)
        .store(store)
        .build()
        .unwrap();
    server.kill();
    let mut held = Vec::new();
    loop {
        let one = node.reserve(7_u64, 1).await.unwrap();
        assert!(one.decision().is_degraded());
        if !one.is_allowed() {
            break;
        }
        held.push(one);
    }
    assert_eq!(held.len(), 2);
    held.pop();
    assert!(!node.reserve(7_u64, 2).await.unwrap().is_allowed());
    assert!(node.reserve(7_u64, 1).await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_process_that_ends_waits_for_the_slots_of_its_last_requests() {
    let server = Server::start(&[]);
    let store = store(&server);
    let node = limiter(&store, [at_once(3)]);
    let held = node.reserve(7_u64, 1).await.unwrap();
    assert!(held.is_allowed());
    assert_eq!(members(&server, &set_of(&store, 7)), 1);
    // No script runs for a while, so the slot is freed later than the request ends.
    let _: () = ask(&server, &["CLIENT", "PAUSE", "300", "WRITE"]);
    drop(held);
    store.give_leases_back().await;
    assert_eq!(members(&server, &set_of(&store, 7)), 0);
}
