//! Renews the slots that requests of this node hold.
//!
//! In a shared store a slot lasts for one life, and is renewed at a third of it. So a node that dies frees its slots within one life,
//! and a request may last as long as it likes. Each part of a store is renewed by itself: a call to one that is away may take longer
//! than a slot lasts.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Weak};

use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

use super::Charge;
use super::in_use::SlotsInUse;
use crate::clock::Micros;
use crate::decision::Outcomes;
use crate::diagnostics::{Diagnostic, diagnose, warn_once_of};
use crate::error::StoreError;
use crate::key::Key;

const LOST: Diagnostic = Diagnostic::new(
    "TRL027",
    "",
    "slots of requests in flight were lost in the store and taken again, so that more requests than the limit may be in flight for a \
     while",
    "let slots last longer than the store is away, `slot_ttl` of `RedisStore::builder()` or of `SharedStore`, and see why it was; \
     in a file of limits: `slot_ttl = \"2min\"` under `[store]`",
);

const NOT_RENEWED: Diagnostic = Diagnostic::new(
    "TRL036",
    "",
    "slots of requests in flight could not be renewed in the store; if that lasts for a life of a slot, more requests than the limit \
     may be in flight",
    "see why the store refuses, by the reason; `StoreStats::failed_renewals` counts the calls",
);

/// A backend whose slots end unless they are renewed.
pub trait Renews: Send + Sync + 'static {
    /// Returns the slots that it has taken.
    fn in_use(&self) -> &SlotsInUse;

    /// Returns how long a slot lasts without a renewal.
    fn life(&self) -> Micros;

    /// Returns the part of the store that has the slots of this key, as far as is known. By default there is one part.
    fn part(&self, key: &Key) -> u64 {
        let _ = key;
        0
    }

    /// Starts a task, which is dropped if it cannot start.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static);

    /// Renews the slots that these charges hold in one part. Returns how many were lost, and are taken again.
    fn renew(self: &Arc<Self>, charges: &[Charge]) -> impl Future<Output = u64> + Send;

    /// Gives the slots of these charges back.
    fn release(self: &Arc<Self>, charges: &[Charge]) -> impl Future<Output = ()> + Send;
}

/// Keeps the slots that a request has taken in the store, until they are released.
pub fn keep<R: Renews>(of: &Arc<R>, charges: &[Charge], outcomes: &Outcomes) {
    if outcomes.is_degraded() || !of.in_use().put(charges, outcomes) {
        return;
    }
    // Without a runtime the task is dropped, and the next slot starts another.
    of.spawn(renew(Renewing(Arc::downgrade(of))));
}

/// Renews slots as long as any is held.
async fn renew<R: Renews>(renewing: Renewing<R>) {
    let mut under_way: HashMap<u64, JoinHandle<()>> = HashMap::new();
    loop {
        let Some(every) = renewing.0.upgrade().map(|of| of.life().to_duration() / 3) else {
            return;
        };
        sleep(every).await;
        let Some(of) = renewing.0.upgrade() else {
            return;
        };
        let Some(charges) = of.in_use().to_be_renewed() else {
            // The next slot that is taken begins a task of its own.
            return renewing.end();
        };
        under_way.retain(|_, renewal| !renewal.is_finished());
        let mut by_part: HashMap<u64, Vec<Charge>> = HashMap::new();
        for charge in charges {
            by_part
                .entry(of.part(&charge.key))
                .or_default()
                .push(charge);
        }
        for (part, charges) in by_part {
            // The previous calls to this part are not over. It would answer these after those.
            let Entry::Vacant(place) = under_way.entry(part) else {
                continue;
            };
            let of = Arc::clone(&of);
            place.insert(tokio::spawn(async move {
                if renew_part(&of, charges).await > 0 {
                    diagnose(&LOST);
                }
            }));
        }
    }
}

/// Renews the slots of a part that these charges held a moment ago. Returns how many were lost while their requests go on.
///
/// A slot that is not renewed now is renewed next time, before it has ended.
pub async fn renew_part<R: Renews>(of: &Arc<R>, charges: Vec<Charge>) -> u64 {
    let taken_again = of.renew(&charges).await;
    // A slot that its request gives back meanwhile is taken again by the renewal, if the store has heard of
    // its release first.
    let is_released = |charge: &Charge| charge.slot.is_some_and(|slot| !of.in_use().holds(slot));
    let released: Vec<Charge> = charges.into_iter().filter(is_released).collect();
    if released.is_empty() {
        return taken_again;
    }
    of.release(&released).await;
    let slots = released.iter().map(|charge| u64::from(charge.cost));
    taken_again.saturating_sub(slots.sum())
}

/// Runs these renewals, so many at once. Returns how many slots were lost, of all together.
pub async fn renew_each(
    mut renewals: impl Iterator<Item = impl Future<Output = u64> + Send + 'static>,
    most_at_once: usize,
) -> u64 {
    let (mut under_way, mut lost) = (JoinSet::new(), 0);
    loop {
        while under_way.len() < most_at_once
            && let Some(renewal) = renewals.next()
        {
            under_way.spawn(renewal);
        }
        match under_way.join_next().await {
            Some(taken_again) => lost += taken_again.unwrap_or(0),
            None => return lost,
        }
    }
}

/// Warns of a call that has failed to renew slots.
pub fn not_renewed(error: &StoreError) {
    warn_once_of(&NOT_RENEWED, error.reason().unwrap_or("unknown").to_owned());
}

/// Lets another task renew if this one cannot start, or panics.
struct Renewing<R: Renews>(Weak<R>);

impl<R: Renews> Renewing<R> {
    fn end(mut self) {
        self.0 = Weak::new();
    }
}

impl<R: Renews> Drop for Renewing<R> {
    fn drop(&mut self) {
        if let Some(of) = self.0.upgrade() {
            of.in_use().renewal_failed();
        }
    }
}
