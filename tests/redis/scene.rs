//! The setting of the tests: stores, limiters, and views of a server.

use std::error::Error;
use std::time::{Duration, Instant};

use redis::FromRedisValue;
use tower_ratelimit::decision::Outcomes;
use tower_ratelimit::store::RedisStoreBuilder;
use tower_ratelimit::{
    Algorithm, AnchoredWindow, Decision, FixedWindow, Gcra, LeakyBucket, LeakyQueue, Limiter,
    Micros, OnStoreFailure, Policy, Quota, RedisStore, SlidingLog, SlidingSlots, SlidingWindow,
    StoreError, TokenBucket,
};

use crate::support::redis::{Cluster, Server};

/// The time after which a test has failed: the longest deadline of a store.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// Returns a builder for a store that waits, and sends each request to the server.
pub(crate) fn patient() -> RedisStoreBuilder {
    let builder = RedisStore::builder().deadline(PATIENCE);
    builder.remember_denials_for(Duration::ZERO)
}

pub(crate) fn store(server: &Server) -> RedisStore {
    patient().open(server.url()).unwrap()
}

pub(crate) fn cluster_store(cluster: &Cluster) -> RedisStore {
    over(patient(), cluster)
}

pub(crate) fn over(builder: RedisStoreBuilder, cluster: &Cluster) -> RedisStore {
    let urls = cluster.urls();
    builder
        .open_cluster(urls.iter().map(String::as_str))
        .unwrap()
}

pub(crate) fn limiter(store: &RedisStore, policies: impl IntoIterator<Item = Policy>) -> Limiter {
    let refusing = policies.into_iter().map(without_a_standby);
    let limiter = Limiter::builder().policies(refusing);
    limiter.store(store.clone()).build().unwrap()
}

/// Returns the policy with failures as errors, without a decision by this process.
pub(crate) fn without_a_standby(policy: Policy) -> Policy {
    policy.on_store_failure(OnStoreFailure::Refuse)
}

/// Returns a policy for each algorithm, with its name.
pub(crate) fn every(limit: u32, period: Duration) -> Vec<Policy> {
    let quota = Quota::new(limit, period).unwrap();
    let algorithms: [Algorithm; 10] = [
        FixedWindow::of(quota).into(),
        AnchoredWindow::of(quota).into(),
        SlidingLog::of(quota).unwrap().into(),
        SlidingWindow::of(quota).into(),
        SlidingSlots::of(quota).unwrap().into(),
        TokenBucket::of(quota).into(),
        TokenBucket::of(quota).by_interval().into(),
        LeakyBucket::of(quota).into(),
        Gcra::of(quota).into(),
        LeakyQueue::of(quota).places(limit - 1).into(),
    ];
    let named = algorithms.map(|algorithm| Policy::new(algorithm.name(), algorithm));
    named.into()
}

/// Returns a policy whose limit is whole again on New Year only.
pub(crate) fn daily(name: &str, limit: u32) -> Policy {
    Policy::new(name, AnchoredWindow::per_day(limit))
}

pub(crate) fn used(decision: &Decision) -> Vec<u32> {
    decision.policies().map(|(_, told)| told.used()).collect()
}

pub(crate) fn ask<T: FromRedisValue>(server: &Server, words: &[&str]) -> T {
    redis::from_redis_value(server.ask(words)).expect("the answer is of this kind")
}

/// Returns how often clients and scripts called a command.
pub(crate) fn calls(server: &Server, command: &str) -> u64 {
    let info: String = ask(server, &["INFO", "commandstats"]);
    let name = format!("cmdstat_{command}:calls=");
    let calls = info.lines().find_map(|line| line.strip_prefix(&name));
    calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
}

/// Returns how many commands of clients a server has had, without those of the tests.
pub(crate) fn scripts_run(server: &Server) -> (u64, u64) {
    (calls(server, "evalsha"), calls(server, "eval"))
}

pub(crate) fn keys(server: &Server) -> Vec<String> {
    let mut keys: Vec<String> = ask(server, &["KEYS", "*"]);
    keys.sort();
    keys
}

/// Returns the node of a cluster that has the slot of this key, as the others say.
pub(crate) fn node_of<'a>(cluster: &'a Cluster, key: &str) -> &'a Server {
    let serves = |node: &&Server| {
        let answer = redis::cmd("EXISTS")
            .arg(key)
            .query::<u64>(&mut node.connection());
        answer.is_ok()
    };
    let node = cluster.nodes.iter().find(serves);
    node.expect("every slot is served")
}

/// Returns a key for each node of the cluster, by the place of its state under this policy.
pub(crate) fn key_on_each<R>(
    cluster: &Cluster,
    store: &RedisStore,
    policy: &Policy<R>,
) -> Vec<u64> {
    let on = |node: &Server| {
        let mut keys = 0_u64..;
        keys.find(|key| node_of(cluster, &store.store_key(policy, *key)).port() == node.port())
    };
    cluster.nodes.iter().map(|node| on(node).unwrap()).collect()
}

/// Returns the messages of an error and its causes.
pub(crate) fn story(error: &StoreError) -> String {
    let mut story = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        story.push_str(": ");
        story.push_str(&error.to_string());
        cause = error.source();
    }
    story
}

/// Repeats an attempt until it tells something. It tells nothing if the machine stood still at a bad moment.
pub(crate) async fn until_told<T>(mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(told) = attempt().await {
            return told;
        }
        assert!(started.elapsed() < PATIENCE, "no attempt tells anything");
    }
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "{what}: not in time");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Returns the debug forms of these outcomes, which show every number, and their time.
pub(crate) fn shown(outcomes: &Outcomes) -> (Micros, Vec<String>) {
    let each = outcomes.iter().map(|(policy, outcome)| {
        let shown = format!("{policy}: {outcome:?}");
        // What limits of requests and soft policies mean for an outcome, a limiter marks, whatever its store.
        without(&without(&shown, "effect"), "own_window")
    });
    (outcomes.at(), each.collect())
}

/// Returns the text without this field.
fn without(shown: &str, field: &str) -> String {
    let (before, after) = shown.split_once(field).unwrap();
    let (_, after) = after.split_once(", ").unwrap();
    before.to_owned() + after
}
