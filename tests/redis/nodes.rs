//! Many nodes share each limit, exactly.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::task::JoinSet;
use tower_ratelimit::{
    AnchoredWindow, Gcra, Limiter, ManualClock, Micros, Policy, RedisStore, SlidingLog,
};

use crate::scene::{MINUTE, cluster_store, every, limiter, store, used};
use crate::support::redis::{Cluster, Server};

const LIMIT: u32 = 100;
const TASKS: usize = 64;
/// All nodes together send six times the limit.
const EACH: u32 = 10;

/// Returns how many of the requests of all nodes' tasks are admitted.
async fn admitted(nodes: [Limiter; 2], key: u32) -> u32 {
    let admitted = Arc::new(AtomicU32::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (node, admitted) = (nodes[task % 2].clone(), Arc::clone(&admitted));
        tasks.spawn(async move {
            for _ in 0..EACH {
                if node.check(key, 1).await.unwrap().is_allowed() {
                    admitted.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    tasks.join_all().await;
    admitted.load(Ordering::Relaxed)
}

async fn each_algorithm(open: impl Fn() -> RedisStore) {
    let clock = ManualClock::new();
    clock.set_micros(Micros::new(1_704_067_200_000_000));
    for policy in every(LIMIT, MINUTE) {
        let name = policy.name().to_owned();
        let node = || limiter(&open().clock(clock.clone()), [policy.clone()]);
        let nodes = [node(), node()];
        let one = nodes[0].clone();
        assert_eq!(admitted(nodes, 7).await, LIMIT, "{name}");
        assert_eq!(used(&one.peek(7_u32, 0).await.unwrap()), [LIMIT], "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_and_64_tasks_admit_exactly_the_limit() {
    let server = Server::start(&[]);
    each_algorithm(|| store(&server)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_they_do_too() {
    let cluster = Cluster::start();
    each_algorithm(|| cluster_store(&cluster)).await;
}

/// By the server's time, and with remembered denials; the day of this window begins with the first request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_remember_denials_admit_exactly_the_limit() {
    let server = Server::start(&[]);
    for policy in [
        Policy::new("a", AnchoredWindow::per_day(LIMIT)),
        Policy::new("b", SlidingLog::per_day(100)),
        Policy::new("c", Gcra::per_day(LIMIT)),
    ] {
        let node = || {
            let builder = RedisStore::builder().deadline(crate::scene::PATIENCE);
            limiter(&builder.open(server.url()).unwrap(), [policy.clone()])
        };
        assert_eq!(
            admitted([node(), node()], 7).await,
            LIMIT,
            "{}",
            policy.name()
        );
    }
}
