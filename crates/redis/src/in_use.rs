//! The slots that requests of this node have in use.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tower_ratelimit_core::clock::Micros;
use tower_ratelimit_core::decision::Outcomes;
use tower_ratelimit_core::store::{Charge, Slot};

/// The slots of this node.
pub(super) struct SlotsInUse {
    life: Duration,
    holdings: Mutex<Holdings>,
}

#[derive(Default)]
struct Holdings {
    by_slot: HashMap<Slot, SlotInUse>,
    /// How many were taken so far.
    taken: u64,
    is_renewed: bool,
}

/// The charges of a request that holds slots.
#[derive(Clone, Copy)]
pub(super) struct SlotInUse {
    pub(super) charge: Charge,
    /// Its place in the order in which this node has taken slots.
    number: u64,
    /// Whether the slots were taken in this process because the server was away.
    pub(super) is_here: bool,
}

impl SlotsInUse {
    pub(super) fn new(life: Duration) -> Self {
        Self {
            life,
            holdings: Mutex::default(),
        }
    }

    /// Returns how long a slot lasts without a renewal.
    pub(super) fn life(&self) -> Micros {
        self.life.into()
    }

    /// Records the slots that a request has taken. Returns whether a task has to start to renew them.
    pub(super) fn put(&self, charges: &[Charge], outcomes: &Outcomes) -> bool {
        if !outcomes.is_allowed() {
            return false;
        }
        let mut holdings = self.holdings();
        for charge in charges {
            let Some(slot) = charge.slot else {
                continue;
            };
            let mut outcome = outcomes.iter();
            let outcome = outcome.find(|(policy, _)| *policy == charge.policy);
            if outcome.is_some_and(|(_, outcome)| outcome.is_allowed()) && charge.cost > 0 {
                holdings.taken += 1;
                let holding = SlotInUse {
                    charge: *charge,
                    number: holdings.taken,
                    is_here: outcomes.is_degraded(),
                };
                holdings.by_slot.insert(slot, holding);
            }
        }
        !holdings.by_slot.is_empty() && !mem::replace(&mut holdings.is_renewed, true)
    }

    /// Records that no task renews them, until the next slot is taken.
    pub(super) fn renewal_failed(&self) {
        self.holdings().is_renewed = false;
    }

    /// Forgets a slot, and returns what it held.
    pub(super) fn forget(&self, slot: Slot) -> Option<SlotInUse> {
        self.holdings().by_slot.remove(&slot)
    }

    /// Returns the slots to renew, the latest first. If there is none, returns `None`, and no task renews until a
    /// slot is taken.
    pub(super) fn to_be_renewed(&self) -> Option<Vec<Charge>> {
        let mut holdings = self.holdings();
        holdings.is_renewed = !holdings.by_slot.is_empty();
        if !holdings.is_renewed {
            return None;
        }
        let elsewhere = holdings.by_slot.values().filter(|holding| !holding.is_here);
        let mut elsewhere: Vec<SlotInUse> = elsewhere.copied().collect();
        drop(holdings);
        elsewhere.sort_unstable_by_key(|holding| Reverse(holding.number));
        Some(elsewhere.into_iter().map(|it| it.charge).collect())
    }

    /// Returns whether this slot is still held.
    pub(super) fn holds(&self, slot: Slot) -> bool {
        self.holdings().by_slot.contains_key(&slot)
    }

    fn holdings(&self) -> MutexGuard<'_, Holdings> {
        self.holdings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
