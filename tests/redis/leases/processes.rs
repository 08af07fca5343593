//! Leasing nodes in processes of their own, over real servers, which are killed, suspended, emptied and
//! replaced.
//!
//! Every unit is accounted for: the units of admitted requests, the units left to a limiter that does not
//! lease, and the units that dead nodes hold at the server are the limit, neither more nor less.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use tower_ratelimit::{Algorithm, Policy, RedisStore};

use crate::scene::{PATIENCE, ask, cluster_store, every, limiter, patient, store, until};
use crate::support::process::Process;
use crate::support::redis::{Cluster, Server};
use crate::support::sentinel::{NAME, Watched};

/// The limit of each key, under each algorithm.
const LIMIT: u32 = 1_000;
/// The period, so long that no window ends in a test and no bucket drains by two units.
const PERIOD: Duration = Duration::from_secs(30 * 86_400);
/// The number of keys that a node uses.
const KEYS: u32 = 4;
const NODES: usize = 10;
/// The longest life of a unit: a unit that ends on its way back is in no account.
const LONGEST: Duration = Duration::from_secs(60);

/// A report of a node.
enum Said {
    /// A request for this key was admitted.
    Passed(u32),
    /// The command is done.
    Done(usize, Option<u64>),
    /// The process has ended.
    Gone,
}

struct Node {
    number: usize,
    process: Process,
}

/// The nodes, and all their reports.
struct Nodes {
    each: Vec<Node>,
    says: Receiver<Said>,
    passed: BTreeMap<u32, u32>,
    /// The nodes that have not done what they were told last.
    working: BTreeSet<usize>,
}

impl Node {
    fn start(number: usize, arguments: &[String], says: &Sender<Said>) -> Self {
        let says = says.clone();
        let hears = move |line: Option<String>| {
            let said = match line.as_deref().map(|line| line.split_at(1)) {
                Some(("+", key)) => Said::Passed(key.parse().unwrap()),
                Some((_, told)) => Said::Done(number, told.trim().parse().ok()),
                None => Said::Gone,
            };
            let _ = says.send(said);
        };
        Self {
            number,
            process: Process::start(env!("CARGO_BIN_EXE_lease_node"), arguments, hears),
        }
    }

    fn order(&mut self, verb: &str, algorithm: &Algorithm) {
        self.process.order(format_args!("{verb} {algorithm}"));
    }
}

impl Nodes {
    fn start(count: usize, kind: &str, life: Duration, urls: Vec<String>) -> Self {
        let mut arguments = vec![kind.to_owned(), life.as_millis().to_string()];
        arguments.extend(urls);
        let (told, says) = channel();
        let each = (0..count).map(|number| Node::start(number, &arguments, &told));
        Self {
            each: each.collect(),
            says,
            passed: BTreeMap::new(),
            working: BTreeSet::new(),
        }
    }

    fn passed(&self) -> u32 {
        self.passed.values().sum()
    }

    fn hear(&mut self) -> Option<(usize, Option<u64>)> {
        match self
            .says
            .recv_timeout(PATIENCE)
            .expect("a node says something")
        {
            Said::Passed(key) => *self.passed.entry(key).or_default() += 1,
            Said::Done(node, told) => {
                self.working.remove(&node);
                return Some((node, told));
            }
            Said::Gone => {}
        }
        None
    }

    /// Waits until this many more requests were admitted. A node is done before that if all units are held by nodes
    /// that the machine does not run.
    fn hear_of(&mut self, requests: u32) {
        let enough = self.passed() + requests;
        while self.passed() < enough {
            assert!(!self.working.is_empty(), "the limit is not used up yet");
            self.hear();
        }
    }

    /// Kills the last of the nodes.
    fn kill_one(&mut self) {
        let mut node = self.each.pop().unwrap();
        node.process.kill();
        self.working.remove(&node.number);
    }

    /// Waits until all nodes are done, and returns the sum of their numbers.
    fn until_done(&mut self) -> u64 {
        let mut sum = 0;
        while !self.working.is_empty() {
            if let Some((_, told)) = self.hear() {
                sum += told.unwrap_or(0);
            }
        }
        sum
    }

    fn order(&mut self, verb: &str, algorithm: &Algorithm) {
        for node in &mut self.each {
            node.order(verb, algorithm);
            self.working.insert(node.number);
        }
    }

    /// Sends a command to all nodes, and returns the sum of their numbers.
    fn all(&mut self, verb: &str, algorithm: &Algorithm) -> u64 {
        self.order(verb, algorithm);
        self.until_done()
    }

    /// Sends a command to one node.
    fn one(&mut self, node: usize, verb: &str, algorithm: &Algorithm) -> u64 {
        self.each[node].order(verb, algorithm);
        loop {
            if let Some((_, told)) = self.hear() {
                return told.unwrap_or(0);
            }
        }
    }
}

/// Returns the algorithms whose units are leased.
fn leased() -> Vec<Algorithm> {
    let all = every(LIMIT, PERIOD);
    let leased = all.iter().filter(|policy| policy.name() != "leaky-queue");
    leased.map(|policy| *policy.algorithm()).collect()
}

fn algorithms(names: &[&str]) -> Vec<Algorithm> {
    let mut all = leased();
    all.retain(|algorithm| names.contains(&algorithm.name()));
    assert_eq!(all.len(), names.len());
    all
}

/// Returns the units of all keys that are left to a limiter that does not lease.
async fn left(store: &RedisStore, algorithm: Algorithm) -> u32 {
    let limiter = limiter(store, [Policy::new("a", algorithm)]);
    let mut left = 0;
    for key in 0..KEYS {
        while limiter.check(key, 1).await.unwrap().is_allowed() {
            left += 1;
        }
    }
    left
}

/// Returns the units of all keys that nodes hold, according to the server.
fn held(server: &Server, store: &RedisStore, algorithm: Algorithm) -> u32 {
    let policy: Policy = Policy::new("a", algorithm);
    let held = (0..KEYS).map(|key| {
        let key = store.store_key(&policy, key);
        let text: String = match algorithm {
            Algorithm::SlidingLog(_) => ask(server, &["LINDEX", &key, "0"]),
            _ => ask(server, &["GET", &key]),
        };
        let Some((_, mark)) = text.split_once('~') else {
            return 0;
        };
        let words = mark.split(';').next().unwrap().split(' ').skip(5);
        let words: Vec<u64> = words.map(|word| word.parse().unwrap()).collect();
        let units = words.chunks(2).map(|class| class[1]);
        u32::try_from(units.sum::<u64>()).unwrap()
    });
    held.sum()
}

/// Ten processes use up all keys under each algorithm.
async fn is_exact(mut nodes: Nodes, store: &RedisStore) {
    println!("algorithm               by leases   lapsed     left");
    for algorithm in leased() {
        nodes.passed.clear();
        nodes.all("drain", &algorithm);
        let lapsed = u32::try_from(nodes.all("back", &algorithm)).unwrap();
        let left = left(store, algorithm).await;
        let (passed, all) = (nodes.passed(), KEYS * LIMIT);
        println!(
            "{:<22} {passed:>10} {lapsed:>8} {left:>8}",
            algorithm.name()
        );
        let each = nodes.passed.values().all(|passed| *passed <= LIMIT);
        assert!(each, "{algorithm}: {:?}", nodes.passed);
        // A bucket drains at most one unit of each key in the meantime.
        let sum = passed + lapsed + left;
        assert!((all..=all + KEYS).contains(&sum), "{algorithm}: {sum}");
        assert!(passed + lapsed > all / 2, "{algorithm}: {passed}");
    }
}

#[tokio::test]
async fn ten_processes_admit_exactly_the_limit_under_each_algorithm() {
    let server = Server::start(&[]);
    let nodes = Nodes::start(NODES, "server", LONGEST, vec![server.url()]);
    is_exact(nodes, &store(&server)).await;
}

#[tokio::test]
async fn ten_processes_over_a_cluster_admit_exactly_the_limit_under_each_algorithm() {
    let cluster = Cluster::start();
    let nodes = Nodes::start(NODES, "cluster", LONGEST, cluster.urls());
    is_exact(nodes, &cluster_store(&cluster)).await;
}

const KILLED: u32 = 3;
/// The number of concurrent requests of a node.
const TOGETHER: u32 = 4;

/// The units that a dead node held are lost until the end of their life, and no others are.
#[tokio::test]
async fn killed_nodes_lose_their_leases_and_no_more() {
    let server = Server::start(&[]);
    let store = store(&server);
    println!("algorithm               by leases     lost     left");
    for algorithm in algorithms(&["fixed-window", "sliding-log", "gcra"]) {
        let mut nodes = Nodes::start(NODES, "server", LONGEST, vec![server.url()]);
        nodes.order("drain", &algorithm);
        for _ in 0..KILLED {
            nodes.hear_of(KEYS * LIMIT / 6);
            nodes.kill_one();
        }
        nodes.until_done();
        let lapsed = u32::try_from(nodes.all("back", &algorithm)).unwrap();
        let lost = held(&server, &store, algorithm);
        let left = left(&store, algorithm).await;
        let (passed, all) = (nodes.passed(), KEYS * LIMIT);
        println!("{:<22} {passed:>10} {lost:>8} {left:>8}", algorithm.name());
        assert!(passed + left <= all + KEYS, "{algorithm}");
        // A dead node had spent some of its units without a report. The answers to its last requests are
        // lost.
        assert!(
            passed + left + lapsed + lost + KILLED * TOGETHER >= all,
            "{algorithm}"
        );
    }
}

#[tokio::test]
async fn a_node_that_was_suspended_for_longer_than_a_life_asks_again() {
    let server = Server::start(&[]);
    for algorithm in algorithms(&["fixed-window", "sliding-log", "gcra"]) {
        let life = Duration::from_millis(500);
        let mut nodes = Nodes::start(1, "server", life, vec![server.url()]);
        // Units end before it tells their number if the machine stands still.
        while nodes.one(0, "hold", &algorithm) == 0 {}
        nodes.each[0].process.signal("STOP");
        let now = || -> u64 {
            let time: Vec<String> = ask(&server, &["TIME"]);
            time[0].parse::<u64>().unwrap() * 1_000 + time[1].parse::<u64>().unwrap() / 1_000
        };
        let ended = now() + 500;
        until("the units have ended", || now() > ended).await;
        nodes.each[0].process.signal("CONT");
        assert_eq!(nodes.one(0, "held", &algorithm), 0, "{algorithm}");
        assert!(nodes.one(0, "ask", &algorithm) > 0, "{algorithm}");
    }
}

/// Leased units are part of what the server admitted before it lost its data: the limit, and then the limit
/// once more.
#[tokio::test]
async fn a_server_that_comes_back_empty_admits_the_limit_once_more() {
    let mut server = Server::start(&[]);
    for algorithm in algorithms(&["fixed-window", "sliding-log", "gcra"]) {
        let mut nodes = Nodes::start(3, "server", LONGEST, vec![server.url()]);
        nodes.order("drain", &algorithm);
        nodes.hear_of(KEYS * LIMIT / 2);
        server.restart();
        let before = nodes.passed();
        nodes.until_done();
        nodes.all("back", &algorithm);
        let left = left(&store(&server), algorithm).await;
        let (passed, all) = (nodes.passed() + left, KEYS * LIMIT);
        println!("{algorithm}: {before} before, {passed} in all");
        assert!(passed <= 2 * all + KEYS, "{algorithm}: {passed}");
        assert!(passed - before > all / 2, "{algorithm}: {passed}");
    }
}

/// The mark of held units is replicated with the state.
#[tokio::test]
async fn a_replica_that_takes_over_knows_what_nodes_hold() {
    let scene = Watched::by_one();
    let algorithms = algorithms(&["fixed-window", "sliding-log", "gcra"]);
    let mut nodes = Nodes::start(3, "sentinel", LONGEST, scene.urls());
    for algorithm in &algorithms {
        assert!(nodes.all("hold", algorithm) > 0);
    }
    let of_each = nodes.passed();
    scene.until_replicated();
    // The old master decides for the nodes that are connected to it until it follows, and forgets that then.
    scene.fail_over();
    let mut lapsed = 0;
    for algorithm in &algorithms {
        nodes.all("drain", algorithm);
        lapsed += u32::try_from(nodes.all("back", algorithm)).unwrap();
    }
    let urls = scene.urls();
    let store = patient().open_sentinel(NAME, urls.iter().map(String::as_str));
    let store = store.unwrap();
    let mut left_over = 0;
    for algorithm in &algorithms {
        left_over += left(&store, *algorithm).await;
    }
    let all = KEYS * LIMIT * 3;
    let sum = nodes.passed() + lapsed + left_over;
    println!("{of_each} before, {sum} of {all} in all");
    assert!((all..=all + KEYS).contains(&sum), "{sum}");
}
