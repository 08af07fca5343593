//! Counts the decisions of a limiter.

use std::iter;
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
use crate::factor::FactorCell;
use crate::key::Key;
#[cfg(feature = "config")]
use crate::observe::Past;
use crate::observe::{
    Count, Counters, Heaviest, HeavyKey, HeavyKeys, Metered, PolicyStats, Totals, Wait,
};
use crate::policy::{HeaviestKeys, Policy};
use crate::store::{Amendment, Charge, Ledger};

/// The counters of a limiter, and its policies.
pub(super) struct LimiterCounters {
    pub(super) counters: Arc<Counters>,
    /// The statistics of each policy, at zero.
    pub(super) rules: Box<[(PolicyStats, Option<FactorCell>)]>,
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
        let rules: Box<[_]> = policies.iter().map(Policy::stats).collect();
        let metered = policies.iter().zip(&rules);
        let metered = metered
            .map(|(policy, (rule, _))| Metered::new(rule.name.as_str().into(), policy.may_wait()));
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
        let read = heaviest.read(options.most());
        let keys = read.keys.iter().map(|(key, weight)| HeavyKey {
            key: options.show(key),
            cost: weight.cost,
            error: weight.error,
            refused: weight.refused,
        });
        Some(HeavyKeys {
            total: read.total,
            error: read.error,
            keys: keys.collect(),
        })
    }

    /// Records that a key has asked a policy for this many units.
    #[inline(never)]
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

/// What is counted of a charge.
#[derive(Clone, Copy)]
pub(super) struct Tally<'a> {
    policy: usize,
    key: &'a Key,
    units: u32,
    /// The units that are counted now, if they are charged: none of a request that is counted when it is settled, since a
    /// counter cannot take an estimate back.
    units_now: u32,
}

impl<'a> Tally<'a> {
    #[inline]
    pub(super) fn of(policy: usize, key: &'a Key, units: u32) -> Self {
        Self {
            policy,
            key,
            units,
            units_now: units,
        }
    }

    /// Returns the tally of a request that took no more than these units.
    pub(super) fn at_most(self, units: u32) -> Self {
        Self {
            units: self.units.min(units),
            units_now: self.units_now.min(units),
            ..self
        }
    }
}

impl Policies {
    /// Returns what is counted of these charges.
    #[inline]
    pub(super) fn tallies<'a>(
        &'a self,
        charges: &'a [Charge],
    ) -> impl ExactSizeIterator<Item = Tally<'a>> + Clone {
        charges.iter().map(move |charge| {
            let units = self.prices.units(charge);
            let is_settled_later = charge.is_reserved && charge.is_of_rate();
            Tally {
                policy: charge.policy,
                key: &charge.key,
                units,
                units_now: if is_settled_later { 0 } else { units },
            }
        })
    }

    /// Counts a decided request. The outcomes are in units.
    #[inline]
    pub(super) fn count_decided<'a>(
        &self,
        tallies: impl Iterator<Item = Tally<'a>> + Clone,
        outcomes: &Outcomes,
    ) {
        let units = tallies.clone().map(|tally| (tally.policy, tally.units_now));
        if !self.counted.counters.decided(units, outcomes) {
            self.log_refusal(&mut tallies.clone(), outcomes);
        }
        if self.counted.heaviest.is_some() {
            self.note_keys(&mut { tallies }, outcomes);
        }
    }

    /// Counts a request that was decided under one policy.
    #[inline]
    pub(super) fn count_one(&self, tally: Tally<'_>, is_allowed: bool, outcomes: &Outcomes) {
        let counted = &self.counted;
        match outcomes.first() {
            Some(outcome) if is_allowed && counted.heaviest.is_none() => {
                let (policy, units) = (tally.policy, tally.units_now);
                counted.counters.allowed(policy, units, outcome);
            }
            _ => self.count_alone(tally, outcomes),
        }
    }

    // A function of its own: it would make the path of most requests longer.
    #[inline(never)]
    fn count_alone(&self, tally: Tally<'_>, outcomes: &Outcomes) {
        self.count_decided(iter::once(tally), outcomes);
    }

    /// Counts a verdict on a request under one policy, without numbers.
    #[expect(
        clippy::inline_always,
        reason = "a call costs a twelfth of the decision"
    )]
    #[inline(always)]
    pub(super) fn count_judged_by_one(
        &self,
        policy: usize,
        (key, units): (&Key, u32),
        is_allowed: bool,
    ) {
        if self.counted.heaviest.is_some() {
            self.counted.note(policy, key, units, !is_allowed, None);
        }
        let counters = &self.counted.counters;
        counters.judged_by_one(policy, units, is_allowed);
    }

    /// Counts a verdict on a request, without numbers. A denial names a policy that denies.
    #[inline]
    pub(super) fn count_judged<'a>(
        &self,
        tallies: impl Iterator<Item = Tally<'a>> + Clone,
        verdict: Result<(), usize>,
    ) {
        if self.counted.heaviest.is_some() {
            for tally in tallies.clone() {
                let is_refused = verdict == Err(tally.policy);
                self.counted
                    .note(tally.policy, tally.key, tally.units, is_refused, None);
            }
        }
        let units = tallies.map(|tally| (tally.policy, tally.units));
        self.counted.counters.judged(units, verdict);
    }

    #[inline(never)]
    fn note_keys(&self, tallies: &mut dyn Iterator<Item = Tally<'_>>, outcomes: &Outcomes) {
        let at = Some(outcomes.at()).filter(|at| *at > Micros::ZERO);
        for tally in tallies {
            let mut each = outcomes.iter();
            let outcome = each.find(|(policy, _)| *policy == tally.policy);
            let is_refused = outcome.is_some_and(|(_, outcome)| outcome.denies());
            let is_charged =
                outcomes.is_allowed() && outcome.is_some_and(|(_, it)| it.is_allowed());
            let units = if is_charged {
                tally.units_now
            } else {
                tally.units
            };
            self.counted
                .note(tally.policy, tally.key, units, is_refused, at);
        }
    }

    #[cold]
    fn log_refusal(&self, mut tallies: &mut dyn Iterator<Item = Tally<'_>>, outcomes: &Outcomes) {
        let counters = &self.counted.counters;
        // The tallies are in the order of the outcomes.
        for (policy, outcome) in outcomes.iter().filter(|(_, outcome)| outcome.denies()) {
            let is_logged = counters.may_log_refusal(policy, outcomes.at());
            if !is_logged && !outcome.is_penalized() {
                continue;
            }
            let tally = Iterator::find(&mut tallies, |tally| tally.policy == policy);
            let key_kind = tally.map_or("unknown", |tally| tally.key.kind_name());
            if outcome.is_penalized() {
                counters.log_penalty(policy, key_kind, outcome);
            }
            if is_logged {
                counters.log_refusal(policy, key_kind, outcome, outcomes.at());
            }
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

    /// Counts the correction of charges after the fact, if this amendment is one.
    pub(super) fn count_amended(&self, charges: &[Charge], amendment: Amendment) {
        let what = match amendment {
            Amendment::Settle => Count::Cost,
            Amendment::Refund => Count::Refunded,
            _ => return,
        };
        for tally in self.tallies(charges) {
            self.count_settled(tally.policy);
            let counters = &self.counted.counters;
            counters.policy(tally.policy, what, tally.units.into());
        }
    }

    /// Counts the correction of a charge of this policy at the end of its request.
    pub(super) fn count_settled(&self, policy: usize) {
        self.counted.counters.policy(policy, Count::Settled, 1);
    }

    /// Counts charges that the store could not decide.
    #[cold]
    pub(super) fn count_failed(&self, charges: &[Charge]) {
        let policies = charges.iter().map(Charge::policy);
        self.counted.counters.failed(policies);
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
}
