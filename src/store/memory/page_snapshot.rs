//! What a decision asks, and what it has seen of a page.

use super::seed::RESERVED;
use super::seqlock::{Lock, Seqlock};
use crate::algorithm::Algorithm;
use crate::clock::Micros;

/// Where a key is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Counted {
    /// By itself.
    #[default]
    Apart,
    /// Overflow with all others for whom there was no room.
    Overflow,
}

/// What a table is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) fingerprint: u64,
    pub(super) cost: u32,
}

/// A key's page as it was seen at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PageSnapshot {
    pub(super) index: usize,
    pub(super) seen: u64,
    /// The time of the latest charge on the page.
    pub(super) latest: Micros,
    pub(super) counted: Counted,
    pub(super) own: Option<Own>,
}

/// The limit of a request, if it is not the limit of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    pub(super) algorithm: Algorithm,
    /// Whether the key has it, whatever the request says.
    pub(super) is_overridden: bool,
}

impl Own {
    /// The limit that a request brings.
    pub(super) fn of_request(algorithm: Algorithm) -> Self {
        Self {
            algorithm,
            is_overridden: false,
        }
    }
}

/// A known key as it was seen at rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'a> {
    pub(super) seqlock: &'a Seqlock,
    pub(super) seen: u64,
    pub(super) index: usize,
    pub(super) is_allowed: bool,
    /// Whether it is in the [wide](Self::widely) table.
    pub(super) is_wide: bool,
}

impl<'a> Known<'a> {
    /// Locks the page of the key, if it has not changed since.
    #[inline]
    pub(super) fn lock(&self) -> Option<Lock<'a>> {
        self.seqlock.lock(self.seen)
    }

    /// Marks the key as one of the wide table, of a policy that has two tables.
    pub(super) fn widely(self) -> Self {
        Self {
            is_wide: true,
            ..self
        }
    }
}

/// Something has changed since it was looked at.
pub(super) struct Changed;

/// There is no place for a key unless room is made for it.
pub(super) struct NoRoom;

impl PageSnapshot {
    #[inline]
    pub(super) fn fingerprint(&self, ask: Ask) -> u64 {
        match self.counted {
            Counted::Apart => ask.fingerprint,
            Counted::Overflow => RESERVED,
        }
    }

    /// Whether the key has a limit of its own. It then has a place even if the table is full.
    pub(super) fn is_overridden(&self) -> bool {
        self.own.is_some_and(|own| own.is_overridden)
    }
}
