//! The slots that requests of this node have in use.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::decision::Outcomes;
use crate::store::{Charge, Slot};

/// The slots of this node that are taken in one place.
#[derive(Debug, Default)]
pub struct SlotsInUse(Mutex<Holdings>);

#[derive(Debug, Default)]
struct Holdings {
    /// The charges of requests that hold slots, each with its place in the order in which they were taken.
    by_slot: HashMap<Slot, (u64, Charge)>,
    /// How many were taken so far.
    taken: u64,
    is_renewed: bool,
}

impl SlotsInUse {
    /// Records the slots that a request has taken by these outcomes. Returns whether a task has to start to renew them.
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
                let holding = (holdings.taken, *charge);
                holdings.by_slot.insert(slot, holding);
            }
        }
        !holdings.by_slot.is_empty() && !mem::replace(&mut holdings.is_renewed, true)
    }

    /// Records that no task renews them, until the next slot is taken.
    pub(super) fn renewal_failed(&self) {
        self.holdings().is_renewed = false;
    }

    /// Forgets the slots of these charges, and returns the charges that have held any.
    pub fn forget(&self, charges: &[Charge]) -> super::Charges {
        let mut holdings = self.holdings();
        let slots = charges.iter().filter_map(|charge| charge.slot);
        let held = slots.filter_map(|slot| holdings.by_slot.remove(&slot));
        held.map(|(_, charge)| charge).collect()
    }

    /// Returns the slots to renew, the latest first. If there is none, returns `None`, and no task renews until a
    /// slot is taken.
    pub fn to_be_renewed(&self) -> Option<Vec<Charge>> {
        let mut holdings = self.holdings();
        holdings.is_renewed = !holdings.by_slot.is_empty();
        if !holdings.is_renewed {
            return None;
        }
        let mut all: Vec<(u64, Charge)> = holdings.by_slot.values().copied().collect();
        drop(holdings);
        all.sort_unstable_by_key(|(number, _)| Reverse(*number));
        Some(all.into_iter().map(|(_, charge)| charge).collect())
    }

    /// Returns whether this slot is still held.
    pub(super) fn holds(&self, slot: Slot) -> bool {
        self.holdings().by_slot.contains_key(&slot)
    }

    fn holdings(&self) -> MutexGuard<'_, Holdings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
