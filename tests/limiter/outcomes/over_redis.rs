//! Settlements over Redis.

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tower_ratelimit::policy::OnAbandoned;
use tower_ratelimit::{AnchoredWindow, Limiter, Policy, RedisStore, TokenBucket};

use crate::outcomes::reservations::low_priority_is_charged_all_of_it;
use crate::support::proxy::Proxy;
use crate::support::redis::{Server, text};
use crate::support::tasks::Tasks;

/// So long that a test which reaches it has failed.
const PATIENCE: Duration = Duration::from_secs(20);

fn limiter(server: &Server, unsettled: OnAbandoned) -> Limiter {
    limiter_at(&server.url(), unsettled)
}

fn limiter_at(url: &str, unsettled: OnAbandoned) -> Limiter {
    limiter_over(&store_at(url), unsettled)
}

fn store_at(url: &str) -> RedisStore {
    let store = RedisStore::builder().deadline(PATIENCE);
    store.open(url).unwrap()
}

fn limiter_over(store: &RedisStore, unsettled: OnAbandoned) -> Limiter {
    let policy = Policy::new("units", AnchoredWindow::per_day(100)).on_abandoned(unsettled);
    let limiter = Limiter::builder().policy(policy).store(store.clone());
    limiter.build().unwrap()
}

async fn used(limiter: &Limiter, key: &str) -> u32 {
    let decision = limiter.peek(key, 0).await.unwrap();
    decision.binding().unwrap().1.used()
}

/// Looks until so much is used.
async fn comes_to(limiter: &Limiter, key: &str, expected: u32) {
    let started = Instant::now();
    loop {
        let used = used(limiter, key).await;
        if used == expected {
            return;
        }
        let is_late = started.elapsed() > PATIENCE;
        assert!(!is_late, "{key}: {used} in place of {expected}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_reservation_is_settled_in_the_background() {
    let server = Server::start(&[]);
    let limiter = limiter(&server, OnAbandoned::Units(3));
    limiter.reserve("down", 40).await.unwrap().settle(15);
    limiter.reserve("up", 40).await.unwrap().settle(90);
    limiter.reserve("nothing", 40).await.unwrap().cancel();
    drop(limiter.reserve("dropped", 40).await.unwrap());
    for (key, expected) in [("down", 15), ("up", 90), ("nothing", 0), ("dropped", 3)] {
        comes_to(&limiter, key, expected).await;
    }
    assert_eq!(limiter.lost_settlements(), 0);
}

#[tokio::test]
async fn a_request_of_low_priority_that_cost_more_is_charged_all_of_it() {
    let server = Server::start(&[]);
    let policy = Policy::new("units", TokenBucket::per_day(100)).reserve(90);
    let store = RedisStore::builder().deadline(PATIENCE);
    let builder = Limiter::builder().policy(policy);
    let limiter = builder.store(store.open(server.url()).unwrap());
    low_priority_is_charged_all_of_it(&limiter.build().unwrap()).await;
}

#[tokio::test]
async fn a_request_that_goes_away_before_the_answer_is_settled_as_one_without_an_answer() {
    let server = Server::start(&[]);
    let limiter = limiter(&server, OnAbandoned::Units(3));
    // The first request connects.
    assert_eq!(used(&limiter, "ann").await, 0);
    {
        let mut gone = pin!(limiter.reserve("ann", 40).into_future());
        let polled = gone.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
    }
    comes_to(&limiter, "ann", 3).await;
}

/// Its future is moved out of the runtime in which it was polled.
#[test]
fn a_request_that_goes_away_outside_of_its_runtime_is_settled_even_if_that_has_ended() {
    let server = Server::start(&[]);
    let limiter = limiter(&server, OnAbandoned::Units(3));
    let runtime = attentive();
    let asked = |key: &'static str| {
        let mut gone = Box::pin(limiter.reserve(key, 40).into_future());
        runtime.block_on(async {
            // The first request connects.
            assert_eq!(used(&limiter, key).await, 0);
            server.freeze();
            // It has asked, and set its timer in this runtime.
            for _ in 0..3 {
                let polled = gone.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                assert!(polled.is_pending());
            }
        });
        gone
    };
    drop(asked("ann"));
    server.thaw();
    runtime.block_on(comes_to(&limiter, "ann", 3));
    assert_eq!(limiter.lost_settlements(), 0);
    let gone = asked("bob");
    drop(runtime);
    drop(gone);
    server.thaw();
    attentive().block_on(comes_to(&limiter, "bob", 3));
    assert_eq!(limiter.lost_settlements(), 0);
}

#[tokio::test]
async fn a_reservation_that_was_never_polled_is_not_charged() {
    let server = Server::start(&[]);
    let limiter = limiter(&server, OnAbandoned::Units(3));
    drop(limiter.reserve("ann", 40).into_future());
    tokio::task::yield_now().await;
    assert_eq!(used(&limiter, "ann").await, 0);
}

/// Returns a runtime that looks after each task whether it is to end.
fn attentive() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.event_interval(1).enable_all().build().unwrap()
}

#[test]
fn settlements_go_on_in_another_runtime_whenever_the_first_ends() {
    let server = Server::start(&[]);
    let limiter = limiter(&server, OnAbandoned::Estimate);
    for steps in 0..8 {
        attentive().block_on(async {
            limiter.reserve("ann", 10).await.unwrap().cancel();
            for _ in 0..steps {
                yield_now().await;
            }
        });
    }
    attentive().block_on(async {
        limiter.reserve("bob", 10).await.unwrap().cancel();
        comes_to(&limiter, "bob", 0).await;
    });
}

/// Returns how many scripts the server has run.
fn scripts(server: &Server) -> u64 {
    let info = text(&server.ask(&["INFO", "commandstats"]));
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn settlements_at_once_share_calls() {
    const REQUESTS: u32 = 200;
    let server = Server::start(&[]);
    let store = store_at(&server.url());
    let limiter = limiter_over(&store, OnAbandoned::Estimate);
    let mut reservations = Vec::new();
    for key in 0..REQUESTS {
        reservations.push(limiter.reserve(key, 10).await.unwrap());
    }
    let (before, tasks) = (scripts(&server), Tasks::beside(&store).await);
    for (cost, reservation) in (0..).zip(reservations) {
        reservation.settle(cost % 20);
    }
    tasks.end(0).await;
    let calls = scripts(&server) - before;
    assert!((1..=8).contains(&calls), "{calls} calls");
    for key in 0..REQUESTS {
        let decision = limiter.peek(key, 0).await.unwrap();
        assert_eq!(decision.binding().unwrap().1.used(), key % 20);
    }
    assert_eq!(limiter.lost_settlements(), 0);
}

#[tokio::test]
async fn settlements_do_not_wait_for_each_other_at_a_server_that_is_far_away() {
    const REQUESTS: u32 = 640;
    let server = Server::start(&[]);
    let mut proxy = Proxy::start(&server);
    let limiter = limiter_at(&proxy.url(), OnAbandoned::Estimate);
    let mut reservations = Vec::new();
    for key in 0..REQUESTS {
        reservations.push(limiter.reserve(key, 10).await.unwrap());
    }
    let before = scripts(&server);
    proxy.delay(2 * PATIENCE);
    for reservation in reservations {
        reservation.cancel();
    }
    // No call is answered yet.
    let started = Instant::now();
    while scripts(&server) < before + u64::from(REQUESTS / 64) {
        assert!(started.elapsed() < PATIENCE / 2, "settlements wait");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_settlement_that_cannot_be_fails_alone() {
    let server = Server::start(&[]);
    let store = store_at(&server.url());
    let limiter = limiter_over(&store, OnAbandoned::Estimate);
    let mut reservations = Vec::new();
    for key in ["ann", "bob", "cid"] {
        reservations.push(limiter.reserve(key, 10).await.unwrap());
    }
    let keys: Vec<String> = redis::from_redis_value(server.ask(&["KEYS", "*bob*"])).unwrap();
    server.ask(&["SET", &keys[0], "damaged"]);
    let tasks = Tasks::beside(&store).await;
    for reservation in reservations {
        reservation.settle(4);
    }
    tasks.end(0).await;
    assert_eq!(used(&limiter, "ann").await, 4);
    assert_eq!(used(&limiter, "cid").await, 4);
    assert_eq!(limiter.lost_settlements(), 1);
}

/// Returns the time of the processor that the server has used until now, in microseconds.
fn spent(server: &Server) -> f64 {
    let info = text(&server.ask(&["INFO", "cpu"]));
    let seconds = info.lines().filter_map(|line| {
        let (name, seconds) = line.split_once(':')?;
        let is_all = matches!(name, "used_cpu_user" | "used_cpu_sys");
        is_all.then(|| seconds.trim().parse::<f64>().unwrap())
    });
    seconds.sum::<f64>() * 1e6
}

/// Decisions at once share calls too.
#[tokio::test]
async fn a_settlement_takes_about_as_much_of_the_server_as_a_decision() {
    const REQUESTS: u32 = 500;
    let server = Server::start(&[]);
    let store = store_at(&server.url());
    let limiter = limiter_over(&store, OnAbandoned::Estimate);
    let mut least = [f64::MAX; 2];
    for round in 0..8_u32 {
        let before = spent(&server);
        let keys = (0..REQUESTS).map(|key| limiter.reserve((round % 2, key), 10).into_future());
        let reservations = join_all(keys).await;
        let between = spent(&server);
        let tasks = Tasks::beside(&store).await;
        for reservation in reservations {
            let reservation = reservation.unwrap();
            assert!(reservation.is_allowed());
            reservation.settle(7);
        }
        tasks.end(0).await;
        let after = spent(&server);
        least = [
            least[0].min(between - before),
            least[1].min(after - between),
        ];
    }
    let [decisions, settlements] = least;
    println!("{REQUESTS} decisions in {decisions:.0} us, their settlements in {settlements:.0} us");
    assert!(
        settlements < 2.0 * decisions,
        "{settlements} and {decisions} us"
    );
}
