//! Where tables write what they are asked for.

use crate::clock::Micros;
use crate::decision::{Outcome, Outcomes};
use crate::store::Wanted;

/// Where to write the outcome of a policy, if it is wanted. An outcome is large, so it is written in place.
#[derive(Debug)]
pub(super) struct OutcomeSink<'a> {
    pub(super) wanted: Wanted,
    pub(super) policy: usize,
    pub(super) outcomes: &'a mut Outcomes,
}

impl OutcomeSink<'_> {
    pub(super) fn put_down(&mut self, outcome: Outcome, now: Micros) {
        self.outcomes.decided_at(now);
        self.outcomes.push(self.policy, outcome);
    }
}

/// How full a table is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fill {
    pub(super) keys: usize,
    pub(super) bound: usize,
    pub(super) bytes: usize,
    pub(super) evicted: u64,
    pub(super) overflowed: u64,
}

impl Fill {
    /// Adds the numbers of a table that shares the bound.
    pub(super) fn with(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            evicted: self.evicted + other.evicted,
            overflowed: self.overflowed + other.overflowed,
            ..self
        }
    }
}

/// How often room is made for a newcomer, since another thread may take the room first.
pub(super) const ATTEMPTS: usize = 4;
