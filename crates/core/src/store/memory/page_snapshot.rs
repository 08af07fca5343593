//! The question of a decision, and the page as the decision has read it.

use super::seed::RESERVED;
use super::seqlock::{Lock, Seqlock};
use crate::algorithm::Algorithm;
use crate::clock::Micros;

/// Where a key is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Counted {
    /// In a slot of its own.
    #[default]
    Own,
    /// In the entry that all keys without room share.
    Overflow,
}

impl Counted {
    /// Returns where a charge was made.
    pub(super) fn of(is_overflow: bool) -> Self {
        if is_overflow {
            Self::Overflow
        } else {
            Self::Own
        }
    }
}

/// The fingerprint of a key and a cost, for a table to decide on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) fingerprint: u64,
    pub(super) cost: u32,
}

/// The page of a key as it was read at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PageSnapshot {
    pub(super) index: usize,
    pub(super) seen: u64,
    /// The time of the latest charge on the page.
    pub(super) latest: Micros,
    pub(super) counted: Counted,
    pub(super) own: Option<Own>,
}

/// The limit of a request, if it differs from that of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    pub(super) algorithm: Algorithm,
    /// Whether it is the override of the key, and not a limit that the request brings.
    pub(super) is_overridden: bool,
}

impl Own {
    /// Creates the limit that a request brings.
    pub(super) fn of_request(algorithm: Algorithm) -> Self {
        Self {
            algorithm,
            is_overridden: false,
        }
    }
}

/// A known key, read on a page at rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'a> {
    pub(super) seqlock: &'a Seqlock,
    pub(super) seen: u64,
    pub(super) index: usize,
    pub(super) is_allowed: bool,
    /// Whether it is in a [wide](Self::widely) table, whose states have met any limit.
    pub(super) is_wide: bool,
}

impl<'a> Known<'a> {
    /// Locks the page of the key, if it has not changed since it was read.
    #[inline]
    pub(super) fn lock(&self) -> Option<Lock<'a>> {
        self.seqlock.lock(self.seen)
    }

    /// Marks the key as one of a table for states under any limit.
    pub(super) fn widely(self) -> Self {
        Self {
            is_wide: true,
            ..self
        }
    }
}

/// The page has changed since it was read.
pub(super) struct Changed;

/// The key has no slot unless room is made for it.
pub(super) struct NoRoom;

impl PageSnapshot {
    #[inline]
    pub(super) fn fingerprint(&self, probe: Probe) -> u64 {
        match self.counted {
            Counted::Own => probe.fingerprint,
            Counted::Overflow => RESERVED,
        }
    }

    /// Returns the limit that holds for the key, if it differs from that of the table.
    #[inline]
    pub(super) fn limit(&self) -> Option<&Algorithm> {
        self.own.as_ref().map(|own| &own.algorithm)
    }

    /// Returns whether the key has an override. Then it has a slot even if the table is full.
    pub(super) fn is_overridden(&self) -> bool {
        self.own.is_some_and(|own| own.is_overridden)
    }
}
