//! The permissions that a Redis user needs.

use std::time::Duration;

use tower_ratelimit::clock::Clock;
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::key::{IntoKey, Key};
use tower_ratelimit::policy::Fair;
use tower_ratelimit::store::Lease;
use tower_ratelimit::{
    Concurrency, Limiter, ManualClock, Micros, Policy, RedisStore, SlidingLog, StoreError,
    TokenBucket,
};

use crate::counted_nodes::until_there_are;
use crate::scene::{self, MINUTE, daily, every, key_on_each, limiter, patient, story, used};
use crate::slots::at_once;
use crate::support::redis::{Cluster, Server};

const DOCUMENTED: &str = include_str!("../../docs/many-nodes.md");

/// Returns the words of the command in the documentation that makes the user.
fn documented() -> Vec<&'static str> {
    let begins = DOCUMENTED.find("ACL SETUSER").unwrap();
    let (line, _) = DOCUMENTED[begins..].split_once("```").unwrap();
    line.split_whitespace().collect()
}

/// Returns the rights to commands among these words.
fn rights(words: &[&'static str]) -> Vec<&'static str> {
    let rights = words.iter().copied();
    rights.filter(|word| word.starts_with('+')).collect()
}

/// Makes the user anew, with these rights beside the documented ones, and without another.
fn allow(server: &Server, more: &[&'static str], without: Option<&str>) {
    server.ask(&["ACL", "DELUSER", "limiter"]);
    let words = [&documented(), more].concat();
    let words = words.into_iter().filter(|word| Some(*word) != without);
    server.ask(&words.collect::<Vec<_>>());
}

fn open(server: &Server) -> RedisStore {
    patient().open(url_of(server)).unwrap()
}

fn url_of(server: &Server) -> String {
    format!("redis://limiter:password@127.0.0.1:{}/", server.port())
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
    // Tenants, of which one is forgotten.
    let fair = Fair::new().active_for(Duration::from_millis(1));
    let divided = Policy::new("divided", TokenBucket::per_second(5)).fair(fair);
    let clock = ManualClock::new();
    let tenants = limiter(&store.clone().clock(clock.clone()), [divided]);
    for name in ["ann", "ben"] {
        let _ = tenants
            .check(Key::branch(Key::GLOBAL, &[name.into_key()]), 1)
            .await?;
        clock.advance(MINUTE);
    }
    let divided = Policy::new("slots", Concurrency::of(2)).fair(Fair::new());
    let tenants = scene::limiter(&store, [divided]);
    for _ in 0..3 {
        drop(
            tenants
                .reserve(Key::branch(Key::GLOBAL, &["ann".into_key()]), 1)
                .await?,
        );
    }
    // A log without its first entries, and slots from before the clock has stepped back.
    let clock = ManualClock::new();
    let log = Policy::new("log", SlidingLog::per_second(5));
    let store = store.clock(clock.clone());
    let limiter = limiter(&store, [log]);
    for _ in 0..3 {
        let _ = limiter.check("ann", 1).await?;
        clock.advance(Duration::from_millis(600));
    }
    let slots = scene::limiter(&store, [at_once(2)]);
    let held = slots.reserve("ann", 1).await?;
    clock.set_micros(Micros::new(clock.now().get() - 3_600_000_000));
    held_once_more(&slots).await?;
    slots.block("ann", MINUTE).await?;
    slots.unblock("ann").await?;
    std::mem::forget(held);
    let leases = Lease::up_to(Duration::from_secs(1));
    let leasing = patient().lease(leases).open(url_of(server)).unwrap();
    for policy in every(5, MINUTE) {
        let limiter = scene::limiter(&leasing, [policy]);
        let _ = limiter.check("ben", 1).await?;
        let reserved = limiter.reserve("ben", 2).await?;
        reserved.settle(1);
    }
    leasing.give_leases_back().await;
    Ok(())
}

async fn held_once_more(slots: &Limiter) -> Result<(), StoreError> {
    let held = slots.reserve("ann", 1).await?;
    assert!(held.is_allowed());
    std::mem::forget(held);
    Ok(())
}

#[tokio::test]
async fn these_commands_are_all_that_is_needed() {
    let server = Server::start(&[]);
    allow(&server, &[], None);
    every_verb(&server)
        .await
        .unwrap_or_else(|error| panic!("{}", story(&error)));
    let url = format!("redis://limiter:password@127.0.0.1:{}/", server.port());
    // A user without that permission works without the server's version.
    let connected = patient().connect(&url).await;
    connected.unwrap_or_else(|error| panic!("{}", story(&error)));
}

#[tokio::test]
async fn nodes_are_counted_by_these_commands() {
    let server = Server::start(&[]);
    allow(&server, &[], None);
    let store = patient().nodes_live().open(url_of(&server)).unwrap();
    let limiter = limiter(&store, [daily("a", 9)]);
    until_there_are(1, &limiter).await;
    // It is the user's own count, and not one of a store that failed.
    assert!(limiter.check("ann", 1).await.unwrap().is_allowed());
    let nodes: u64 = scene::ask(&server, &["ZCARD", "ratelimit:1:{nodes}"]);
    assert_eq!(nodes, 1);
}

#[tokio::test]
async fn each_of_these_commands_is_needed() {
    let server = Server::start(&[]);
    for without in rights(&documented()) {
        allow(&server, &[], Some(without));
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
    allow(&server, &[], None);
    let url = format!("redis://limiter:password@127.0.0.1:{}/", server.port());
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
        .map(|port| format!("redis://limiter:password@127.0.0.1:{port}/"))
        .collect();
    let urls = urls.iter().map(String::as_str);
    patient().open_cluster(urls).unwrap()
}

#[tokio::test]
async fn in_a_cluster_the_user_may_also_ask_for_the_slots() {
    let cluster = Cluster::start();
    let more = ["+cluster|slots", "+asking"];
    assert!(DOCUMENTED.contains(&format!("a cluster needs `{}` and `{}`", more[0], more[1])));
    for node in &cluster.nodes {
        allow(node, &[], None);
    }
    let refused = limiter(&open_cluster(&cluster), [daily("a", 5)]);
    let error = refused.check("ann", 1).await.unwrap_err();
    assert_eq!(error.reason(), Some("no permission"), "{}", story(&error));
    for node in &cluster.nodes {
        allow(node, &more, None);
    }
    let store = open_cluster(&cluster);
    let limiter = limiter(&store, [daily("a", 5)]);
    for key in key_on_each(&cluster, &store, &daily("a", 5)) {
        let told = limiter.check(key, 1).await;
        let told = told.unwrap_or_else(|error| panic!("{}", story(&error)));
        assert_eq!(used(&told), [1]);
    }
}
