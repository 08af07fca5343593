use std::mem;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::runtime::Handle;

use super::settlement::{release, settle};
use crate::decision::Outcomes;
use crate::error::ConfigError;
use crate::limiter::{Limiter, Policies};
use crate::store::{Amendment, Charge, Guarded, Ledger, Taken};

/// What a request holds until it ends: its charges, which are settled exactly once.
///
/// It keeps the ledger and the policies that have charged them: another configuration that comes meanwhile changes
/// nothing.
pub(crate) struct Held<L: Ledger + ?Sized> {
    policies: Arc<Policies>,
    ledger: Guarded<L>,
    charges: SmallVec<[HeldCharge; 2]>,
    /// How many of them are settled, from the first on.
    settled: usize,
    /// The charges of policies on concurrency, which are released at the end.
    slots: SmallVec<[Charge; 1]>,
    /// The runtime in which the store has answered, if it did not answer at once.
    runtime: Option<Handle>,
}

/// What a request cost under a policy.
#[derive(Clone, Copy)]
pub(crate) enum RealCost {
    Units(u32),
    Estimate,
    /// What the policy says of a request that is not settled.
    Unsettled,
}

#[derive(Clone, Copy)]
struct HeldCharge {
    charge: Charge,
    taken: Taken,
}

impl<L: Ledger + ?Sized> Held<L> {
    /// Nothing yet. It is filled where it is, because it is large to move.
    #[inline]
    pub(super) fn nothing(limiter: &Limiter<L>) -> Self {
        Self {
            policies: Arc::clone(&limiter.policies),
            ledger: limiter.ledger.clone(),
            charges: SmallVec::new(),
            settled: 0,
            slots: SmallVec::new(),
            runtime: None,
        }
    }

    /// What the store has charged of this, which it answered so.
    #[inline]
    pub(crate) fn of<'a>(
        limiter: &Limiter<L>,
        charges: impl IntoIterator<Item = &'a Charge>,
        outcomes: &Outcomes,
    ) -> Self {
        let mut held = Self::nothing(limiter);
        if outcomes.is_allowed() {
            held.hold(charges, outcomes);
        }
        held
    }

    /// Holds what the store has charged of this, which it has allowed so.
    ///
    /// A soft charge that did not fit was left out, and so is the charge of a policy that lets everything go on while
    /// its store is away: of them there is nothing to settle.
    pub(super) fn hold<'a>(
        &mut self,
        charges: impl IntoIterator<Item = &'a Charge>,
        outcomes: &Outcomes,
    ) {
        for charge in charges {
            let mut each = outcomes.iter();
            let Some((_, outcome)) = each.find(|(policy, _)| *policy == charge.policy) else {
                continue;
            };
            if !outcome.is_allowed() {
                continue;
            }
            if charge.slot.is_some() {
                self.slots.push(*charge);
            } else if let Some(algorithm) = self.policies.algorithms.get(charge.policy) {
                self.charges.push(HeldCharge {
                    charge: *charge,
                    taken: Taken::with(algorithm, outcome, outcomes),
                });
            }
        }
    }

    /// Settles in this runtime.
    pub(crate) fn later(mut self) -> Self {
        self.runtime = Handle::try_current().ok();
        self
    }

    /// The place of a policy with this name.
    pub(super) fn policy(&self, name: &str) -> Result<usize, ConfigError> {
        self.policies.place_of(name)
    }

    /// Whether nothing is held.
    #[cfg(feature = "http")]
    pub(crate) fn is_empty(&self) -> bool {
        self.unsettled().is_empty() && self.slots.is_empty()
    }

    /// The policies that have charged the request.
    #[cfg(feature = "http")]
    pub(crate) fn policies(&self) -> impl Iterator<Item = usize> {
        self.unsettled().iter().map(|held| held.charge.policy)
    }

    #[cfg(feature = "http")]
    fn unsettled(&self) -> &[HeldCharge] {
        self.charges.get(self.settled..).unwrap_or_default()
    }

    /// Settles what each policy has charged, and that once.
    pub(crate) fn settle(&mut self, cost: impl Fn(usize) -> RealCost) {
        while let Some(held) = self.charges.get(self.settled) {
            // Whatever panics, it is not settled again.
            self.settled += 1;
            let policy = held.charge.policy;
            let units = match cost(policy) {
                RealCost::Units(units) => Some(units),
                RealCost::Estimate => None,
                RealCost::Unsettled => self.policies.unless_settled(policy).units(),
            };
            if let Some(units) = units {
                self.settle_one(held, units);
            }
        }
    }

    fn settle_one(&self, held: &HeldCharge, units: u32) {
        let (HeldCharge { charge, taken }, prices) = (*held, &self.policies.prices);
        let cost = prices.settled(&charge, units);
        let (difference, amendment) = match cost.checked_sub(charge.cost) {
            Some(more) => (more, Amendment::Add(taken)),
            None => (charge.cost - cost, Amendment::TakeBack(taken)),
        };
        if difference == 0 {
            return;
        }
        self.policies.count_settled(charge.policy);
        let charge = Charge {
            cost: difference,
            ..self
                .policies
                .demands
                .whole(prices.without_its_price(charge))
        };
        let settled = self.ledger.amend(&[charge], amendment);
        settle(
            &self.policies,
            charge.policy,
            settled,
            self.runtime.as_ref(),
        );
    }
}

impl<L: Ledger + ?Sized> Drop for Held<L> {
    fn drop(&mut self) {
        self.settle(|_| RealCost::Unsettled);
        if !self.slots.is_empty() {
            let released = self.ledger.amend(&self.slots, Amendment::Release);
            release(mem::take(&mut self.slots), released, self.runtime.as_ref());
        }
    }
}
