//! The slots that requests of this node hold.
//!
//! In Redis a slot lasts for one life, and is renewed at a third of it, all in one call. So a node that dies frees its
//! slots within one life, and a request may last as long as it likes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;

use super::calls::Calls;
use crate::clock::Micros;
use crate::decision::Outcomes;
use crate::diagnostics::{Diagnostic, diagnose};
use crate::store::{Charge, Slot};

/// The slots of this node.
pub(super) struct HeldSlots {
    life: Duration,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    by_slot: HashMap<Slot, Holding>,
    is_renewed: bool,
}

/// What a request holds.
#[derive(Clone, Copy)]
pub(super) struct Holding {
    pub(super) charge: Charge,
    /// Whether it was taken in this process, because the server was away.
    pub(super) is_here: bool,
}

const LOST: Diagnostic = Diagnostic::new(
    "TRL027",
    "",
    "slots of requests in flight were lost in Redis and taken again, so that more requests than the limit may be in flight for a while",
    "let slots last longer than the store is away, `RedisStoreBuilder::slot_life`, and see why it was",
);

impl HeldSlots {
    pub(super) fn new(life: Duration) -> Self {
        Self {
            life,
            held: Mutex::default(),
        }
    }

    /// How long a slot lasts that is not renewed.
    pub(super) fn life(&self) -> Micros {
        self.life.into()
    }

    /// Notes the slots that a request has taken.
    pub(super) fn keep(calls: &Arc<Calls>, charges: &[Charge], outcomes: &Outcomes) {
        if !outcomes.is_allowed() {
            return;
        }
        let mut held = calls.held.held();
        for charge in charges {
            let Some(slot) = charge.slot else {
                continue;
            };
            let mut told = outcomes.iter();
            let told = told.find(|(policy, _)| *policy == charge.policy);
            if told.is_some_and(|(_, outcome)| outcome.is_allowed()) && charge.cost > 0 {
                let holding = Holding {
                    charge: *charge,
                    is_here: outcomes.is_degraded(),
                };
                held.by_slot.insert(slot, holding);
            }
        }
        if !held.is_renewed
            && !held.by_slot.is_empty()
            && let Ok(runtime) = Handle::try_current()
        {
            held.is_renewed = true;
            runtime.spawn(renew(Arc::downgrade(calls), calls.held.life / 3));
        }
    }

    /// Forgets a slot, and returns what was held by it.
    pub(super) fn forget(&self, slot: Slot) -> Option<Holding> {
        self.held().by_slot.remove(&slot)
    }

    /// The slots that are to be renewed. If there are none, nothing is renewed until one is taken.
    fn to_be_renewed(&self) -> Vec<Charge> {
        let mut held = self.held();
        held.is_renewed = !held.by_slot.is_empty();
        let elsewhere = held.by_slot.values().filter(|holding| !holding.is_here);
        elsewhere.map(|holding| holding.charge).collect()
    }

    /// Whether this slot is still held.
    pub(super) fn holds(&self, slot: Slot) -> bool {
        self.held().by_slot.contains_key(&slot)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Renews slots as long as any is held.
async fn renew(calls: Weak<Calls>, every: Duration) {
    let renewing = Renewing(calls);
    loop {
        sleep(every).await;
        let Some(calls) = renewing.0.upgrade() else {
            return;
        };
        let charges = calls.held.to_be_renewed();
        if !calls.held.held().is_renewed {
            return;
        }
        if charges.is_empty() {
            continue;
        }
        // A slot that is not renewed now is renewed next time, before it has ended.
        if let Ok(lost) = calls.renew(&charges).await
            && lost > 0
        {
            diagnose(&LOST);
        }
        // Those that were released meanwhile may have been taken again by the renewal.
        let released = charges
            .into_iter()
            .filter(|charge| charge.slot.is_some_and(|slot| !calls.held.holds(slot)));
        let released: Vec<Charge> = released.collect();
        if !released.is_empty() {
            let _ = calls.release(&released).await;
        }
    }
}

/// Lets another task renew if this one ends with its runtime.
struct Renewing(Weak<Calls>);

impl Drop for Renewing {
    fn drop(&mut self) {
        if let Some(calls) = self.0.upgrade() {
            calls.held.held().is_renewed = false;
        }
    }
}
