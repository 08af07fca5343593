//! The permissions that a Redis user needs.

use std::time::Duration;

use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::{Limiter, ManualClock, Policy, RedisStore, SlidingLog, StoreError};

use crate::scene::{MINUTE, daily, every, key_on_each, limiter, patient, story, used};
use crate::support::redis::{Cluster, Server};

/// The commands of clients and of the scripts.
const COMMANDS: [&str; 14] = [
    "EVALSHA", "EVAL", "TIME", "GET", "SET", "DEL", "PTTL", "PEXPIRE", "LRANGE", "LLEN", "RPUSH",
    "LPUSH", "LTRIM", "LSET",
];

fn allow(server: &Server, commands: &[&str]) {
    let mut words = vec![
        "ACL",
        "SETUSER",
        "limiter",
        "reset",
        "on",
        ">p4ss",
        "~ratelimit:*",
    ];
    let commands: Vec<String> = commands.iter().map(|name| format!("+{name}")).collect();
    words.extend(commands.iter().map(String::as_str));
    server.ask(&words);
}

fn open(server: &Server) -> RedisStore {
    let url = format!("redis://limiter:p4ss@127.0.0.1:{}/", server.port());
    patient().open(&url).unwrap()
}

/// All commands that the store can send.
async fn every_verb(server: &Server) -> Result<(), StoreError> {
    let store = open(server);
    for policy in every(5, MINUTE) {
        let limiter: Limiter = limiter(&store, [policy]);
        let _ = limiter.check("ann", 1).await?;
        let _ = limiter.check("ann", 1).await?;
        let _ = limiter.check("ann", 9).await?;
        let _ = limiter.peek("ann", 1).await?;
        limiter.settle("ann", 4).await?;
        limiter.refund("ann", 5).await?;
        limiter.block("ann", MINUTE).await?;
        let _ = limiter.check("ann", 1).await?;
        limiter.unblock("ann").await?;
        limiter.reset("ann").await?;
    }
    // A log without its first entries.
    let clock = ManualClock::new();
    let log = Policy::new("log", SlidingLog::per_second(5));
    let limiter = limiter(&store.clock(clock.clone()), [log]);
    for _ in 0..3 {
        let _ = limiter.check("ann", 1).await?;
        clock.advance(Duration::from_millis(600));
    }
    Ok(())
}

#[tokio::test]
async fn these_commands_are_all_that_is_needed() {
    let server = Server::start(&[]);
    allow(&server, &COMMANDS);
    every_verb(&server)
        .await
        .unwrap_or_else(|error| panic!("{}", story(&error)));
    let url = format!("redis://limiter:p4ss@127.0.0.1:{}/", server.port());
    // A user without that permission works without the server's version.
    let connected = patient().connect(&url).await;
    connected.unwrap_or_else(|error| panic!("{}", story(&error)));
}

#[tokio::test]
async fn each_of_these_commands_is_needed() {
    let server = Server::start(&[]);
    for without in COMMANDS {
        let others: Vec<&str> = COMMANDS
            .into_iter()
            .filter(|name| *name != without)
            .collect();
        allow(&server, &others);
        server.ask(&["FLUSHALL"]);
        server.ask(&["SCRIPT", "FLUSH"]);
        let error = every_verb(&server).await.expect_err(without);
        assert_eq!(
            error.kind(),
            StoreErrorKind::Misconfigured,
            "{without}: {}",
            story(&error)
        );
        let said = story(&error);
        let is_named = ["permission", "can't run this command"]
            .iter()
            .any(|words| said.contains(words));
        assert!(is_named, "{without}: {said}");
    }
}

#[tokio::test]
async fn keys_that_are_not_of_the_prefix_are_out_of_reach() {
    let server = Server::start(&[]);
    allow(&server, &COMMANDS);
    let url = format!("redis://limiter:p4ss@127.0.0.1:{}/", server.port());
    let elsewhere = limiter(
        &patient().prefix("other").open(&url).unwrap(),
        [daily("a", 5)],
    );
    let error = elsewhere.check("ann", 1).await.unwrap_err();
    assert_eq!(
        error.kind(),
        StoreErrorKind::Misconfigured,
        "{}",
        story(&error)
    );
    let here = limiter(&open(&server), [daily("a", 5)]);
    assert_eq!(used(&here.check("ann", 1).await.unwrap()), [1]);
}

fn open_cluster(cluster: &Cluster) -> RedisStore {
    let urls = cluster.nodes.iter().map(Server::port);
    let urls: Vec<String> = urls
        .map(|port| format!("redis://limiter:p4ss@127.0.0.1:{port}/"))
        .collect();
    let urls = urls.iter().map(String::as_str);
    patient().open_cluster(urls).unwrap()
}

#[tokio::test]
async fn in_a_cluster_the_user_may_also_ask_for_the_slots() {
    let cluster = Cluster::start();
    let more = [&COMMANDS[..], &["CLUSTER|SLOTS", "ASKING"]].concat();
    for node in &cluster.nodes {
        allow(node, &COMMANDS);
    }
    let refused = limiter(&open_cluster(&cluster), [daily("a", 5)]);
    let error = refused.check("ann", 1).await.unwrap_err();
    assert_eq!(error.reason(), Some("no permission"), "{}", story(&error));
    for node in &cluster.nodes {
        allow(node, &more);
    }
    let store = open_cluster(&cluster);
    let limiter = limiter(&store, [daily("a", 5)]);
    for key in key_on_each(&cluster, &store, &daily("a", 5)) {
        let told = limiter.check(key, 1).await;
        let told = told.unwrap_or_else(|error| panic!("{}", story(&error)));
        assert_eq!(used(&told), [1]);
    }
}
