//! Counts the decisions of a limiter.

use std::sync::Arc;
#[cfg(feature = "config")]
use std::sync::OnceLock;
#[cfg(feature = "config")]
use std::time::Duration;
use std::time::SystemTime;

use tokio::time::Instant;

use super::{Limiter, Policies};
use crate::clock::Micros;
use crate::decision::Outcomes;
use crate::error::StoreError;
use crate::factor::FactorCell;
use crate::key::Key;
#[cfg(feature = "config")]
use crate::observe::Past;
use crate::observe::{
    Count, Counters, Described, Heaviest, HeavyKey, HeavyKeys, Metered, Totals, Wait,
};
use crate::policy::{HeaviestKeys, Policy};
use crate::store::{Amendment, Charge, Ledger};

/// The counters of a limiter, and its policies.
pub(super) struct LimiterCounters {
    pub(super) counters: Arc<Counters>,
    pub(super) rules: Box<[(Described, Option<FactorCell>)]>,
    since: SystemTime,
    /// The counters before a reload, if there was one.
    #[cfg(feature = "config")]
    past: OnceLock<Arc<Past>>,
    /// The heaviest keys, by policy; `None` if no policy tracks them.
    heaviest: Option<Box<[Option<Finder>]>>,
}

/// Finds the heaviest keys of a policy.
struct Finder {
    heaviest: Heaviest<Key>,
    options: HeaviestKeys,
}

impl LimiterCounters {
    /// Creates counters at zero.
    pub(super) fn new(policies: &[Policy]) -> Self {
        let rules: Box<[_]> = policies.iter().map(Policy::described).collect();
        let metered = policies.iter().zip(&rules);
        let metered = metered
            .map(|(policy, (rule, _))| Metered::new(Arc::clone(&rule.name), policy.may_wait()));
        Self {
            counters: Arc::new(Counters::new(metered)),
            rules,
            since: SystemTime::now(),
            #[cfg(feature = "config")]
            past: OnceLock::new(),
            heaviest: finders(policies),
        }
    }
}

fn finders(policies: &[Policy]) -> Option<Box<[Option<Finder>]>> {
    let finder = |policy: &Policy| {
        let options = policy.heaviest()?.clone();
        let heaviest = Heaviest::new(options.places());
        Some(Finder { heaviest, options })
    };
    let finders: Box<[_]> = policies.iter().map(finder).collect();
    finders.iter().any(Option::is_some).then_some(finders)
}

impl LimiterCounters {
    /// Returns the heaviest keys of this policy.
    pub(super) fn heaviest(&self, policy: usize) -> Option<HeavyKeys> {
        let Finder { heaviest, options } = self.heaviest.as_ref()?.get(policy)?.as_ref()?;
        let told = heaviest.read(options.most());
        let keys = told.keys.iter().map(|(key, weight)| HeavyKey {
            key: options.show(key),
            cost: weight.cost,
            error: weight.error,
            refused: weight.refused,
        });
        Some(HeavyKeys {
            total: told.total,
            error: told.error,
            keys: keys.collect(),
        })
    }

    /// Records that a key has asked a policy for this many units.
    fn note(&self, policy: usize, key: &Key, units: u32, is_refused: bool, at: Option<Micros>) {
        let finders = self.heaviest.as_deref().unwrap_or_default();
        if let Some(Some(finder)) = finders.get(policy) {
            finder.heaviest.add(key, units, is_refused, at);
        }
    }

    /// Returns when counting began.
    pub(super) fn since(&self) -> SystemTime {
        #[cfg(feature = "config")]
        if let Some(past) = self.past.get() {
            return past.since();
        }
        self.since
    }

    /// Reads all counters, including those before a reload.
    pub(super) fn read(&self, now: Instant) -> Totals {
        #[cfg(feature = "config")]
        if let Some(past) = self.past.get() {
            return past.read(&self.counters, now);
        }
        self.counters.read(now)
    }

    /// Continues the counters of another limiter, for policies of the same names. A limiter is new, and
    /// continues only one other.
    #[cfg(feature = "config")]
    fn go_on_from(&self, before: &Self) {
        let first = || Arc::new(Past::of(&before.counters, before.since));
        let past = before.past.get_or_init(first);
        if self.past.set(Arc::clone(past)).is_ok() {
            past.go_on_with(&self.counters);
        }
    }
}

impl Policies {
    /// Returns the policies that are charged, and the units.
    fn units<'a>(
        &'a self,
        charges: &'a [Charge],
    ) -> impl ExactSizeIterator<Item = (usize, u32)> + 'a {
        let units = |charge: &Charge| (charge.policy, self.prices.units(charge));
        charges.iter().map(units)
    }

    /// Counts an allowed request whose numbers are not known.
    #[inline]
    pub(super) fn count_allowed(&self, charges: &[Charge]) {
        if self.counted.heaviest.is_some() {
            self.note_keys(charges, &Outcomes::new(Micros::ZERO), |_| false);
        }
        self.counted.counters.judged(self.units(charges), Ok(()));
    }

    /// Counts a decided request. The outcomes are in units.
    #[inline]
    pub(super) fn count_decided(&self, charges: &[Charge], outcomes: &Outcomes) {
        self.count_held(charges, outcomes, |_| false);
    }

    /// Counts a decided request. What these charges of it cost is counted when they are settled: a counter cannot take
    /// an estimate back.
    #[inline]
    pub(super) fn count_held(
        &self,
        charges: &[Charge],
        outcomes: &Outcomes,
        is_settled: impl Fn(&Charge) -> bool,
    ) {
        let units = charges.iter().map(|charge| {
            let units = if is_settled(charge) {
                0
            } else {
                self.prices.units(charge)
            };
            (charge.policy, units)
        });
        if !self.counted.counters.decided(units, outcomes) {
            self.log_refusal(charges, outcomes);
        }
        if self.counted.heaviest.is_some() {
            self.note_keys(charges, outcomes, is_settled);
        }
    }

    /// Counts what a charge of a request has cost in the end.
    pub(super) fn count_spent(&self, charge: &Charge, units: u32) {
        let counters = &self.counted.counters;
        counters.policy(charge.policy, Count::Cost, units.into());
        if self.counted.heaviest.is_some() {
            let (policy, key) = (charge.policy, &charge.key);
            self.counted.note(policy, key, units, false, None);
        }
    }

    /// Counts a request that was decided under one policy.
    #[inline]
    pub(super) fn count_one(
        &self,
        (policy, key, units): (usize, &Key, u32),
        is_allowed: bool,
        outcomes: &Outcomes,
    ) {
        let allowed = outcomes.first().filter(|_| is_allowed);
        match allowed {
            Some(outcome) => self.counted.counters.allowed(policy, units, outcome),
            None => self.count_refused(policy, key, units, outcomes),
        }
        if self.counted.heaviest.is_some() {
            self.note_key(policy, key, units, outcomes);
        }
    }

    // A function of its own: otherwise the path of most requests would reserve room for the charge.

    #[inline(never)]
    fn count_refused(&self, policy: usize, key: &Key, units: u32, outcomes: &Outcomes) {
        let counters = &self.counted.counters;
        if !counters.decided([(policy, units)], outcomes) {
            self.log_refusal(&[Charge::new(policy, *key, units)], outcomes);
        }
    }

    #[inline(never)]
    fn note_key(&self, policy: usize, key: &Key, units: u32, outcomes: &Outcomes) {
        self.note_keys(&[Charge::new(policy, *key, units)], outcomes, |_| false);
    }

    #[inline(never)]
    fn note_keys(
        &self,
        charges: &[Charge],
        outcomes: &Outcomes,
        is_settled: impl Fn(&Charge) -> bool,
    ) {
        let at = Some(outcomes.at()).filter(|at| *at > Micros::ZERO);
        for charge in charges {
            let mut each = outcomes.iter();
            let outcome = each.find(|(policy, _)| *policy == charge.policy);
            let is_refused = outcome.is_some_and(|(_, outcome)| outcome.denies());
            let is_charged =
                outcomes.is_allowed() && outcome.is_some_and(|(_, it)| it.is_allowed());
            let units = if is_charged && is_settled(charge) {
                0
            } else {
                self.prices.units(charge)
            };
            self.counted
                .note(charge.policy, &charge.key, units, is_refused, at);
        }
    }

    /// Counts a verdict on a request of this key under one policy, without numbers.
    #[inline]
    pub(super) fn count_judged_by_one(
        &self,
        policy: usize,
        (key, units): (&Key, u32),
        is_allowed: bool,
    ) {
        if self.counted.heaviest.is_some() {
            self.counted.note(policy, key, units, !is_allowed, None);
        }
        self.counted
            .counters
            .judged_by_one(policy, units, is_allowed);
    }

    /// Counts a verdict on a request of this key, without numbers. A denial names a policy that denies.
    #[inline]
    pub(super) fn count_judged(
        &self,
        asked: impl Iterator<Item = (usize, u32)> + Clone,
        key: &Key,
        verdict: Result<(), usize>,
    ) {
        if self.counted.heaviest.is_some() {
            for (policy, units) in asked.clone() {
                let is_refused = verdict == Err(policy);
                self.counted.note(policy, key, units, is_refused, None);
            }
        }
        self.counted.counters.judged(asked, verdict);
    }

    #[cold]
    fn log_refusal(&self, charges: &[Charge], outcomes: &Outcomes) {
        let counters = &self.counted.counters;
        for (policy, outcome) in outcomes.iter().filter(|(_, outcome)| outcome.denies()) {
            let is_told = counters.is_refusal_told(policy, outcomes.at());
            if !is_told && !outcome.is_penalized() {
                continue;
            }
            let mut charges = charges.iter();
            let charge = charges.find(|charge| charge.policy == policy);
            let key_kind = charge.map_or("unknown", |charge| charge.key.kind_name());
            if outcome.is_penalized() {
                counters.log_penalty(policy, key_kind, outcome);
            }
            if is_told {
                counters.log_refusal(policy, key_kind, outcome, outcomes.at());
            }
        }
    }

    /// Counts units that were taken.
    pub(super) fn count_taken(&self, charges: &[Charge], units: u32, outcomes: &Outcomes) {
        let taken = charges
            .iter()
            .map(|charge| (charge.policy, charge.cost.min(units)));
        if !self.counted.counters.decided(taken, outcomes) {
            self.log_refusal(charges, outcomes);
        }
    }

    /// Counts the correction of charges after the fact, if this amendment is one.
    pub(super) fn count_amended(&self, charges: &[Charge], amendment: Amendment) {
        let what = match amendment {
            Amendment::Settle => Count::Cost,
            Amendment::Refund => Count::Refunded,
            _ => return,
        };
        for (policy, units) in self.units(charges) {
            self.count_settled(policy);
            self.counted.counters.policy(policy, what, units.into());
        }
    }

    /// Counts the correction of a charge of this policy at the end of its request.
    pub(super) fn count_settled(&self, policy: usize) {
        self.counted.counters.policy(policy, Count::Settled, 1);
    }

    /// Counts charges that the store could not decide.
    #[cold]
    pub(super) fn count_failed(&self, charges: &[Charge]) {
        let asked = charges.iter().map(Charge::policy);
        self.counted.counters.failed(asked);
    }

    /// Counts a store's answer to these charges.
    pub(super) fn count(&self, charges: &[Charge], answer: &Result<Outcomes, StoreError>) {
        match answer {
            Ok(outcomes) => self.count_decided(charges, outcomes),
            Err(error) => {
                self.store_has_failed(error);
                self.count_failed(charges);
            }
        }
    }
}

impl<L: Ledger + ?Sized> Limiter<L> {
    /// Returns the counters, for events that are not decisions.
    pub(crate) fn counters(&self) -> &Arc<Counters> {
        &self.policies.counted.counters
    }

    /// Continues the counters of another limiter, for policies of the same names.
    #[cfg(feature = "config")]
    pub(crate) fn go_on_from(&self, before: &Self) {
        let before = &before.policies.counted;
        self.policies.counted.go_on_from(before);
    }

    /// Returns for how long a block or an override of a key of this policy may hold: see
    /// [`Ledger::holds_for`].
    #[cfg(feature = "config")]
    pub(crate) fn holds_for(&self, policy: usize) -> Duration {
        self.ledger.holds_for(policy)
    }

    /// Counts a request that begins to wait under this policy.
    pub(crate) fn begin_to_wait(&self, policy: usize) -> Wait {
        Wait::begin(self.counters(), policy, self.timers())
    }

    /// Counts an allowed request whose numbers are not known.
    #[cfg(feature = "http")]
    #[inline]
    pub(crate) fn count_allowed(&self, charges: &[Charge]) {
        self.policies.count_allowed(charges);
    }

    /// Counts a decided request. The outcomes are [reported](Self::reported).
    #[inline]
    pub(crate) fn count_decided(&self, charges: &[Charge], told: &Outcomes) {
        self.policies.count_decided(charges, told);
    }

    /// Counts a decided request, but what these charges of it cost, which is counted when they are settled.
    pub(crate) fn count_held(
        &self,
        charges: &[Charge],
        told: &Outcomes,
        is_settled: impl Fn(&Charge) -> bool,
    ) {
        self.policies.count_held(charges, told, is_settled);
    }

    /// Counts a request that the store could not decide.
    pub(crate) fn count_failed(&self, charges: &[Charge]) {
        self.policies.count_failed(charges);
    }
}
