use smallvec::SmallVec;

use crate::clock::Micros;

/// A question of a node to the server about one key under one policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::store::redis) struct Ask {
    /// The cost of the request that waits for the answer, or 0 if none waits.
    pub(in crate::store::redis) cost: u32,
    /// How many units the node wants beside that.
    pub(in crate::store::redis) units: u32,
    /// How many of these units requests wait for, which spend them at once.
    pub(in crate::store::redis) awaited: u32,
    /// Whether requests may wait for the answer. A pair has one such question on its way at a time.
    pub(in crate::store::redis) leads: bool,
    /// How many units requests have asked this node for since it last reported that.
    pub(in crate::store::redis) seen: u32,
    pub(in crate::store::redis) tells: SmallVec<[Tell; 2]>,
}

/// A report of spent and returned units of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::redis) struct Tell {
    /// The class: its end, by the server's clock.
    pub(in crate::store::redis) end: Micros,
    pub(in crate::store::redis) spent: u32,
    pub(in crate::store::redis) unspent: u32,
}

/// Units that a node may spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::redis) struct Grant {
    /// How many; none if the limit has none for this node.
    pub(in crate::store::redis) units: u32,
    /// The end of their class.
    pub(in crate::store::redis) end: Micros,
    /// How long they last, from the grant on.
    pub(in crate::store::redis) lasts: Micros,
}

impl Ask {
    /// Returns whether it asks or reports nothing.
    pub(in crate::store::redis) fn is_empty(&self) -> bool {
        self.cost == 0 && self.units == 0 && self.tells.is_empty()
    }
}
