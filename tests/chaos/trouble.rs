//! The faults of servers and nodes. They are drawn from one seed, whether or not a fault is possible at that moment,
//! so that the same seed draws the same faults.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::RngExt;
use proptest::test_runner::{RngAlgorithm, TestRng};

use crate::nodes::{NODES, Nodes};
use crate::shards::{SHARDS, Shards, say};
use crate::support::redis::Cluster;

/// The pause between two faults.
const PAUSE: [u64; 2] = [50, 900];
/// The time for which a server is dead or stopped: sometimes its replica takes over, after a second or two, and
/// sometimes it has no time to.
const SERVER_AWAY: [u64; 2] = [20, 4_000];
const NODE_AWAY: [u64; 2] = [50, 1_500];

/// The interval between two looks at the shards.
const LOOKS: Duration = Duration::from_millis(250);
/// A cluster that is not whole by then never will be.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Blow {
    KillPrimary,
    KillReplica,
    StopPrimary,
    StopReplica,
    FailOver,
    DropConnections,
    FlushScripts,
    KillNode,
    StopNode,
    Crowd,
}

/// All of the above.
pub(crate) const BLOWS: [Blow; 10] = [
    Blow::KillPrimary,
    Blow::KillReplica,
    Blow::StopPrimary,
    Blow::StopReplica,
    Blow::FailOver,
    Blow::DropConnections,
    Blow::FlushScripts,
    Blow::KillNode,
    Blow::StopNode,
    Blow::Crowd,
];

/// The number of keys that a node is asked about at once, while servers may be away.
const CROWDS: [u32; 3] = [60, 300, 1_000];

impl fmt::Display for Blow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KillPrimary => "primaries killed",
            Self::KillReplica => "replicas killed",
            Self::StopPrimary => "primaries stopped",
            Self::StopReplica => "replicas stopped",
            Self::FailOver => "failovers asked for",
            Self::DropConnections => "servers' connections dropped",
            Self::FlushScripts => "servers' scripts flushed",
            Self::KillNode => "nodes killed",
            Self::StopNode => "nodes stopped",
            Self::Crowd => "crowds of keys",
        })
    }
}

#[derive(Clone, Copy, Debug)]
enum Mend {
    StartServer(usize),
    ThawServer(usize),
    StartNode(usize),
    ThawNode(usize),
}

pub(crate) struct Trouble {
    random: TestRng,
    pub(crate) cluster: Cluster,
    pub(crate) shards: Shards,
    nodes: Arc<Nodes>,
    servers_away: BTreeSet<usize>,
    pub(crate) most_away: usize,
    mends: Vec<(Instant, Mend)>,
    looked: Instant,
    pub(crate) done: BTreeMap<Blow, u32>,
}

impl Trouble {
    /// Creates the faults for a cluster and nodes that are well.
    pub(crate) fn new(seed: u64, cluster: Cluster, nodes: &Arc<Nodes>) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let mut trouble = Self {
            random: TestRng::from_seed(RngAlgorithm::ChaCha, &bytes),
            cluster,
            shards: Shards::new(),
            nodes: Arc::clone(nodes),
            servers_away: BTreeSet::new(),
            most_away: 0,
            mends: Vec::new(),
            looked: Instant::now(),
            done: BTreeMap::new(),
        };
        trouble.look();
        trouble
    }

    /// Causes faults for this time.
    pub(crate) fn lasts(&mut self, length: Duration) {
        let end = Instant::now() + length;
        let mut next = Instant::now();
        while Instant::now() < end {
            if Instant::now() >= next {
                let blow = BLOWS[self.random.random_range(0..BLOWS.len())];
                let whom = self.random.random_range(0..usize::MAX);
                let server = self.length(SERVER_AWAY);
                let node = self.length(NODE_AWAY);
                next = Instant::now() + self.length(PAUSE);
                self.strike(blow, whom, server, node);
            }
            self.mend_what_is_due();
            if self.looked.elapsed() >= LOOKS {
                self.look();
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.strikes_last();
    }

    /// Kills a primary, if the shards have recovered from everything else, so that at least one failover happens.
    fn strikes_last(&mut self) {
        let first = self.random.random_range(0..SHARDS);
        let away = self.length(SERVER_AWAY);
        let mut shards = (first..first + SHARDS).map(|shard| shard % SHARDS);
        if shards.any(|shard| self.strike(Blow::KillPrimary, shard, away, away)) {
            thread::sleep(away);
        }
    }

    fn length(&mut self, [least, most]: [u64; 2]) -> Duration {
        Duration::from_millis(self.random.random_range(least..most))
    }

    fn strike(
        &mut self,
        blow: Blow,
        whom: usize,
        server_away: Duration,
        node_away: Duration,
    ) -> bool {
        let is_done = match blow {
            Blow::KillPrimary | Blow::KillReplica | Blow::StopPrimary | Blow::StopReplica => {
                self.strike_a_shard(blow, whom % SHARDS, server_away)
            }
            Blow::FailOver => {
                let shard = whom % SHARDS;
                let replica = self.shards.replica(shard);
                // While most primaries are away, no new one is elected: the replica reports that, or nothing.
                self.shards.is_whole(shard) && self.tell(replica, &["CLUSTER", "FAILOVER"])
            }
            Blow::DropConnections => {
                let server = whom % self.cluster.nodes.len();
                self.tell(server, &["CLIENT", "KILL", "TYPE", "normal"])
            }
            Blow::FlushScripts => self.tell(whom % self.cluster.nodes.len(), &["SCRIPT", "FLUSH"]),
            Blow::KillNode | Blow::StopNode => self.strike_a_node(blow, whom % NODES, node_away),
            Blow::Crowd => {
                let keys = CROWDS[whom / NODES % CROWDS.len()];
                self.nodes.crowd(whom % NODES, keys)
            }
        };
        if is_done {
            *self.done.entry(blow).or_default() += 1;
        }
        is_done
    }

    /// Hits one of a shard's two servers at a time, and no other before both are a pair again. A replica without all
    /// the data of its primary does not stand for election, and a replica with it is the only candidate. If both were
    /// hit one after the other, the slots could remain without a server, or the test could count the loss for the
    /// wrong server.
    fn strike_a_shard(&mut self, blow: Blow, shard: usize, away: Duration) -> bool {
        // Another server may be the primary since the last look.
        self.look();
        if !self.shards.is_whole(shard) {
            return false;
        }
        let is_primary = matches!(blow, Blow::KillPrimary | Blow::StopPrimary);
        let is_killed = matches!(blow, Blow::KillPrimary | Blow::KillReplica);
        let server = if is_primary {
            self.shards.primary(shard)
        } else {
            self.shards.replica(shard)
        };
        self.shards.strike(shard, is_primary && is_killed);
        self.servers_away.insert(server);
        self.most_away = self.most_away.max(self.servers_away.len());
        let mend = if is_killed {
            self.cluster.nodes[server].kill();
            Mend::StartServer(server)
        } else {
            self.cluster.nodes[server].freeze();
            Mend::ThawServer(server)
        };
        self.mends.push((Instant::now() + away, mend));
        true
    }

    fn strike_a_node(&mut self, blow: Blow, node: usize, away: Duration) -> bool {
        if self.nodes.is_away(node) {
            return false;
        }
        let mend = if blow == Blow::KillNode {
            self.nodes.kill(node);
            Mend::StartNode(node)
        } else {
            self.nodes.stop(node);
            Mend::ThawNode(node)
        };
        self.mends.push((Instant::now() + away, mend));
        true
    }

    /// Returns whether the server was there to be told.
    fn tell(&self, server: usize, words: &[&str]) -> bool {
        !self.servers_away.contains(&server) && say(&self.cluster.nodes[server], words).is_some()
    }

    fn all_say(&self, words: &[&str]) -> String {
        let servers = self.cluster.nodes.iter();
        let said = servers.map(|server| say(server, words).unwrap_or_default() + "\n");
        said.collect()
    }

    fn look(&mut self) {
        self.shards
            .look(&self.cluster, |server| self.servers_away.contains(&server));
        self.looked = Instant::now();
    }

    fn mend_what_is_due(&mut self) {
        let now = Instant::now();
        for (_, mend) in self
            .mends
            .extract_if(.., |(due, _)| *due <= now)
            .collect::<Vec<_>>()
        {
            self.mend(mend);
        }
    }

    fn mend(&mut self, mend: Mend) {
        match mend {
            Mend::StartServer(server) => {
                self.cluster.nodes[server].restart();
                self.servers_away.remove(&server);
            }
            Mend::ThawServer(server) => {
                self.cluster.nodes[server].thaw();
                self.servers_away.remove(&server);
            }
            Mend::StartNode(node) => self.nodes.start_again(node),
            Mend::ThawNode(node) => self.nodes.go_on(node),
        }
    }

    /// Repairs all faults, and waits until the cluster calls itself whole. Returns when the last fault was repaired,
    /// and since when the cluster was whole.
    pub(crate) fn mends_all(&mut self) -> (Instant, Instant) {
        for (_, mend) in std::mem::take(&mut self.mends) {
            self.mend(mend);
        }
        let mended = Instant::now();
        loop {
            self.look();
            if self.shards.are_calm() {
                return (mended, Instant::now());
            }
            assert!(
                mended.elapsed() < PATIENCE,
                "the cluster never becomes whole; its servers say:\n{}",
                self.all_say(&["CLUSTER", "NODES"]) + &self.all_say(&["INFO", "replication"])
            );
            thread::sleep(Duration::from_millis(10));
        }
    }
}
