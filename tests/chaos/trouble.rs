//! What befalls the servers and the nodes: drawn from one seed, whether it can be done at that moment or not, so
//! that the same seed draws the same.

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

/// Between one blow and the next.
const PAUSE: [u64; 2] = [50, 900];
/// How long a server is gone, or stopped: its replica takes over after a second or two, or has no time to.
const SERVER_AWAY: [u64; 2] = [20, 4_000];
const NODE_AWAY: [u64; 2] = [50, 1_500];

/// How often it is looked at how the shards are.
const LOOKS: Duration = Duration::from_millis(250);
/// So long that a cluster which is not whole by then never will be.
const PATIENCE: Duration = Duration::from_secs(30);

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

/// All of them.
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

/// How many keys a node is asked about at once, while servers are away or not.
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
    /// For a cluster and nodes that are well.
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

    /// Strikes here and there for so long.
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

    /// Kills a primary, if the shards have got over everything else, so that there is something to get over.
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
                // While most primaries are away no new one is elected; the replica says so, or nothing.
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

    /// One of a shard's two servers at a time, and neither before they are a pair again. A replica that has not all
    /// its primary had yet does not stand for election, and one that has is the only one that can: if both were
    /// struck one after the other, the slots could be unserved, or the lost count of one be taken for that of the
    /// other.
    fn strike_a_shard(&mut self, blow: Blow, shard: usize, away: Duration) -> bool {
        // Who is the primary may have changed since the last look.
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

    /// Whether this server was there to be told.
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

    /// Mends what is broken, and waits until the cluster calls itself whole: when the last thing was mended, and
    /// since when it was whole.
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
