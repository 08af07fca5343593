use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;
use tokio::runtime::Handle;

use crate::diagnostics::{Diagnostic, warn_once_of};
use crate::error::StoreError;
use crate::limiter::Policies;
use crate::limiter::background::spawn;
use crate::limiter::on_drop::OnDrop;
use crate::line::slots_are_freed;
use crate::store::{Charge, Reply};

const LOST: Diagnostic = Diagnostic::new(
    "TRL024",
    "",
    "what a request really cost could not be settled with the store, so that its estimate stays charged",
    "see why the store fails; `Limiter::lost_settlements` counts those that are lost",
);

/// The number of lost settlements of a limiter.
#[derive(Default)]
pub(in crate::limiter) struct Lost(AtomicU64);

impl Lost {
    pub(in crate::limiter) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Runs a settlement in the background.
pub(super) fn settle(
    policies: &Arc<Policies>,
    policy: usize,
    settled: Reply<Result<bool, StoreError>>,
    runtime: Option<&Handle>,
) {
    match settled {
        Reply::Now(Ok(_)) => {}
        Reply::Now(Err(_)) => record_lost(policies, policy),
        Reply::Later(answer) => {
            let of = Arc::clone(policies);
            // It is lost when the store fails, and when the runtime ends before the settlement. A reservation may be
            // dropped where there is no runtime, such as after the end of the server.
            let lost = OnDrop::new(move || record_lost(&of, policy));
            spawn(&policies.backend, runtime, async move {
                if answer.await.is_ok() {
                    lost.disarm();
                }
            });
        }
    }
}

/// Releases these slots, and wakes the requests that wait for them.
pub(super) fn release(
    policies: &Policies,
    slots: &[Charge],
    released: Reply<Result<bool, StoreError>>,
    runtime: Option<&Handle>,
) {
    match released {
        Reply::Now(_) => slots_are_freed(slots),
        Reply::Later(answer) => {
            let slots: SmallVec<[Charge; 1]> = SmallVec::from_slice(slots);
            spawn(&policies.backend, runtime, async move {
                let _ = answer.await;
                slots_are_freed(&slots);
            });
        }
    }
}

/// Counts as lost the settlements of charges without an answer. A policy that keeps the estimate then has nothing to
/// settle. Of several policies of which one pays, one settlement is lost.
pub(super) fn unanswered(policies: &Policies, charges: &[Charge]) {
    let mut groups: SmallVec<[u8; 4]> = SmallVec::new();
    for charge in charges {
        let is_settled = policies.on_abandoned(charge.policy).units().is_some();
        if !is_settled || charge.slot.is_some() {
            continue;
        }
        if let Some(its) = charge.alternative {
            if groups.contains(&its.group) {
                continue;
            }
            groups.push(its.group);
        }
        record_lost(policies, charge.policy);
    }
}

#[cold]
fn record_lost(policies: &Policies, policy: usize) {
    policies.lost.0.fetch_add(1, Ordering::Relaxed);
    let name = policies.names.name(policy).unwrap_or_default();
    warn_once_of(&LOST, format!("policy {name:?}"));
}
