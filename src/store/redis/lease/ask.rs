use smallvec::SmallVec;

use crate::clock::Micros;

/// What a node asks the server about one key under one policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ask {
    /// The cost of the request that waits for the answer; 0 if none does.
    pub(super) cost: u32,
    /// How many units the node would hold beside that.
    pub(super) units: u32,
    /// How many units requests have asked this node for since it told so the last time.
    pub(super) seen: u32,
    pub(super) tells: SmallVec<[Tell; 2]>,
}

/// What has become of units of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tell {
    /// The class: its end, by the server's clock.
    pub(super) end: Micros,
    pub(super) spent: u32,
    pub(super) unspent: u32,
}

/// Units that a node may spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) units: u32,
    /// Their class.
    pub(super) end: Micros,
    /// How long they last, from the grant on.
    pub(super) lasts: Micros,
}

impl Ask {
    /// Whether it says anything.
    pub(super) fn is_empty(&self) -> bool {
        self.cost == 0 && self.units == 0 && self.tells.is_empty()
    }
}
