use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};

use crate::clock::{Clock, Micros};
use crate::decision::Outcomes;
use crate::error::StoreError;
use crate::policy::{OnStoreFailure, Policy};
use crate::store::{Amendment, Charge, Charges, MemoryLedger, MemoryStore};

/// A copy of the policies in this process, which decides while their store does not.
pub(in crate::store) struct Standby {
    policies: Box<[Policy]>,
    /// Whether their limits are less than those that all nodes have together.
    are_shares: Box<[bool]>,
    /// How many nodes share the limits.
    nodes: NonZeroU32,
    clock: Option<Arc<dyn Clock>>,
    /// Made when it is first needed: as a rule it never is.
    ledger: OnceLock<MemoryLedger>,
}

impl Standby {
    /// Each of so many nodes takes its share of every limit.
    pub(in crate::store) fn new(
        policies: &[Policy],
        nodes: NonZeroU32,
        clock: Option<Arc<dyn Clock>>,
    ) -> Self {
        let shares = policies.iter().map(|policy| {
            let whole = policy.algorithm();
            let share = whole.shared_by(nodes);
            // What is refused without the store counts nowhere.
            let policy = policy.limited_by(share).without_penalty();
            (policy, share != *whole)
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
    pub(in crate::store) fn when_away(&self) -> impl Iterator<Item = (&str, OnStoreFailure)> {
        let policies = self.policies.iter().filter(|policy| policy.is_limited());
        policies.map(|policy| (policy.told_name(), policy.when_store_fails()))
    }

    /// Whether any policy would be kept here.
    pub(in crate::store) fn keeps_any(&self) -> bool {
        let mut policies = self.policies.iter().filter(|policy| policy.is_limited());
        policies.any(|policy| policy.when_store_fails() == OnStoreFailure::Local)
    }

    /// Whether all of these are decided here.
    pub(in crate::store) fn is_local(&self, charges: &[Charge]) -> bool {
        let here = |charge| self.when_store_fails(charge) == OnStoreFailure::Local;
        charges.iter().all(here)
    }

    /// Decides in place of the store, which has failed so; a request to which a policy applies that refuses then
    /// is refused.
    pub(in crate::store) fn charge(
        &self,
        charges: &[Charge],
        error: impl FnOnce() -> StoreError,
    ) -> Result<Outcomes, StoreError> {
        let charges = self.charges_here(charges, error)?;
        Ok(self.told(self.ledger().charge_now(&charges)))
    }

    /// Takes as much as there is in place of the store, which has failed so.
    pub(in crate::store) fn take_up_to(
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
    pub(in crate::store) fn peek(
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
                // It refuses no request.
                OnStoreFailure::Refuse if charge.is_shadow => Charge { cost: 0, ..*charge },
                OnStoreFailure::Local => self.at_its_share(*charge),
                // Nothing but a block denies what costs nothing.
                OnStoreFailure::Allow => Charge { cost: 0, ..*charge }.soft(),
                OnStoreFailure::Refuse => return Err(error()),
            });
        }
        Ok(here)
    }

    /// The charge under this node's share of its limit.
    fn at_its_share(&self, charge: Charge) -> Charge {
        let (Some(limit), Some(policy)) = (charge.limit, self.policies.get(charge.policy)) else {
            return charge;
        };
        let limit = match charge.beyond {
            0 => Some(limit.shared_by(self.nodes)),
            // What is beyond the limit of a policy with a factor is the price of the request, and is not divided.
            more => {
                let algorithm = policy.algorithm();
                let whole = algorithm.leaving(limit, more);
                whole.and_then(|whole| algorithm.beyond(whole.shared_by(self.nodes), more))
            }
        };
        Charge {
            limit: limit.or(charge.limit),
            ..charge
        }
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
    pub(in crate::store) fn change(
        &self,
        charges: &[Charge],
        amendment: Amendment,
        changed: Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        match amendment {
            Amendment::Block(_) => self.ledger().amend_now(charges, amendment)?,
            Amendment::Refund | Amendment::Settle if changed.is_err() => {
                return self.change_usage(charges, amendment, changed);
            }
            Amendment::Reset | Amendment::Unblock | Amendment::GiveBack(_) => {
                // Where nothing was ever kept there is nothing to change.
                if let Some(kept) = self.ledger.get() {
                    kept.amend_now(charges, amendment)?;
                }
            }
            // Of what the store has charged nothing was charged here, and overrides hold there alone.
            _ => {}
        }
        changed
    }

    /// Gives back what a request has taken here, or adds to it.
    pub(in crate::store) fn settle(
        &self,
        charges: &[Charge],
        amendment: Amendment,
    ) -> Result<(), StoreError> {
        let Some(ledger) = self.ledger.get() else {
            return Ok(());
        };
        let mut here = self.those_kept_here(charges);
        for charge in &mut here {
            *charge = self.at_its_share(*charge);
        }
        ledger.amend_now(&here, amendment)
    }

    /// Frees slots that were taken here.
    #[cfg(feature = "redis")]
    pub(in crate::store) fn release(&self, charges: &[Charge]) {
        if let Some(ledger) = self.ledger.get()
            && !charges.is_empty()
        {
            let _ = ledger.amend_now(charges, Amendment::Release);
        }
    }

    fn those_kept_here(&self, charges: &[Charge]) -> Charges {
        let charges = charges.iter().copied();
        charges.filter(|charge| self.is_local(&[*charge])).collect()
    }

    fn change_usage(
        &self,
        charges: &[Charge],
        amendment: Amendment,
        failed: Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let here = self.those_kept_here(charges);
        self.ledger().amend_now(&here, amendment)?;
        let refuses = |charge| self.when_store_fails(charge) == OnStoreFailure::Refuse;
        if charges.iter().any(refuses) {
            return failed;
        }
        Ok(())
    }

    /// The store has told that the charge's key is blocked for so much longer, or is not.
    pub(in crate::store) fn learn(&self, charge: &Charge, blocked: Micros) {
        // Neither needs room.
        let _ = if blocked > Micros::ZERO {
            self.ledger()
                .amend_now(&[*charge], Amendment::Block(blocked))
        } else if let Some(ledger) = self.ledger.get() {
            ledger.amend_now(&[*charge], Amendment::Unblock)
        } else {
            Ok(())
        };
    }
}

impl fmt::Debug for Standby {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standby").finish_non_exhaustive()
    }
}
