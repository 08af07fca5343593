//! The keys that the nodes hold.

use super::scene::Map;
use crate::lease::Pair;

/// A key at a node.
#[derive(Debug, Default)]
pub(super) struct AtNode {
    pub(super) node: usize,
    pub(super) key: u64,
    pub(super) pair: Pair,
    /// The requests that wait for the answer to another one.
    pub(super) waiting: Vec<Waiting>,
    /// Whether a look at it is scheduled.
    pub(super) is_looked_at: bool,
}

/// A request that waits for the answer to another one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) cost: u32,
    pub(super) since: u64,
    /// When it gives up.
    pub(super) until: u64,
    pub(super) has_waited: bool,
}

/// All pairs, each with an index that it keeps.
#[derive(Debug)]
pub(super) struct Pairs {
    all: Vec<AtNode>,
    /// The index of each pair; `None` if there is only one key, so that the index is the node.
    places: Option<Map<(usize, u64), usize>>,
}

impl Pairs {
    pub(super) fn new(nodes: usize, has_one_key: bool) -> Self {
        let of_node = |node| AtNode {
            node,
            ..AtNode::default()
        };
        Self {
            all: (0..nodes)
                .map(of_node)
                .take_while(|_| has_one_key)
                .collect(),
            places: (!has_one_key).then(Map::default),
        }
    }

    pub(super) fn place(&mut self, node: usize, key: u64) -> usize {
        let Some(places) = &mut self.places else {
            return node;
        };
        *places.entry((node, key)).or_insert_with(|| {
            self.all.push(AtNode {
                node,
                key,
                ..AtNode::default()
            });
            self.all.len() - 1
        })
    }

    pub(super) fn at(&mut self, place: usize) -> &mut AtNode {
        &mut self.all[place]
    }

    /// Makes a node forget everything.
    pub(super) fn forget(&mut self, node: usize) {
        for pair in self.all.iter_mut().filter(|pair| pair.node == node) {
            pair.pair = Pair::default();
            pair.waiting.clear();
        }
    }
}
