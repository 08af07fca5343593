//! Nodes that are counted, where their number changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redis::Value;
use tower_ratelimit::store::NodeCount;
use tower_ratelimit::{Limiter, RedisStore};

use crate::scene::{daily, node_of, over, patient, until, used};
use crate::support::redis::{Cluster, Server};
use crate::without::{limiter, lose};

const KEY: &str = "ratelimit:1:{nodes}";

const SCRIPT: &str = "local time = redis.call('TIME') \
    return redis.call('ZADD', KEYS[1], time[1] * 1000 + math.floor(time[2] / 1000), ARGV[1])";

/// Another node, until it is dropped.
struct Other(Arc<AtomicBool>);

impl Other {
    fn run(server: &Server, name: &'static str) -> Self {
        let mut connection = server.connection();
        let has_ended = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&has_ended);
        thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let mut note = redis::cmd("EVAL");
                note.arg(SCRIPT).arg(1).arg(KEY).arg(name);
                // A server that is full refuses it.
                let _ = note.query::<Value>(&mut connection);
                thread::sleep(Duration::from_millis(200));
            }
        });
        Self(has_ended)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(crate) async fn until_there_are(nodes: u32, limiter: &Limiter) {
    until("the number of nodes", || {
        limiter.snapshot().store.nodes == Some(nodes)
    })
    .await;
}

#[tokio::test]
async fn nodes_count_each_other_until_they_are_gone_for_three_seconds() {
    let server = Server::start(&[]);
    let store = patient().nodes_live().open(server.url()).unwrap();
    // All stores of a process are one node.
    let again = patient().nodes_live().open(server.url()).unwrap();
    let limiters = [&store, &again].map(|store| limiter(store, [daily("a", 9)]));
    let others = ["a", "b"].map(|name| Other::run(&server, name));
    for limiter in &limiters {
        until_there_are(3, limiter).await;
    }
    drop(others);
    for limiter in &limiters {
        until_there_are(1, limiter).await;
    }
}

#[tokio::test]
async fn each_node_has_its_share_of_the_last_count_while_the_server_is_away() {
    let server = Server::start(&[]);
    let store = patient().nodes_live().open(server.url()).unwrap();
    let limiter = limiter(&store, [daily("a", 9)]);
    let _others = ["a", "b"].map(|name| Other::run(&server, name));
    until_there_are(3, &limiter).await;
    lose(&server, &store).await;
    for count in 1..=3 {
        let told = limiter.check("ann", 1).await.unwrap();
        assert!(told.is_allowed() && told.is_degraded());
        assert_eq!(used(&told), [count]);
    }
    assert!(!limiter.check("ann", 1).await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_node_that_starts_while_the_server_is_away_takes_the_least_count() {
    let nowhere = "redis://127.0.0.1:1/";
    let builder = patient().nodes_live().nodes_at_least(3);
    let limiter = limiter(&builder.open(nowhere).unwrap(), [daily("a", 9)]);
    for _ in 0..3 {
        assert!(limiter.check("ann", 1).await.unwrap().is_allowed());
    }
    assert!(!limiter.check("ann", 1).await.unwrap().is_allowed());
    assert_eq!(limiter.snapshot().store.nodes, Some(3));
}

/// It counts one, and was told of three.
#[tokio::test]
async fn the_count_is_no_less_than_the_least_one() {
    let server = Server::start(&[]);
    let builder = patient().nodes_live().nodes_at_least(3);
    let limiter = limiter(&builder.open(server.url()).unwrap(), [daily("a", 9)]);
    let others = ["a", "b", "c"].map(|name| Other::run(&server, name));
    until_there_are(4, &limiter).await;
    drop(others);
    until_there_are(3, &limiter).await;
}

#[tokio::test]
async fn in_a_cluster_one_server_counts() {
    let cluster = Cluster::start();
    let store = over(patient().nodes_live(), &cluster);
    let limiter = limiter(&store, [daily("a", 9)]);
    let _other = Other::run(node_of(&cluster, KEY), "a");
    until_there_are(2, &limiter).await;
}

/// It would count a call a second for nothing.
#[tokio::test]
async fn a_number_that_is_told_is_not_counted() {
    let server = Server::start(&[]);
    let nodes = NodeCount::new(2);
    let store = patient().nodes_live().nodes(nodes.clone());
    let limiter = limiter(&store.open(server.url()).unwrap(), [daily("a", 9)]);
    assert!(limiter.check("ann", 1).await.unwrap().is_allowed());
    assert_eq!(server.ask(&["EXISTS", KEY]), Value::Int(0));
    nodes.set(5).unwrap();
    assert_eq!(limiter.snapshot().store.nodes, Some(5));
}

#[test]
fn a_least_count_is_of_a_count_and_is_one_at_least() {
    let url = "redis://127.0.0.1:6379/";
    let error = RedisStore::builder()
        .nodes(3)
        .nodes_at_least(2)
        .open(url)
        .unwrap_err();
    let expected =
        "`nodes_at_least` cannot be 2: have the nodes counted, `nodes_live`, or leave it out";
    assert_eq!(error.to_string(), expected);
    let error = RedisStore::builder().nodes_live().nodes_at_least(0);
    let expected =
        "`nodes_at_least` cannot be 0: give the number of nodes that share the store, 1 or more";
    assert_eq!(error.open(url).unwrap_err().to_string(), expected);
}
