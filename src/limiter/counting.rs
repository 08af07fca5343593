//! Counts what a limiter decides.

use std::sync::Arc;

use super::{Limiter, Policies};
use crate::decision::Outcomes;
use crate::error::StoreError;
use crate::factor::FactorCell;
use crate::observe::{Count, Counters, Described};
use crate::policy::Policy;
use crate::store::{Amendment, Charge, Ledger};

/// What is counted, and what the policies are that it is counted of.
pub(super) struct Counted {
    pub(super) counters: Arc<Counters>,
    pub(super) rules: Box<[(Described, Option<FactorCell>)]>,
}

impl Counted {
    /// Nothing yet.
    pub(super) fn new(policies: &[Policy]) -> Self {
        Self {
            counters: Arc::new(Counters::new(policies.len())),
            rules: policies.iter().map(Policy::described).collect(),
        }
    }
}

impl Policies {
    /// The policies that are charged, and the units.
    fn units<'a>(
        &'a self,
        charges: &'a [Charge],
    ) -> impl ExactSizeIterator<Item = (usize, u32)> + 'a {
        let units = |charge: &Charge| (charge.policy, self.prices.units(charge));
        charges.iter().map(units)
    }

    /// A request was allowed, and its numbers are not known.
    #[inline]
    pub(super) fn count_allowed(&self, charges: &[Charge]) {
        self.counted.counters.allowed(self.units(charges));
    }

    /// A request was decided so. Outcomes are told in units.
    #[inline]
    pub(super) fn count_decided(&self, charges: &[Charge], outcomes: &Outcomes) {
        let units = self.units(charges);
        self.counted.counters.decided(units, outcomes);
    }

    /// So many units were taken.
    pub(super) fn count_taken(&self, charges: &[Charge], units: u32, outcomes: &Outcomes) {
        let taken = charges
            .iter()
            .map(|charge| (charge.policy, charge.cost.min(units)));
        self.counted.counters.decided(taken, outcomes);
    }

    /// Charges are corrected after the fact, if this does so.
    pub(super) fn count_amended(&self, charges: &[Charge], amendment: Amendment) {
        if matches!(amendment, Amendment::Settle | Amendment::Refund) {
            for charge in charges {
                let counters = &self.counted.counters;
                counters.policy(charge.policy, Count::Settled, 1);
            }
        }
    }

    /// The store could not decide on these charges.
    #[cold]
    pub(super) fn count_failed(&self, charges: &[Charge]) {
        let asked = charges.iter().map(Charge::policy);
        self.counted.counters.failed(asked);
    }

    /// A store has answered so about these charges.
    pub(super) fn count(&self, charges: &[Charge], answer: &Result<Outcomes, StoreError>) {
        match answer {
            Ok(outcomes) => self.count_decided(charges, outcomes),
            Err(_) => self.count_failed(charges),
        }
    }
}

impl<L: Ledger + ?Sized> Limiter<L> {
    /// The counters, for what is not a decision.
    pub(crate) fn counters(&self) -> &Counters {
        &self.policies.counted.counters
    }

    /// Counts a request that was allowed, and whose numbers are not known.
    #[cfg(feature = "http")]
    #[inline]
    pub(crate) fn count_allowed(&self, charges: &[Charge]) {
        self.policies.count_allowed(charges);
    }

    /// Counts a request that was decided so. Outcomes are [told](Self::told).
    #[inline]
    pub(crate) fn count_decided(&self, charges: &[Charge], told: &Outcomes) {
        self.policies.count_decided(charges, told);
    }

    /// Counts a request on which the store could not decide.
    pub(crate) fn count_failed(&self, charges: &[Charge]) {
        self.policies.count_failed(charges);
    }
}
