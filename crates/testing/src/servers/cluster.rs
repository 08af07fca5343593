//! Operations on a cluster: the owner of a key, failovers, and moving slots.

use redis::Value;

use super::redis::{Cluster, PRIMARIES, SLOTS, Server, ask, text, until};

impl Cluster {
    /// Returns the place of the node that serves this key, if one does.
    pub fn server_of(&self, key: &str) -> Option<usize> {
        self.nodes.iter().position(|node| serves(node, key))
    }

    /// Returns the places of the nodes to which these keys were assigned when the cluster was made.
    pub fn nodes_by_slot(&self, keys: &[String]) -> Vec<usize> {
        let mut connection = self.nodes[0].connection();
        let of_key = |key: &String| {
            let Value::Int(slot) = ask(&mut connection, &["CLUSTER", "KEYSLOT", key]) else {
                panic!("a slot is a number");
            };
            let slot = usize::try_from(slot).expect("a slot is small");
            let last_of = |node: usize| (node + 1) * usize::from(SLOTS) / PRIMARIES;
            (0..PRIMARIES).find(|node| slot < last_of(*node))
        };
        let nodes: Option<Vec<usize>> = keys.iter().map(of_key).collect();
        nodes.expect("each slot was given to a node")
    }

    /// Kills a node, and waits until another has its slots and all others know.
    pub fn fail_over(&self, primary: usize) {
        let id = text(&self.nodes[primary].ask(&["CLUSTER", "MYID"]));
        self.nodes[primary].kill();
        let left = self.nodes.iter().enumerate();
        for (_, node) in left.filter(|(index, _)| *index != primary) {
            until("a replica has the slots", || {
                let nodes = text(&node.ask(&["CLUSTER", "NODES"]));
                let has_slots = |line: &str| line.split(' ').count() > 8;
                let mut lines = nodes.lines().filter(|line| has_slots(line));
                let is_whole = !lines.any(|line| line.starts_with(&id));
                is_whole && text(&node.ask(&["CLUSTER", "INFO"])).contains("cluster_state:ok")
            });
        }
    }

    /// Begins to move the slot of this key to another primary: existing keys stay, and new ones go there.
    pub fn open_slot(&self, key: &str, to: usize) -> Moving<'_> {
        let from = self.server_of(key).expect("somebody serves it");
        let (from, to) = (&self.nodes[from], &self.nodes[to]);
        let Value::Int(slot) = from.ask(&["CLUSTER", "KEYSLOT", key]) else {
            panic!("a slot is a number");
        };
        assert!(slot < i64::from(SLOTS));
        let slot = slot.to_string();
        let id = |node: &Server| text(&node.ask(&["CLUSTER", "MYID"]));
        to.ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]);
        from.ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]);
        Moving {
            cluster: self,
            from,
            to,
            slot,
        }
    }
}

/// Returns whether the node serves this key. The others name the node that does.
fn serves(node: &Server, key: &str) -> bool {
    let asked = node.try_connect().and_then(|mut connection| {
        let answer = redis::cmd("EXISTS").arg(key).query::<u64>(&mut connection);
        answer.map(drop)
    });
    asked.is_ok()
}

/// A slot in the middle of a move.
#[derive(Debug)]
pub struct Moving<'a> {
    cluster: &'a Cluster,
    from: &'a Server,
    to: &'a Server,
    slot: String,
}

impl Moving<'_> {
    /// Moves the keys of the slot, and assigns the slot to the other primary.
    pub fn close(self) {
        let port = self.to.port().to_string();
        loop {
            let keys = self
                .from
                .ask(&["CLUSTER", "GETKEYSINSLOT", &self.slot, "100"]);
            let keys: Vec<String> = redis::from_redis_value(keys).expect("they are texts");
            if keys.is_empty() {
                break;
            }
            let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            words.extend(keys.iter().map(String::as_str));
            self.from.ask(&words);
        }
        let id = text(&self.to.ask(&["CLUSTER", "MYID"]));
        // The new owner is told first: else the slot would have no owner for a moment.
        let nodes = [self.to, self.from].into_iter();
        for node in nodes.chain(self.cluster.nodes.iter().filter(|node| is_primary(node))) {
            node.ask(&["CLUSTER", "SETSLOT", &self.slot, "NODE", &id]);
        }
    }
}

fn is_primary(node: &Server) -> bool {
    text(&node.ask(&["INFO", "replication"])).contains("role:master")
}
