//! A node that leases units, in a process of its own. A test tells it what to do on its standard input, a line each. It
//! says `+KEY` on its standard output for each request that passes, and `. NUMBERS` when it is done.
//!
//! Arguments: the kind of the servers (`server`, `cluster` or `sentinel`), the longest life of a unit in milliseconds, and
//! the addresses. Each command begins with its name and the algorithm, as text: `drain`, `hold`, `held`, `ask` and `back`.

use std::collections::HashMap;
use std::env;
use std::io::{Write, stdin, stdout};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;
use tower_ratelimit::observe::LeaseStats;
use tower_ratelimit::store::Lease;
use tower_ratelimit::{Algorithm, Limiter, OnStoreFailure, Policy, RedisStore};

type Node = Limiter;

/// The number of clients of each node, as in the test.
const KEYS: u32 = 4;

/// The number of requests in flight.
const TOGETHER: u32 = 4;

/// A key is used up if its requests are refused for this long: units of other nodes go back before that.
const USED_UP: Duration = Duration::from_millis(400);

/// As in the test: the time after which it has failed.
const PATIENCE: Duration = Duration::from_secs(60);

const NAME: &str = "mymaster";

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [kind, life, urls @ ..] = &arguments[..] else {
        panic!("it is told three words, and not {arguments:?}");
    };
    let store = open(kind, life.parse().expect("a number"), urls);
    let mut limiters: HashMap<String, Arc<Node>> = HashMap::new();
    // One after the other: the test waits for each answer.
    while let Some(line) = next_line() {
        let (verb, algorithm) = line.split_once(' ').expect("a verb and an algorithm");
        let limiter = limiters
            .entry(algorithm.to_owned())
            .or_insert_with(|| Arc::new(limiter(&store, algorithm)));
        match verb {
            "drain" => drain(limiter).await,
            "hold" => hold(limiter).await,
            "held" => say(format_args!(". {}", stats(limiter).held)),
            "ask" => ask(limiter).await,
            "back" => {
                store.give_leases_back().await;
                say(format_args!(". {}", stats(limiter).lapsed));
            }
            other => panic!("{other} is no verb"),
        }
    }
}

fn next_line() -> Option<String> {
    let mut line = String::new();
    let read = stdin().read_line(&mut line).expect("the test writes text");
    (read > 0).then(|| line.trim_end().to_owned())
}

fn open(kind: &str, life: u64, urls: &[String]) -> RedisStore {
    let store = RedisStore::builder()
        .deadline(PATIENCE)
        .remember_denials_for(Duration::ZERO)
        .lease(Lease::up_to(Duration::from_millis(life)));
    let mut urls = urls.iter().map(String::as_str);
    let store = match kind {
        "server" => store.open(urls.next().expect("an address")),
        "cluster" => store.open_cluster(urls),
        _ => store.open_sentinel(NAME, urls),
    };
    store.expect("the address is good")
}

fn limiter(store: &RedisStore, algorithm: &str) -> Node {
    let algorithm: Algorithm = algorithm.parse().expect("an algorithm");
    let policy = Policy::new("a", algorithm).on_store_failure(OnStoreFailure::Refuse);
    let limiter = Limiter::builder().policy(policy).store(store.clone());
    limiter.build().expect("the limiter is good")
}

fn stats(limiter: &Node) -> LeaseStats {
    limiter.snapshot().store.leases.expect("it leases")
}

/// The test reads this output even if the process is killed next.
fn say(what: std::fmt::Arguments<'_>) {
    let mut out = stdout().lock();
    let said = writeln!(out, "{what}").and_then(|()| out.flush());
    if said.is_err() {
        // The test has ended.
        std::process::exit(1);
    }
}

/// Sends requests for all keys until all of them are used up.
async fn drain(limiter: &Arc<Node>) {
    let mut tasks = JoinSet::new();
    for task in 0..TOGETHER {
        let limiter = Arc::clone(limiter);
        tasks.spawn(async move {
            let mut latest = Instant::now();
            for key in (0..KEYS).cycle().skip(task as usize) {
                match limiter.check(key, 1).await {
                    Ok(decision) if !decision.is_allowed() => {
                        if latest.elapsed() > USED_UP {
                            return;
                        }
                        sleep(Duration::from_millis(1)).await;
                    }
                    told => {
                        latest = Instant::now();
                        match told {
                            Ok(_) => say(format_args!("+{key}")),
                            // The server is away.
                            Err(_) => sleep(Duration::from_millis(5)).await,
                        }
                    }
                }
            }
        });
    }
    tasks.join_all().await;
    say(format_args!("."));
}

/// Sends requests for the first key until this node holds units of it.
async fn hold(limiter: &Node) {
    while stats(limiter).held < 20 {
        if limiter
            .check(0_u32, 1)
            .await
            .expect("it answers")
            .is_allowed()
        {
            say(format_args!("+0"));
        }
    }
    say(format_args!(". {}", stats(limiter).held));
}

/// Sends one request for the first key, and reports the number of calls.
async fn ask(limiter: &Node) {
    let calls = |limiter: &Node| limiter.snapshot().store.calls;
    let before = calls(limiter);
    if limiter
        .check(0_u32, 1)
        .await
        .expect("it answers")
        .is_allowed()
    {
        say(format_args!("+0"));
    }
    say(format_args!(". {}", calls(limiter) - before));
}
