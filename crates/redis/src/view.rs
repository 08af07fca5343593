use std::sync::Arc;

use tokio::time::Instant;

use super::node::Node;
use super::ranges::{Address, Range};

/// Which node has which slots, as far as this process knows.
pub(super) struct View {
    /// The first and the last slot of each range and its node, in the order of the slots.
    ranges: Box<[(u16, u16, Arc<Node>)]>,
    pub(super) nodes: Box<[Arc<Node>]>,
    pub(super) made: Instant,
}

impl View {
    /// Creates a view of these ranges. `node` finds a node by its address.
    pub(super) fn new(ranges: &[Range], node: impl Fn(&Address) -> Arc<Node>) -> Self {
        let mut nodes: Vec<Arc<Node>> = Vec::new();
        let mut known = Vec::new();
        let ranges = ranges.iter().map(|(first, last, address)| {
            let place = known.iter().position(|known| *known == address);
            let place = place.unwrap_or_else(|| {
                known.push(address);
                nodes.push(node(address));
                nodes.len() - 1
            });
            (*first, *last, Arc::clone(&nodes[place]))
        });
        let ranges = ranges.collect();
        Self {
            ranges,
            nodes: nodes.into(),
            made: Instant::now(),
        }
    }

    /// Returns the node that has this slot.
    pub(super) fn node(&self, slot: u16) -> Option<&Arc<Node>> {
        let place = self.ranges.partition_point(|(_, last, _)| *last < slot);
        let (first, _, node) = self.ranges.get(place)?;
        (*first <= slot).then_some(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_found_in_its_range_and_only_there() {
        let at = |host: &str| (host.to_owned(), 1);
        let ranges = [(0, 9, at("a")), (20, 30, at("b")), (31, 40, at("a"))];
        let nodes = [at("a"), at("b")].map(|at| (at.clone(), Arc::new(Node::nowhere(&at))));
        let node = |address: &Address| {
            let found = nodes.iter().find(|(known, _)| known == address);
            Arc::clone(&found.unwrap().1)
        };
        let view = View::new(&ranges, node);
        assert_eq!(view.nodes.len(), 2);
        for (slot, host) in [
            (0, Some("a")),
            (9, Some("a")),
            (10, None),
            (19, None),
            (20, Some("b")),
            (30, Some("b")),
            (31, Some("a")),
            (40, Some("a")),
            (41, None),
            (16_383, None),
        ] {
            let found = view.node(slot).map(|node| node.host());
            assert_eq!(found, host, "{slot}");
        }
    }
}
