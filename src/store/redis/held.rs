//! The slots that requests of this node hold.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Micros;
use crate::decision::Outcomes;
use crate::store::{Charge, Slot};

/// The slots of this node.
pub(super) struct HeldSlots {
    life: Duration,
    held: Mutex<Holdings>,
}

#[derive(Default)]
struct Holdings {
    by_slot: HashMap<Slot, Holding>,
    /// How many were taken so far.
    taken: u64,
    is_renewed: bool,
}

/// The charges of a request that holds slots.
#[derive(Clone, Copy)]
pub(super) struct Holding {
    pub(super) charge: Charge,
    /// Its place in the order in which this node has taken slots.
    number: u64,
    /// Whether the slots were taken in this process because the server was away.
    pub(super) is_here: bool,
}

impl HeldSlots {
    pub(super) fn new(life: Duration) -> Self {
        Self {
            life,
            held: Mutex::default(),
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
        let mut held = self.held();
        for charge in charges {
            let Some(slot) = charge.slot else {
                continue;
            };
            let mut told = outcomes.iter();
            let told = told.find(|(policy, _)| *policy == charge.policy);
            if told.is_some_and(|(_, outcome)| outcome.is_allowed()) && charge.cost > 0 {
                held.taken += 1;
                let holding = Holding {
                    charge: *charge,
                    number: held.taken,
                    is_here: outcomes.is_degraded(),
                };
                held.by_slot.insert(slot, holding);
            }
        }
        !held.by_slot.is_empty() && !mem::replace(&mut held.is_renewed, true)
    }

    /// Records that no task renews them, until the next slot is taken.
    pub(super) fn renewal_failed(&self) {
        self.held().is_renewed = false;
    }

    /// Forgets a slot, and returns what it held.
    pub(super) fn forget(&self, slot: Slot) -> Option<Holding> {
        self.held().by_slot.remove(&slot)
    }

    /// Returns the slots to renew, the latest first. If there is none, returns `None`, and no task renews until a
    /// slot is taken.
    pub(super) fn to_be_renewed(&self) -> Option<Vec<Charge>> {
        let mut held = self.held();
        held.is_renewed = !held.by_slot.is_empty();
        if !held.is_renewed {
            return None;
        }
        let elsewhere = held.by_slot.values().filter(|holding| !holding.is_here);
        let mut elsewhere: Vec<Holding> = elsewhere.copied().collect();
        drop(held);
        elsewhere.sort_unstable_by_key(|holding| Reverse(holding.number));
        Some(elsewhere.into_iter().map(|it| it.charge).collect())
    }

    /// Returns whether this slot is still held.
    pub(super) fn holds(&self, slot: Slot) -> bool {
        self.held().by_slot.contains_key(&slot)
    }

    fn held(&self) -> MutexGuard<'_, Holdings> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
