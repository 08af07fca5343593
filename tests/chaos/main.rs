//! Three nodes of a service, each a process, over a cluster of Redis. For two minutes random servers and
//! nodes are killed or stopped, drawn from a seed, and the promises of docs/reliability.md hold throughout.
//!
//! `CHAOS_SEED=7 CHAOS_SECONDS=20 make chaos` repeats the draws of a seed for a shorter time.

#[path = "../support/mod.rs"]
mod support;

mod account;
mod arguments;
mod load;
mod node;
mod nodes;
mod shards;
mod trouble;

use std::env;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use account::Account;
use arguments::{NAME, Wanted};
use load::{Load, Said};
use nodes::Nodes;
use support::redis::Cluster;
use trouble::{BLOWS, Trouble};

/// The length of the trouble, unless `CHAOS_SECONDS` sets it.
const SECONDS: u64 = 120;
/// The parts of that time. All faults are mended after each, and full service has to come back by itself.
const PARTS: u32 = 3;
/// The time within which service has to be full again, once the cluster calls itself whole. It takes a second or two
/// where no other program needs the machine.
const BACK: Duration = Duration::from_secs(60);

/// The bound on the memory of a node, most of which is the program.
const MEMORY: u64 = 128 << 20;

/// The number of failures that are shown.
const SHOWN: usize = 20;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let Some((node::AS_NODE, rest)) = arguments.split_first().map(|(a, b)| (a.as_str(), b)) {
        node::run(rest);
        return;
    }
    match Wanted::by(&arguments) {
        Wanted::List { is_wanted: true } => println!("{NAME}: test"),
        Wanted::List { is_wanted: false } => {}
        Wanted::Nothing => {
            println!("\nrunning 0 tests\n\ntest result: ok. 0 passed; 1 filtered out\n");
        }
        Wanted::Run => {
            println!("\nrunning 1 test");
            chaos();
            println!("test {NAME} ... ok\n\ntest result: ok. 1 passed\n");
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    let told = env::var(variable).ok()?;
    let number = told.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable}={told:?} is no whole number")))
}

fn chaos() {
    let seed = number("CHAOS_SEED").unwrap_or_else(|| RandomState::new().hash_one(0) >> 32);
    let seconds = number("CHAOS_SECONDS").unwrap_or(SECONDS);
    println!("{seconds} seconds of trouble, drawn by CHAOS_SEED={seed}");

    let began = Instant::now();
    let cluster = Cluster::with_replicas();
    let nodes = Arc::new(Nodes::start(cluster.urls()));
    let load = Load::start(&nodes);
    load.recovers(Instant::now(), BACK);
    let mut trouble = Trouble::new(seed, cluster, &nodes);
    let mut backs = Vec::new();
    for _ in 0..PARTS {
        trouble.lasts(Duration::from_secs(seconds) / PARTS);
        let (mended, whole) = trouble.mends_all();
        let back = load.recovers(whole, BACK);
        let cluster = whole.duration_since(mended);
        backs.push((cluster, cluster + back));
    }
    let answers = load.end();
    // Faults that have happened since then by themselves count too.
    trouble.mends_all();
    let memory = nodes.memory();
    let panics = nodes.end();

    let account = Account {
        answers: &answers,
        nodes: &nodes,
        trouble: &trouble,
        began,
    };
    let (over, worst) = account.over_admitted();
    let [median, longest] = account.times();
    let lost = account.count(|said| matches!(said, Said::Lost(_)));
    let degraded = account.count(|said| said.is_degraded() == Some(true));
    let blows = trouble.done.iter();
    let blows: Vec<_> = blows
        .map(|(blow, times)| format!("{times} {blow}"))
        .collect();
    println!(
        "{} requests, {degraded} degraded, {lost} of nodes that were not there; p50 {median:?}, max {longest:?}; {}; \
         {} servers away at a time at most; \
         counts lost {} times; admitted {} of {} at worst; the cluster was whole, and service full, so long after each \
         last mend: {backs:?}; memory of the nodes: {memory:?} bytes",
        answers.len(),
        blows.join(", "),
        trouble.most_away,
        trouble.shards.all_losses(),
        worst.admitted,
        worst.most,
    );
    let wrong = [panics, account.not_answered(), over].concat();
    let shown = &wrong[..wrong.len().min(SHOWN)];
    assert!(
        wrong.is_empty(),
        "{} are wrong, as: {shown:#?}",
        wrong.len()
    );
    assert!(degraded > 0, "nothing has befallen anybody");
    assert!(
        memory.iter().all(|bytes| *bytes < MEMORY),
        "the nodes have grown: {memory:?} bytes"
    );
    if seconds >= SECONDS {
        let missing = BLOWS.iter().find(|blow| !trouble.done.contains_key(blow));
        assert_eq!(missing, None, "this has never happened");
    }
}
