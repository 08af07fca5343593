//! Many keys at once over a cluster that loses a primary without a replica: the servers of the other
//! primaries decide their keys throughout.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tower_ratelimit::{AnchoredWindow, Limiter, Policy, RedisStore};

use crate::run::{median, millis};
use crate::scene::{BACK, NODES, SCHEDULING, store_key};
use crate::support::redis::{Cluster, Server, until};

/// The limit of each key, until long after the test. Each key has more requests than that.
const LIMIT: u32 = 30;
/// The requests that a node lets pass while it is alone.
const SHARE: u32 = LIMIT.div_ceil(NODES);

/// The node that fails.
const STRUCK: usize = 0;

/// The time between two rounds of requests for all keys.
const BEAT: Duration = Duration::from_millis(100);
/// The deadline of a call, long enough that a busy machine is not taken for a fault.
const DEADLINE: Duration = Duration::from_secs(4);

/// The number of rounds during the fault. The client of the crate `redis` stalled after some 40.
const DURING: usize = 100;
/// The rounds after which the store knows of the outage: five failures, and the deadline of each.
const KNOWN: usize = 50;

/// The bound on the growth of the process during the fault, in bytes. The other tests of this process take memory
/// at the same time.
const GROWTH: u64 = 256 << 20;

#[derive(Clone, Copy, Debug)]
enum Fault {
    Killed,
    Stopped,
}

/// The answers for one key.
#[derive(Clone, Copy, Debug)]
struct KeyResult {
    key: u64,
    is_of_struck: bool,
    is_allowed: bool,
    is_degraded: bool,
    took: Duration,
}

/// A node of the service, and its keys.
struct Crowd {
    runtime: Runtime,
    limiter: Limiter,
    /// The keys, each with whether the failing node has it.
    keys: Vec<(u64, bool)>,
    /// The number of concurrent requests for each key.
    requests: usize,
}

impl Crowd {
    fn new(cluster: &Cluster, keys: u64, requests: usize) -> Self {
        let mut runtime = Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
        let urls = cluster.urls();
        let store = RedisStore::builder().nodes(NODES).deadline(DEADLINE);
        // A remembered denial says nothing about the server.
        let store = store.remember_denials_for(Duration::ZERO);
        let store = store.open_cluster(urls.iter().map(String::as_str)).unwrap();
        // The policy in Redis is that of `store_key`: a limit is no part of a key.
        let policy = Policy::new("faults", AnchoredWindow::per_day(LIMIT));
        let limiter = Limiter::builder().policy(policy).store(store);
        let names: Vec<String> = (0..keys).map(store_key).collect();
        let nodes = cluster.nodes_by_slot(&names);
        let of_struck = nodes.into_iter().map(|node| node == STRUCK);
        Self {
            runtime,
            limiter: limiter.build().unwrap(),
            keys: (0..keys).zip(of_struck).collect(),
            requests,
        }
    }

    /// Sends requests for all keys at once, this many times, and waits for all answers. The next round waits
    /// for the answers about keys of healthy servers: a busy machine gets fewer requests, and none that it
    /// has no time for.
    fn beats(&self, times: usize) -> Vec<KeyResult> {
        self.runtime.block_on(async {
            let mut beat = interval(BEAT);
            beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let (mut of_struck, mut of_others) = (JoinSet::new(), JoinSet::new());
            let mut answers = Vec::new();
            for _ in 0..times {
                beat.tick().await;
                let keys = self.keys.iter().cycle();
                for &(key, is_of_struck) in keys.take(self.keys.len() * self.requests) {
                    let asks = self.ask(key, is_of_struck);
                    if is_of_struck {
                        of_struck.spawn(asks);
                    } else {
                        of_others.spawn(asks);
                    }
                }
                while let Some(told) = of_others.join_next().await {
                    answers.push(told.unwrap());
                }
                while let Some(told) = of_struck.try_join_next() {
                    answers.push(told.unwrap());
                }
            }
            answers.extend(of_struck.join_all().await);
            answers
        })
    }

    fn ask(&self, key: u64, is_of_struck: bool) -> impl Future<Output = KeyResult> + use<> {
        let limiter = self.limiter.clone();
        async move {
            let began = Instant::now();
            let decision = limiter.check(key, 1).await.unwrap();
            KeyResult {
                key,
                is_of_struck,
                is_allowed: decision.is_allowed(),
                is_degraded: decision.is_degraded(),
                took: began.elapsed(),
            }
        }
    }
}

/// Returns the memory of this process, where the system tells it.
fn memory() -> Option<u64> {
    let told = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = told.split(' ').nth(1)?.parse().ok()?;
    Some(pages * 4_096)
}

/// Restarts or resumes the node, and waits until the whole cluster is healthy.
fn mend(cluster: &mut Cluster, fault: Fault) {
    match fault {
        Fault::Killed => cluster.nodes[STRUCK].restart(),
        Fault::Stopped => cluster.nodes[STRUCK].thaw(),
    }
    cluster.wait_until("cluster_slots_ok:16384");
    cluster.wait_until("cluster_state:ok");
}

fn loses_a_primary(keys: u64, requests: usize, fault: Fault) {
    let mut cluster = Cluster::start();
    for node in &cluster.nodes {
        node.ask(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    let crowd = Crowd::new(&cluster, keys, requests);
    let mut before = Vec::new();
    until("all is well at first", || {
        before = crowd.beats(3);
        !before.iter().any(|told| told.is_degraded)
    });
    let memory_before = memory();

    let strike: fn(&Server) = match fault {
        Fault::Killed => Server::kill,
        Fault::Stopped => Server::freeze,
    };
    strike(&cluster.nodes[STRUCK]);
    let finding = crowd.beats(KNOWN);
    let knowing = crowd.beats(DURING - KNOWN);
    let grown = memory().zip(memory_before);
    let grown = grown.map(|(now, before)| now.saturating_sub(before));

    mend(&mut cluster, fault);
    let mended = Instant::now();
    let mut after = Vec::new();
    let back = loop {
        let told = crowd.beats(1);
        let is_well = !told.iter().any(|told| told.is_degraded);
        after.extend(told);
        if is_well {
            break mended.elapsed();
        }
        assert!(
            mended.elapsed() < BACK + SCHEDULING,
            "full service is not back"
        );
    };

    let all = || finding.iter().chain(&knowing).chain(&after);
    let of_others = || all().filter(|told| !told.is_of_struck);
    let failed = of_others().filter(|told| told.is_degraded).count();
    assert!(
        failed == 0,
        "{failed} of {} answers about keys of servers that are well were not theirs",
        of_others().count()
    );
    let of_struck = || knowing.iter().filter(|told| told.is_of_struck);
    assert!(of_struck().all(|told| told.is_degraded));
    let slow = of_struck().find(|told| told.took >= DEADLINE / 2);
    assert!(slow.is_none(), "the store knew, and asked: {slow:?}");
    assert!(grown.is_none_or(|grown| grown < GROWTH), "{grown:?} bytes");

    let over = over_admission(before.iter().chain(all()), fault);
    let median = |told: &[KeyResult]| median(told.iter().map(|told| told.took).collect());
    let (usual, during) = (median(&before), [&finding[..], &knowing].concat());
    let longest = during.iter().map(|told| told.took).max().unwrap();
    let what = match fault {
        Fault::Killed => "killed",
        Fault::Stopped => "stopped",
    };
    let each = match requests {
        1 => String::new(),
        more => format!(" with {more} requests each"),
    };
    println!(
        "\n| a primary without a replica {what}, {keys} keys{each} at once, {} MB more memory | {} | {} | {} of {} | \
         {over} of {} | {} |",
        grown.unwrap_or_default().div_ceil(1_000_000),
        millis(median(&during).saturating_sub(usual)),
        millis(longest.saturating_sub(usual)),
        during.len(),
        during.len(),
        lost(fault) + SHARE,
        millis(back),
    );
}

/// Returns the largest excess over the limit of a key. A killed node loses its counts.
fn over_admission<'a>(all: impl Iterator<Item = &'a KeyResult>, fault: Fault) -> u32 {
    let mut admitted: HashMap<(u64, bool), [u32; 2]> = HashMap::new();
    for told in all.filter(|told| told.is_allowed) {
        let key = admitted.entry((told.key, told.is_of_struck)).or_default();
        key[usize::from(told.is_degraded)] += 1;
    }
    let mut over = 0;
    for ((key, is_of_struck), [shared, alone]) in admitted {
        let limit = LIMIT + if is_of_struck { lost(fault) } else { 0 };
        assert!(shared <= limit, "key {key}: {shared} of {limit}");
        assert!(alone <= SHARE, "key {key}: {alone} of {SHARE}");
        over = over.max((shared + alone).saturating_sub(LIMIT));
    }
    over
}

/// Returns the most that a killed node had let pass.
fn lost(fault: Fault) -> u32 {
    match fault {
        Fault::Killed => LIMIT,
        Fault::Stopped => 0,
    }
}

#[test]
fn a_primary_that_dies_leaves_60_keys_at_once_to_the_others() {
    loses_a_primary(60, 1, Fault::Killed);
}

/// With the cluster connection of the crate `redis`, which is no longer used, the servers of the live
/// primaries decided no key from the fourth second on.
#[test]
fn a_primary_that_dies_leaves_300_keys_at_once_to_the_others() {
    loses_a_primary(300, 1, Fault::Killed);
}

#[test]
fn a_primary_that_dies_leaves_1000_keys_at_once_to_the_others() {
    loses_a_primary(1_000, 1, Fault::Killed);
}

/// The test sends as many requests as for a thousand keys, in more calls for each key.
#[test]
fn a_primary_that_dies_leaves_200_keys_with_five_requests_each_to_the_others() {
    loses_a_primary(200, 5, Fault::Killed);
}

#[test]
fn a_primary_that_hangs_leaves_300_keys_at_once_to_the_others() {
    loses_a_primary(300, 1, Fault::Stopped);
}
