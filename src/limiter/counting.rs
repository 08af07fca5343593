//! Counts what a limiter decides.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Limiter, Policies};
use crate::decision::Outcomes;
use crate::error::StoreError;
use crate::factor::FactorCell;
use crate::observe::{Count, Counters, Described, Metered, Past, Wait};
use crate::policy::Policy;
use crate::store::{Amendment, Charge, Ledger};

/// What is counted, and what the policies are that it is counted of.
pub(super) struct Counting {
    pub(super) counters: Arc<Counters>,
    pub(super) rules: Box<[(Described, Option<FactorCell>)]>,
    /// What was counted before a reload.
    pub(super) past: Mutex<Past>,
}

impl Counting {
    /// Nothing yet.
    pub(super) fn new(policies: &[Policy]) -> Self {
        let rules: Box<[_]> = policies.iter().map(Policy::described).collect();
        let metered = policies.iter().zip(&rules);
        let metered = metered
            .map(|(policy, (rule, _))| Metered::new(Arc::clone(&rule.name), policy.may_wait()));
        Self {
            counters: Arc::new(Counters::new(metered)),
            rules,
            past: Mutex::new(Past::new()),
        }
    }
}

impl Counting {
    pub(super) fn past(&self) -> MutexGuard<'_, Past> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on where another one stops, for policies of the same names.
    #[cfg(feature = "config")]
    fn go_on_from(&self, before: &Self) {
        let past = before.past().before(Arc::clone(&before.counters));
        *self.past() = past;
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
        self.counted.counters.judged(self.units(charges), Ok(()));
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
    pub(crate) fn counters(&self) -> &Arc<Counters> {
        &self.policies.counted.counters
    }

    /// Goes on counting where another limiter stops, for policies of the same names.
    #[cfg(feature = "config")]
    pub(crate) fn go_on_from(&self, before: &Self) {
        let before = &before.policies.counted;
        self.policies.counted.go_on_from(before);
    }

    /// A request begins to wait under this policy.
    pub(crate) fn begin_to_wait(&self, policy: usize) -> Wait {
        Wait::begin(self.counters(), policy, self.timers())
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
