//! The charges that a request holds until its end.
//!
//! All ways to end a request (an answer, a cancellation, a drop) go through one `settle`, so that each charge
//! is settled exactly once.

use std::mem;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::runtime::Handle;

use super::settlement::{release, settle};
use crate::decision::Outcomes;
use crate::error::ConfigError;
use crate::limiter::{Limiter, Policies};
use crate::store::{Amendment, Charge, Guarded, Ledger, Taken};

/// The charges that a request holds until it ends, and that are settled exactly once.
///
/// It keeps the ledger and the policies that have made the charges, so a reload in between changes nothing.
pub(crate) struct Held<L: Ledger + ?Sized> {
    policies: Arc<Policies>,
    ledger: Guarded<L>,
    charges: SmallVec<[HeldCharge; 2]>,
    /// How many of them are settled, counted from the first.
    settled: usize,
    /// The charges of policies on concurrency, which are released at the end.
    slots: SmallVec<[Charge; 1]>,
    /// The runtime in which the store has answered, if it did not answer at once.
    runtime: Option<Handle>,
}

/// The real cost of a request under a policy.
#[derive(Clone, Copy)]
pub(crate) enum RealCost {
    Units(u32),
    Estimate,
    /// The cost that the policy sets for a request that is not settled.
    Unsettled,
}

#[derive(Clone, Copy)]
struct HeldCharge {
    charge: Charge,
    taken: Taken,
}

impl<L: Ledger + ?Sized> Held<L> {
    /// Creates an empty one, which is filled in place, because it is large to move.
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

    /// Holds the charges that the store has made, by these outcomes.
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

    /// Holds the charges of an allowed request, by these outcomes.
    ///
    /// A soft charge that did not fit was left out, and so is the charge of a policy that allows everything
    /// while its store is away: they need no settlement.
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

    /// Returns the index of the policy with this name.
    pub(super) fn policy(&self, name: &str) -> Result<usize, ConfigError> {
        self.policies.place_of(name)
    }

    /// Returns whether nothing is held.
    #[cfg(feature = "http")]
    pub(crate) fn is_empty(&self) -> bool {
        self.unsettled().is_empty() && self.slots.is_empty()
    }

    /// Returns the policies that have charged the request.
    #[cfg(feature = "http")]
    pub(crate) fn policies(&self) -> impl Iterator<Item = usize> {
        self.unsettled().iter().map(|held| held.charge.policy)
    }

    #[cfg(feature = "http")]
    fn unsettled(&self) -> &[HeldCharge] {
        self.charges.get(self.settled..).unwrap_or_default()
    }

    /// Settles the charge of each policy, exactly once.
    pub(crate) fn settle(&mut self, cost: impl Fn(usize) -> RealCost) {
        while let Some(held) = self.charges.get(self.settled) {
            // Even if `cost` or the store panics, it is not settled again.
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
        let HeldCharge { mut charge, taken } = *held;
        let prices = &self.policies.prices;
        let cost = prices.settled(&charge, units);
        let (difference, amendment) = match cost.checked_sub(charge.cost) {
            Some(more) => (more, Amendment::Add(taken)),
            None => (charge.cost - cost, Amendment::TakeBack(taken)),
        };
        if difference == 0 {
            return;
        }
        self.policies.count_settled(charge.policy);
        if charge.limit.is_some() {
            let demands = &self.policies.demands;
            charge = demands.whole(prices.without_its_price(charge));
        }
        charge.cost = difference;
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
