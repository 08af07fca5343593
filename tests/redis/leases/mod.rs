//! Leases: a node takes several units at once, and spends them itself.
//!
//! Failures and their tests. The tests of the simulation are in `src/store/redis/lease/simulation`; the first words
//! name a row of `each_fault_admits_no_more_than_it_does_without_leases`.
//!
//! | event | over real servers | in the simulation |
//! | --- | --- | --- |
//! | an answer is lost or late | `an_answer_that_comes_too_late_gives_no_unit_twice` | "messages are lost or late" |
//! | what was told or given back is lost | the same | the same |
//! | Redis is away | `while_the_server_is_away_a_node_spends_what_it_holds_and_no_more`, `an_outage_admits_the_limit_and_the_share_of_each_node` | "the server is away" |
//! | Redis comes back empty | `a_server_that_comes_back_empty_admits_the_limit_once_more` | "the server is empty" |
//! | a replica takes over | `a_replica_that_takes_over_knows_what_nodes_hold` | "a failover forgets" |
//! | a node is killed | `killed_nodes_lose_their_leases_and_no_more` | "nodes are killed" |
//! | a node is suspended | `a_node_that_was_suspended_for_longer_than_a_life_asks_again` | "nodes are suspended" |
//! | nodes are cut off | | "half of the nodes is cut off" |
//! | the server's clock steps back | `no_class_gets_the_end_that_one_had_before_the_clock_stepped_back` (unit) | "its clock steps back", "by less than a life" |
//! | the server's clock steps forward | | "its clock steps forward" |
//! | the table of a node is full | `leases_of_keys_that_a_node_does_not_keep_go_back` | |

mod asking;
mod example;
mod failures;
mod far;
mod from_file;
mod off;
mod processes;
mod shares;
mod small;
mod verbs;

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tower_ratelimit::observe::LeaseStats;
use tower_ratelimit::store::{Lease, RedisStoreBuilder};
use tower_ratelimit::{
    FixedWindow, Gcra, LeakyQueue, Limiter, ManualClock, Micros, Policy, RedisStore, SlidingLog,
    TokenBucket,
};

use crate::scene::{daily, every, limiter, over, patient, scripts_run, until, until_told, used};
use crate::support::proxy::Proxy;
use crate::support::redis::{Cluster, Server};

const LIMIT: u32 = 1_000;
const DAY: Duration = Duration::from_secs(86_400);
const LIFE: Duration = Duration::from_secs(1);
/// The longest time for which a denial of a leased key is remembered.
const REMEMBERED: Duration = Duration::from_millis(100);

fn leasing() -> RedisStoreBuilder {
    patient().lease(Lease::up_to(LIFE))
}

fn new_year() -> ManualClock {
    let clock = ManualClock::new();
    clock.set_micros(Micros::new(1_704_067_200_000_000));
    clock
}

fn node(server: &Server, clock: &ManualClock) -> RedisStore {
    let store = leasing().open(server.url()).unwrap();
    store.clock(clock.clone())
}

fn stats(limiter: &Limiter) -> LeaseStats {
    limiter.snapshot().store.leases.unwrap()
}

async fn is_allowed(limiter: &Limiter, key: &str, cost: u32) -> bool {
    limiter.check(key, cost).await.unwrap().is_allowed()
}

/// Sends requests until the node holds units. It leases nothing while the machine is too slow to ask often.
async fn warm(limiter: &Limiter, key: &str) -> u32 {
    for asked in 1..10_000 {
        assert!(is_allowed(limiter, key, 1).await);
        if stats(limiter).held > 0 {
            return asked;
        }
    }
    panic!("nothing is leased: {:?}", stats(limiter));
}

/// Three nodes send requests in turn until all of them are refused.
async fn exhaust(nodes: &[Limiter], cost: u32) -> u32 {
    let (mut admitted, mut refused) = (0, 0);
    while refused < 3 * nodes.len() {
        for node in nodes {
            if is_allowed(node, "ann", cost).await {
                (admitted, refused) = (admitted + cost, 0);
            } else {
                refused += 1;
            }
        }
    }
    admitted
}

/// Returns the remaining units once all leased units were given back: a question may have been in flight when the
/// nodes were refused.
async fn rest(stores: &[RedisStore], nodes: &[Limiter], clock: &ManualClock, expected: u32) -> u32 {
    let mut admitted = 0;
    for _ in 0..9 {
        for store in stores {
            store.give_leases_back().await;
        }
        clock.advance(REMEMBERED);
        admitted += exhaust(nodes, 1).await;
        if admitted >= expected {
            break;
        }
    }
    admitted
}

async fn each_algorithm(open: impl Fn(&ManualClock) -> RedisStore) {
    for policy in every(LIMIT, DAY) {
        // A queue is not leased.
        if policy.name() == "leaky-queue" {
            continue;
        }
        let (name, clock) = (policy.name().to_owned(), new_year());
        let stores = [open(&clock), open(&clock), open(&clock)];
        let nodes = [0, 1, 2].map(|node: usize| limiter(&stores[node], [policy.clone()]));
        let first = exhaust(&nodes, 1).await;
        assert!(first > LIMIT / 2, "{name}: {first}");
        let all = first + rest(&stores, &nodes, &clock, LIMIT - first).await;
        assert_eq!(all, LIMIT, "{name}");
        assert_eq!(exhaust(&nodes, 1).await, 0, "{name}");
        let peeked = nodes[0].peek("ann", 0).await.unwrap();
        assert_eq!(used(&peeked), [LIMIT], "{name}");
        let saved: u64 = nodes.iter().map(|node| stats(node).calls_saved).sum();
        assert!(saved > u64::from(LIMIT) / 2, "{name}: {saved} calls");
    }
}

#[tokio::test]
async fn nodes_that_lease_admit_exactly_the_limit_under_each_algorithm() {
    let server = Server::start(&[]);
    each_algorithm(|clock| node(&server, clock)).await;
}

#[tokio::test]
async fn nodes_that_lease_from_a_cluster_admit_exactly_the_limit() {
    let cluster = Cluster::start();
    each_algorithm(|clock| over(leasing(), &cluster).clock(clock.clone())).await;
}

#[tokio::test]
async fn a_request_whose_units_are_held_asks_nothing() {
    let (server, clock) = (Server::start(&[]), new_year());
    let store = node(&server, &clock);
    let limiter = limiter(&store, [daily("a", 100_000)]);
    while stats(&limiter).held < 40 {
        assert!(is_allowed(&limiter, "ann", 1).await);
    }
    let before = scripts_run(&server);
    let told = limiter.check("ann", 1).await.unwrap();
    assert!(told.is_allowed());
    for _ in 0..8 {
        assert!(is_allowed(&limiter, "ann", 1).await);
    }
    assert_eq!(scripts_run(&server), before);
    let peeked = limiter.peek("ann", 0).await.unwrap();
    assert!(
        used(&peeked)[0] >= used(&told)[0] + 8,
        "{peeked:?} {told:?}"
    );
}

/// If the life of a lease began with the answer, the node would spend units that the server has charged and given to
/// others.
#[tokio::test]
async fn the_life_of_a_unit_begins_when_the_node_sends_its_question() {
    let (server, clock) = (Server::start(&[]), new_year());
    let mut proxy = Proxy::start(&server);
    let store = leasing().open(proxy.url()).unwrap().clock(clock.clone());
    let limiter = limiter(&store, [daily("a", 100_000)]);
    for _ in 0..3 {
        assert!(is_allowed(&limiter, "ann", 1).await);
    }
    assert_eq!(stats(&limiter).granted, 0);
    let before = scripts_run(&server);
    proxy.delay(Duration::from_secs(2));
    let mut check = pin!(limiter.check("ann", 1).into_future());
    // The question goes out, and the answer is on its way.
    assert!(poll_once(check.as_mut()).is_none());
    until("the server decides", || scripts_run(&server) > before).await;
    clock.advance(LIFE);
    assert!(check.await.unwrap().is_allowed());
    let told = stats(&limiter);
    assert!(told.granted > 0, "{told:?}");
    assert_eq!((told.held, told.lapsed), (0, told.granted));
}

fn poll_once<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[tokio::test]
async fn costs_above_what_is_held_are_asked_for_and_no_unit_is_lost() {
    let (server, clock) = (Server::start(&[]), new_year());
    let stores = [node(&server, &clock), node(&server, &clock)];
    let bucket = Policy::new("a", Gcra::per_day(LIMIT));
    let nodes = [0, 1].map(|place: usize| limiter(&stores[place], [bucket.clone()]));
    let mut admitted = 0;
    for cost in (1..=20).cycle().take(400) {
        for node in &nodes {
            if is_allowed(node, "ann", cost).await {
                admitted += cost;
            }
        }
    }
    admitted += rest(&stores, &nodes, &clock, LIMIT - admitted).await;
    assert_eq!(admitted, LIMIT);
}

#[tokio::test]
async fn several_leased_policies_are_charged_all_or_none() {
    let (server, clock) = (Server::start(&[]), new_year());
    let store = node(&server, &clock);
    let both = [
        Policy::new("wide", TokenBucket::per_day(LIMIT)),
        Policy::new("narrow", FixedWindow::per_day(100)),
    ];
    let nodes = [limiter(&store, both)];
    let first = exhaust(&nodes, 1).await;
    let stores = [store];
    let admitted = first + rest(&stores, &nodes, &clock, 100 - first).await;
    stores[0].give_leases_back().await;
    assert_eq!(admitted, 100);
    assert!(stats(&nodes[0]).calls_saved > 20, "{:?}", stats(&nodes[0]));
    let peeked = nodes[0].peek("ann", 0).await.unwrap();
    assert_eq!(used(&peeked), [100, 100]);
}

#[tokio::test]
async fn a_wait_that_is_told_while_another_node_holds_units_is_never_too_short() {
    let server = Server::start(&[]);
    let algorithms = [
        Policy::new("bucket", Gcra::per_second(1_000).burst(50)),
        Policy::new("log", SlidingLog::per_second(100)),
        Policy::new("window", FixedWindow::per_second(100)),
    ];
    for policy in algorithms {
        let (name, clock) = (policy.name().to_owned(), new_year());
        let stores = [node(&server, &clock), node(&server, &clock)];
        let holding = limiter(&stores[0], [policy.clone()]);
        let other = limiter(&stores[1], [policy]);
        warm(&holding, &name).await;
        assert!(stats(&holding).held > 0, "{name}");
        let mut wait = None;
        for _ in 0..200 {
            let told = other.check(name.as_str(), 1).await.unwrap();
            wait = told.retry_after();
            if !told.is_allowed() {
                break;
            }
        }
        let wait = wait.unwrap_or_else(|| panic!("{name} is never denied"));
        clock.advance(wait);
        assert!(is_allowed(&other, &name, 1).await, "{name} after {wait:?}");
    }
}

#[tokio::test]
async fn a_block_and_a_limit_set_here_are_seen_at_once_and_elsewhere_after_a_life() {
    let (server, clock) = (Server::start(&[]), new_year());
    let stores = [node(&server, &clock), node(&server, &clock)];
    let nodes = [0, 1].map(|place: usize| limiter(&stores[place], [daily("a", 100_000)]));
    for node in &nodes {
        warm(node, "ann").await;
    }
    nodes[0].block("ann", DAY).await.unwrap();
    assert!(!is_allowed(&nodes[0], "ann", 1).await);
    assert!(is_allowed(&nodes[1], "ann", 1).await);
    clock.advance(LIFE);
    assert!(!is_allowed(&nodes[1], "ann", 1).await);
    nodes[0].unblock("ann").await.unwrap();
    assert!(is_allowed(&nodes[0], "ann", 1).await);
    assert!(!is_allowed(&nodes[1], "ann", 1).await);
    clock.advance(REMEMBERED);
    assert!(is_allowed(&nodes[1], "ann", 1).await);
}

#[tokio::test]
async fn a_reset_makes_the_key_new_and_leaves_what_other_nodes_hold() {
    let (server, clock) = (Server::start(&[]), new_year());
    let stores = [node(&server, &clock), node(&server, &clock)];
    let nodes = [0, 1].map(|place: usize| limiter(&stores[place], [daily("a", 100_000)]));
    for node in &nodes {
        warm(node, "ann").await;
    }
    let held = stats(&nodes[1]).held;
    nodes[0].reset("ann").await.unwrap();
    assert_eq!(stats(&nodes[0]).held, 0);
    let peeked = nodes[0].peek("ann", 0).await.unwrap();
    assert_eq!(u64::from(used(&peeked)[0]), held);
}

#[tokio::test]
async fn a_node_refunds_only_what_it_spent() {
    let (server, clock) = (Server::start(&[]), new_year());
    let store = node(&server, &clock);
    let limiter = limiter(&store, [daily("a", 100_000)]);
    let mut asked = warm(&limiter, "ann").await;
    while stats(&limiter).held < 10 {
        assert!(is_allowed(&limiter, "ann", 1).await);
        asked += 1;
    }
    assert!(is_allowed(&limiter, "ann", 7).await);
    limiter.refund("ann", 5).await.unwrap();
    store.give_leases_back().await;
    let peeked = limiter.peek("ann", 0).await.unwrap();
    assert_eq!(used(&peeked), [asked + 2]);
}

#[tokio::test]
async fn a_node_that_slept_spends_nothing_that_has_ended() {
    let (server, clock) = (Server::start(&[]), new_year());
    let store = node(&server, &clock);
    let limiter = limiter(&store, [Policy::new("a", Gcra::per_day(LIMIT))]);
    warm(&limiter, "ann").await;
    let before = stats(&limiter);
    clock.advance(LIFE);
    assert_eq!(stats(&limiter).held, 0);
    assert_eq!(stats(&limiter).lapsed, before.held);
    let runs = scripts_run(&server);
    assert!(is_allowed(&limiter, "ann", 1).await);
    assert!(scripts_run(&server) > runs);
}

#[tokio::test]
async fn while_the_server_is_away_a_node_spends_what_it_holds_and_no_more() {
    let (server, clock) = (Server::start(&[]), new_year());
    let store = node(&server, &clock);
    let limiter = limiter(&store, [daily("a", 100_000)]);
    while stats(&limiter).held < 20 {
        assert!(is_allowed(&limiter, "ann", 1).await);
    }
    let held = stats(&limiter).held;
    server.kill();
    for _ in 0..held {
        assert!(is_allowed(&limiter, "ann", 1).await);
    }
    assert!(limiter.check("ann", 1).await.is_err());
}

#[tokio::test]
async fn idle_units_go_back_by_themselves_and_all_units_with_the_limiter() {
    let server = Server::start(&[]);
    let store = leasing().open(server.url()).unwrap();
    let holds_forty = async |node: &Limiter, key: &str| {
        let mut asked = 0;
        while stats(node).held < 40 {
            assert!(is_allowed(node, key, 1).await);
            asked += 1;
        }
        asked
    };
    // Units lapse if the machine stands still for their life.
    until_told(async || {
        let node = limiter(&store, [daily("a", 100_000)]);
        holds_forty(&node, "idle").await;
        until("they are gone", || stats(&node).held == 0).await;
        (stats(&node).given_back >= 40).then_some(())
    })
    .await;
    let observer = limiter(
        &patient().open(server.url()).unwrap(),
        [daily("a", 100_000)],
    );
    let mut key = String::from("dropped");
    until_told(async || {
        key.push('!');
        let asked = holds_forty(&limiter(&store, [daily("a", 100_000)]), &key).await;
        let dropped = Instant::now();
        while used(&observer.peek(key.as_str(), 0).await.unwrap()) != [asked] {
            if dropped.elapsed() > 2 * LIFE {
                return None;
            }
        }
        Some(())
    })
    .await;
}

#[tokio::test]
async fn policies_that_cannot_be_leased_ask_the_server() {
    let (server, clock) = (Server::start(&[]), new_year());
    let store = node(&server, &clock);
    let policies = [
        daily("small", 7),
        daily("unleased", 1_000).without_lease(),
        Policy::new("queue", LeakyQueue::per_second(100).places(9)),
    ];
    for policy in policies {
        let name = policy.name().to_owned();
        let limiter = limiter(&store, [policy]);
        for _ in 0..7 {
            assert!(is_allowed(&limiter, &name, 1).await, "{name}");
        }
        assert_eq!(stats(&limiter), LeaseStats::default(), "{name}");
    }
}

/// By the server's time, and on many threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_lease_at_once_admit_no_more_than_the_limit() {
    let server = Server::start(&[]);
    for policy in [
        Policy::new("window", FixedWindow::per_day(LIMIT)),
        Policy::new("bucket", TokenBucket::per_day(LIMIT)),
        Policy::new("log", SlidingLog::per_day(1_000)),
    ] {
        let name = policy.name().to_owned();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..3 {
            // None lapses, whatever stands still.
            let store = patient().lease(Lease::up_to(Duration::from_secs(60)));
            let store = store.open(server.url()).unwrap();
            let node = limiter(&store, [policy.clone()]);
            tasks.spawn(async move {
                let (mut admitted, mut refused) = (0, 0);
                while refused < 100 {
                    if is_allowed(&node, "ann", 1).await {
                        (admitted, refused) = (admitted + 1, 0);
                    } else {
                        refused += 1;
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
                store.give_leases_back().await;
                admitted
            });
        }
        let admitted: u32 = tasks.join_all().await.into_iter().sum();
        assert!(admitted <= LIMIT, "{name}: {admitted}");
        assert!(admitted > LIMIT / 2, "{name}: {admitted}");
        let store = patient().open(server.url()).unwrap();
        let observer = limiter(&store, [policy]);
        let peeked = observer.peek("ann", 0).await.unwrap();
        assert!(used(&peeked)[0] >= admitted, "{name}: {peeked:?}");
    }
}
