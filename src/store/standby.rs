use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use super::{Charge, Ledger, MemoryLedger, MemoryStore, Taken};
use crate::clock::{Clock, Micros};
use crate::decision::Outcomes;
use crate::error::StoreError;
use crate::policy::{OnStoreFailure, Policy};

/// The same policies in this process, which decide while their store does not.
pub(super) struct Standby {
    policies: Box<[Policy]>,
    /// Whether their limits are less than those that all nodes have together.
    are_shares: Box<[bool]>,
    nodes: NonZeroU32,
    clock: Option<Arc<dyn Clock>>,
    /// Made when it is first needed: as a rule it never is.
    ledger: OnceLock<MemoryLedger>,
}

/// What was done, or was to be done, to a key's state in the store.
#[derive(Clone, Copy)]
pub(super) enum Verb {
    Refund,
    /// Of what the store has charged, nothing was charged here.
    TakeBack,
    Settle,
    Reset,
    Block(Micros),
    Unblock,
    GiveBack(Micros),
    /// A limit of the key's own, given or ended.
    Override,
}

type Charges = SmallVec<[Charge; 4]>;

impl Standby {
    /// Each of so many nodes takes its share of every limit.
    pub(super) fn new(
        policies: &[Policy],
        nodes: NonZeroU32,
        clock: Option<Arc<dyn Clock>>,
    ) -> Self {
        let shares = policies.iter().map(|policy| {
            let whole = policy.algorithm();
            let share = whole.shared_by(nodes);
            (policy.limited_by(share), share != *whole)
        });
        let (policies, are_shares): (Vec<_>, Vec<_>) = shares.unzip();
        Self {
            policies: policies.into(),
            are_shares: are_shares.into(),
            nodes,
            clock,
            ledger: OnceLock::new(),
        }
    }

    fn ledger(&self) -> &MemoryLedger {
        self.ledger.get_or_init(|| {
            let store = MemoryStore::new();
            let store = match &self.clock {
                Some(clock) => store.clock(Arc::clone(clock)),
                None => store,
            };
            store.ledger(&self.policies)
        })
    }

    fn when_store_fails(&self, charge: &Charge) -> OnStoreFailure {
        let policy = self.policies.get(charge.policy);
        policy.map_or(OnStoreFailure::Refuse, Policy::when_store_fails)
    }

    /// What each policy does while its store is away, by name.
    #[cfg(any(feature = "tracing", test))]
    pub(super) fn when_away(&self) -> impl Iterator<Item = (&str, OnStoreFailure)> {
        let policies = self.policies.iter().filter(|policy| policy.is_limited());
        policies.map(|policy| (policy.name(), policy.when_store_fails()))
    }

    /// Whether any policy would be kept here.
    pub(super) fn keeps_any(&self) -> bool {
        let mut policies = self.policies.iter().filter(|policy| policy.is_limited());
        policies.any(|policy| policy.when_store_fails() == OnStoreFailure::Local)
    }

    /// Whether all of these are decided here.
    pub(super) fn is_local(&self, charges: &[Charge]) -> bool {
        let here = |charge| self.when_store_fails(charge) == OnStoreFailure::Local;
        charges.iter().all(here)
    }

    /// Decides in place of the store, which has failed so; a request to which a policy applies that refuses then
    /// is refused.
    pub(super) fn charge(
        &self,
        charges: &[Charge],
        error: impl FnOnce() -> StoreError,
    ) -> Result<Outcomes, StoreError> {
        let charges = self.charges_here(charges, error)?;
        Ok(self.told(self.ledger().charge_now(&charges)))
    }

    /// Takes as much as there is in place of the store, which has failed so.
    pub(super) fn take_up_to(
        &self,
        charges: &[Charge],
        error: impl FnOnce() -> StoreError,
    ) -> Result<(u32, Outcomes), StoreError> {
        let here = self.charges_here(charges, error)?;
        let (mut units, outcomes) = self.ledger().take_up_to_now(&here);
        // Policies that let everything go on limit nothing.
        let is_unlimited = here.iter().all(|charge| charge.cost == 0);
        if is_unlimited && outcomes.is_allowed() {
            units = charges.iter().map(Charge::cost).max().unwrap_or(0);
        }
        Ok((units, self.told(outcomes)))
    }

    /// What [`charge`](Self::charge) would tell.
    pub(super) fn peek(
        &self,
        charges: &[Charge],
        error: impl FnOnce() -> StoreError,
    ) -> Result<Outcomes, StoreError> {
        let charges = self.charges_here(charges, error)?;
        Ok(self.told(self.ledger().peek_now(&charges)))
    }

    fn charges_here(
        &self,
        charges: &[Charge],
        error: impl FnOnce() -> StoreError,
    ) -> Result<Charges, StoreError> {
        let mut here = Charges::new();
        for charge in charges {
            here.push(match self.when_store_fails(charge) {
                OnStoreFailure::Local => Charge {
                    limit: charge.limit.map(|limit| limit.shared_by(self.nodes)),
                    ..*charge
                },
                // Nothing but a block denies what costs nothing.
                OnStoreFailure::Allow => Charge { cost: 0, ..*charge }.soft(),
                OnStoreFailure::Refuse => return Err(error()),
            });
        }
        Ok(here)
    }

    /// With the share for a limit, and without those that let everything go on.
    fn told(&self, mut outcomes: Outcomes) -> Outcomes {
        outcomes.retain(|policy, outcome| {
            let Some(kept) = self.policies.get(policy) else {
                return true;
            };
            if self.are_shares.get(policy) == Some(&true) && !outcome.is_overridden() {
                *outcome = outcome.overridden(kept.algorithm().period());
            }
            let lets_go_on = kept.when_store_fails() == OnStoreFailure::Allow;
            !lets_go_on || outcome.is_blocked()
        });
        outcomes.degrade();
        outcomes
    }

    /// Keeps up with what becomes of keys in the store, whether it was done there or not. What concerns
    /// usage counts as done then, if it is done here.
    pub(super) fn change(
        &self,
        charges: &[Charge],
        verb: Verb,
        changed: Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        // Where nothing was ever kept there is nothing to change.
        let kept = self.ledger.get();
        match (verb, kept) {
            (Verb::Block(length), _) => self.ledger().block_now(charges, length),
            (Verb::Refund | Verb::Settle, _) if changed.is_err() => {
                return self.change_usage(charges, verb, changed);
            }
            (Verb::Reset, Some(kept)) => kept.reset_now(charges),
            (Verb::Unblock, Some(kept)) => kept.unblock_now(charges),
            (Verb::GiveBack(departure), Some(kept)) => {
                for charge in charges {
                    // It is done at once.
                    let _ = kept.give_back(charge, departure);
                }
            }
            _ => {}
        }
        changed
    }

    /// Gives back what a request has taken here.
    pub(super) fn take_back(&self, taken: &Taken) {
        if let Some(ledger) = self.ledger.get()
            && self.is_local(&[*taken.charge()])
        {
            ledger.take_back_now(taken);
        }
    }

    fn change_usage(
        &self,
        charges: &[Charge],
        verb: Verb,
        failed: Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut here = Charges::from_slice(charges);
        here.retain(|charge| self.is_local(&[*charge]));
        match verb {
            Verb::Refund => self.ledger().refund_now(&here),
            _ => self.ledger().settle_now(&here),
        }
        let refuses = |charge| self.when_store_fails(charge) == OnStoreFailure::Refuse;
        if charges.iter().any(refuses) {
            return failed;
        }
        Ok(())
    }

    /// The store has told that the charge's key is blocked for so much longer, or is not.
    pub(super) fn learn(&self, charge: &Charge, blocked: Micros) {
        if blocked > Micros::ZERO {
            self.ledger().block_now(&[*charge], blocked);
        } else if let Some(ledger) = self.ledger.get() {
            ledger.unblock_now(&[*charge]);
        }
    }
}

impl fmt::Debug for Standby {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standby").finish_non_exhaustive()
    }
}
