//! The bytes of Redis for a key under each algorithm: `make redis-memory`.
//!
//! The program starts a server of its own, and uses ten thousand addresses of IPv4 and one policy named
//! `default`; a log has as many entries as its name says. It prints the rise of `used_memory` for each key,
//! with its name, its expiry and its share of the server's tables, and `MEMORY USAGE` of one key, which
//! leaves the tables out.

use std::io;
use std::time::Duration;

use redis::Value;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tower_ratelimit::{
    Algorithm, AnchoredWindow, FixedWindow, Gcra, LeakyQueue, Limiter, Policy, RedisStore,
    SlidingLog, SlidingSlots, SlidingWindow, TokenBucket,
};
use tower_ratelimit_benches::keys::address;
use tower_ratelimit_testing::servers::redis::Server;

const KEYS: u32 = 10_000;

fn main() -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    println!("| algorithm | charges | bytes per key | of them the key alone | state of one key |");
    println!("| --- | --: | --: | --: | --- |");
    for (name, algorithm, charges) in algorithms() {
        println!("{}", row(&runtime, name, algorithm, charges));
    }
    Ok(())
}

/// Returns each algorithm, and the number of charges of a key.
fn algorithms() -> [(&'static str, Algorithm, u32); 10] {
    let log = SlidingLog::per_day(100);
    [
        ("fixed window", FixedWindow::per_day(100).into(), 10),
        ("anchored window", AnchoredWindow::per_day(100).into(), 10),
        ("sliding window", SlidingWindow::per_day(100).into(), 10),
        (
            "sliding slots, 10 of them",
            SlidingSlots::per_day(100).into(),
            10,
        ),
        (
            "token bucket, leaky bucket, GCRA",
            Gcra::per_day(100).into(),
            10,
        ),
        (
            "leaky queue",
            LeakyQueue::per_day(100).places(99).into(),
            10,
        ),
        (
            "token bucket by interval",
            TokenBucket::per_day(100).by_interval().into(),
            10,
        ),
        ("sliding log, 1 entry", log.into(), 1),
        ("sliding log, 10 entries", log.into(), 10),
        ("sliding log, 100 entries", log.into(), 100),
    ]
}

fn row(runtime: &Runtime, name: &str, algorithm: Algorithm, charges: u32) -> String {
    let server = Server::start(&[]);
    let store = RedisStore::builder().deadline(Duration::from_secs(20));
    let store = store.open(server.url()).expect("the address is good");
    let policy: Policy = Policy::new("default", algorithm);
    let key = store.store_key(&policy, address(0));
    let limiter = Limiter::builder().policy(policy).store(store).build();
    let limiter = limiter.expect("one policy with a good name");
    // The first call opens the connection and loads the script.
    runtime.block_on(async {
        let decision = limiter.check(address(KEYS), 1).await;
        assert!(decision.expect("the server is there").is_allowed());
    });
    let before = used(&server);
    for _ in 0..charges {
        runtime.block_on(async {
            let mut clients = JoinSet::new();
            for place in 0..KEYS {
                // Requests under way take memory of the server too, so they are bounded.
                if clients.len() == 64 {
                    clients.join_next().await;
                }
                clients.spawn(limiter.check(address(place), 1).into_future());
            }
            while let Some(decision) = clients.join_next().await {
                let decision = decision
                    .expect("no decision panics")
                    .expect("the server decides");
                assert!(decision.is_allowed(), "{name}");
            }
        });
    }
    let each = (used(&server) - before) / f64::from(KEYS);
    let alone = match server.ask(&["MEMORY", "USAGE", &key, "SAMPLES", "0"]) {
        Value::Int(bytes) => bytes.to_string(),
        other => panic!("a number was expected, and not {other:?}"),
    };
    let state = match name.starts_with("sliding log") {
        true => "a list".to_owned(),
        false => format!("`{}`", text(server.ask(&["GET", &key]))),
    };
    format!("| {name} | {charges} | {each:.0} | {alone} | {state} |")
}

fn used(server: &Server) -> f64 {
    let info = text(server.ask(&["INFO", "memory"]));
    let used = info
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"));
    let used = used.and_then(|bytes| bytes.trim().parse().ok());
    used.expect("a server tells what it uses")
}

fn text(value: Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        other => panic!("a text was expected, and not {other:?}"),
    }
}
