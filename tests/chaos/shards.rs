//! The state of the cluster meanwhile: which server has which slots, and how often their counts were lost.

use std::time::{Duration, Instant};

use redis::Client;

use crate::support::redis::{Cluster, SLOTS, Server};

pub(crate) const SHARDS: usize = 3;

/// A server that does not report its state within this time is not well.
const SOON: Duration = Duration::from_millis(200);

/// The number of times that a shard has lost counts, at some moment between these.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss {
    from: Instant,
    to: Instant,
    times: u32,
}

/// A third of the slots: a primary and its replica, in either order.
#[derive(Debug)]
struct Shard {
    servers: [usize; 2],
    primary: usize,
    /// Grows with each failover.
    epoch: u64,
    failovers: u32,
    last_whole: Instant,
    trouble: Option<Trouble>,
    /// The last look.
    is_well: bool,
    misses_none: bool,
    losses: Vec<Loss>,
}

#[derive(Clone, Copy, Debug)]
struct Trouble {
    since: Instant,
    /// With all of its counts, unless its replica takes over.
    is_primary_killed: bool,
}

#[derive(Debug)]
pub(crate) struct Shards([Shard; SHARDS]);

impl Shards {
    /// Creates the shards of a healthy cluster, in which the first servers are the primaries.
    pub(crate) fn new() -> Self {
        Self([0, 1, 2].map(|shard| Shard {
            servers: [shard, shard + SHARDS],
            primary: shard,
            epoch: 0,
            failovers: 0,
            last_whole: Instant::now(),
            trouble: None,
            is_well: false,
            misses_none: false,
            losses: Vec::new(),
        }))
    }

    pub(crate) fn primary(&self, shard: usize) -> usize {
        self.0[shard].primary
    }

    pub(crate) fn replica(&self, shard: usize) -> usize {
        let Shard {
            servers, primary, ..
        } = self.0[shard];
        servers[usize::from(servers[0] == primary)]
    }

    /// Returns whether the shard is whole, because nothing has happened to it or it has recovered.
    pub(crate) fn is_whole(&self, shard: usize) -> bool {
        let Shard {
            trouble, is_well, ..
        } = &self.0[shard];
        *is_well && trouble.is_none()
    }

    /// Returns whether all shards are whole, and no node misses a primary, so that no failover is under way.
    pub(crate) fn are_calm(&self) -> bool {
        (0..SHARDS).all(|shard| self.is_whole(shard) && self.0[shard].misses_none)
    }

    /// Notes a fault that is about to hit this shard.
    pub(crate) fn strike(&mut self, shard: usize, is_primary_killed: bool) {
        self.0[shard].trouble = Some(Trouble {
            since: Instant::now(),
            is_primary_killed,
        });
    }

    /// Reads the state of the shards. Servers that are away need not be asked.
    pub(crate) fn look(&mut self, cluster: &Cluster, is_away: impl Fn(usize) -> bool) {
        for shard in &mut self.0 {
            let told = shard.servers.map(|server| {
                let there = (!is_away(server)).then(|| &cluster.nodes[server]);
                there.and_then(ServerInfo::by)
            });
            shard.update(&told);
        }
    }

    /// Returns how often this slot has lost counts between these moments.
    pub(crate) fn losses(&self, slot: u16, from: Instant, to: Instant) -> u32 {
        let last_of = |shard: usize| (shard + 1) * usize::from(SLOTS) / SHARDS;
        let shard = (0..SHARDS).find(|shard| usize::from(slot) < last_of(*shard));
        let losses = &self.0[shard.expect("there is no such slot")].losses;
        let meanwhile = losses
            .iter()
            .filter(|loss| loss.from <= to && from <= loss.to);
        meanwhile.map(|loss| loss.times).sum()
    }

    pub(crate) fn all_losses(&self) -> u32 {
        let losses = self.0.iter().flat_map(|shard| &shard.losses);
        losses.map(|loss| loss.times).sum()
    }
}

impl Shard {
    fn update(&mut self, told: &[Option<ServerInfo>; 2]) {
        for told in told.iter().flatten().filter(|told| told.is_primary) {
            if told.epoch > self.epoch {
                // It has one from the start.
                self.failovers += u32::from(self.epoch > 0);
                self.epoch = told.epoch;
            }
        }
        self.is_well = false;
        let [Some(first), Some(second)] = told else {
            return;
        };
        let is_pair = first.is_primary != second.is_primary;
        if !is_pair || !first.is_well || !second.is_well {
            return;
        }
        let now = Instant::now();
        let trouble = self.trouble.take();
        // A primary whose replica has taken over comes back as a replica, with the counts of the new primary.
        let killed = trouble.is_some_and(|trouble| trouble.is_primary_killed);
        let times = self.failovers.max(u32::from(killed));
        if times > 0 {
            let struck = trouble.map_or(now, |trouble| trouble.since);
            self.losses.push(Loss {
                from: struck.min(self.last_whole),
                to: now,
                times,
            });
        }
        self.failovers = 0;
        self.primary = self.servers[usize::from(second.is_primary)];
        self.last_whole = now;
        self.is_well = true;
        self.misses_none = first.misses_none && second.misses_none;
    }
}

/// The state that a server reports.
#[derive(Clone, Copy, Debug)]
struct ServerInfo {
    is_primary: bool,
    is_well: bool,
    misses_none: bool,
    epoch: u64,
}

impl ServerInfo {
    fn by(server: &Server) -> Option<Self> {
        let replication = say(server, &["INFO", "replication"])?;
        let cluster = say(server, &["CLUSTER", "INFO"])?;
        let is_primary = replication.contains("role:master");
        let epoch = cluster.lines().find_map(|line| {
            let epoch = line.strip_prefix("cluster_my_epoch:")?;
            epoch.trim().parse().ok()
        });
        Some(Self {
            is_primary,
            is_well: cluster.contains("cluster_state:ok")
                && (is_primary || replication.contains("master_link_status:up")),
            misses_none: cluster.contains(&format!("cluster_slots_ok:{SLOTS}")),
            epoch: epoch?,
        })
    }
}

/// Returns the answer to a command, if the server answers soon.
pub(crate) fn say(server: &Server, words: &[&str]) -> Option<String> {
    let client = Client::open(server.url()).ok()?;
    let mut connection = client.get_connection_with_timeout(SOON).ok()?;
    connection.set_read_timeout(Some(SOON)).ok()?;
    let (name, arguments) = words.split_first()?;
    redis::cmd(name).arg(arguments).query(&mut connection).ok()
}

/// Returns the slot of a key.
pub(crate) fn slot_of(cluster: &Cluster, key: &str) -> u16 {
    // One answer or the other may not come soon.
    let mut told = (0..100).filter_map(|_| say(&cluster.nodes[0], &["CLUSTER", "KEYSLOT", key]));
    told.find_map(|slot| slot.parse().ok())
        .expect("a server that is there says it")
}
