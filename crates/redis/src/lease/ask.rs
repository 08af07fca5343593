use smallvec::SmallVec;

use tower_ratelimit_core::clock::Micros;

/// A question of a node to the server about one key under one policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnitsRequest {
    /// The cost of the request that waits for the answer, or 0 if none waits.
    pub(crate) cost: u32,
    /// How many units the node wants beside that.
    pub(crate) units: u32,
    /// How many of these units requests wait for, which spend them at once.
    pub(crate) awaited: u32,
    /// Whether requests may wait for the answer. A pair has one such question on its way at a time.
    pub(crate) leads: bool,
    /// How many units requests have asked this node for since it last reported that.
    pub(crate) seen: u32,
    pub(crate) tells: SmallVec<[UnitsReport; 2]>,
}

/// A report of spent and returned units of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitsReport {
    /// The class: its end, by the server's clock.
    pub(crate) end: Micros,
    pub(crate) spent: u32,
    pub(crate) unspent: u32,
}

/// Units that a node may spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// How many; none if the limit has none for this node.
    pub(crate) units: u32,
    /// The end of their class.
    pub(crate) end: Micros,
    /// How long they last, from the grant on.
    pub(crate) lasts: Micros,
}

impl UnitsRequest {
    /// Returns whether it asks or reports nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.cost == 0 && self.units == 0 && self.tells.is_empty()
    }
}
