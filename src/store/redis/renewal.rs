//! Renews the slots that requests of this node hold.
//!
//! In Redis a slot lasts for one life, and is renewed at a third of it, all in one call. So a node that dies frees its
//! slots within one life, and a request may last as long as it likes.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;

use super::calls::Calls;
use crate::decision::Outcomes;
use crate::diagnostics::{Diagnostic, diagnose};
use crate::store::Charge;

const LOST: Diagnostic = Diagnostic::new(
    "TRL027",
    "",
    "slots of requests in flight were lost in Redis and taken again, so that more requests than the limit may be in flight for a while",
    "let slots last longer than the store is away, `RedisStoreBuilder::slot_life`, and see why it was",
);

/// Keeps the slots that a request has taken, until they are released.
pub(super) fn keep(calls: &Arc<Calls>, charges: &[Charge], outcomes: &Outcomes) {
    if !calls.held.put(charges, outcomes) {
        return;
    }
    match Handle::try_current() {
        Ok(runtime) => {
            let every = calls.held.life().to_duration() / 3;
            runtime.spawn(renew(Renewing(Arc::downgrade(calls)), every));
        }
        Err(_) => calls.held.are_not_renewed(),
    }
}

/// Renews slots as long as any is held.
async fn renew(renewing: Renewing, every: Duration) {
    loop {
        sleep(every).await;
        let Some(calls) = renewing.0.upgrade() else {
            return;
        };
        let Some(charges) = calls.held.to_be_renewed() else {
            // A task that begins now renews, and not this one.
            return renewing.end();
        };
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

impl Renewing {
    fn end(mut self) {
        self.0 = Weak::new();
    }
}

impl Drop for Renewing {
    fn drop(&mut self) {
        if let Some(calls) = self.0.upgrade() {
            calls.held.are_not_renewed();
        }
    }
}
