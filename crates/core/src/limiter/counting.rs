//! Counts the decisions of a limiter.

use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;
use std::time::SystemTime;

use tokio::time::Instant;

use super::{Limiter, Policies};
use crate::clock::Micros;
use crate::decision::Outcomes;
use crate::factor::FactorCell;
use crate::key::Key;
use crate::observe::Past;
use crate::observe::Request;
use crate::observe::{
    Count, Counters, Heaviest, HeavyHitter, HeavyHitters, Metered, PolicyStats, Totals, Wait,
};
use crate::policy::{Policy, TopKeys};
use crate::store::{Backend, Charge};

/// The counters of a limiter, and its policies.
pub(super) struct LimiterCounters {
    pub(super) counters: Arc<Counters>,
    /// The statistics of each policy, at zero.
    pub(super) rules: Box<[(PolicyStats, Option<FactorCell>)]>,
    since: SystemTime,
    /// The counters before a reload, if there was one.
    past: OnceLock<Arc<Past>>,
    /// By policy; `None` if no policy tracks its heaviest keys.
    heavy_hitters: Option<Box<[Option<TrackedKeys>]>>,
}

/// The heaviest keys of a policy.
struct TrackedKeys {
    tracked: Heaviest<Key>,
    options: TopKeys,
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
            past: OnceLock::new(),
            heavy_hitters: heavy_hitters(policies),
        }
    }

    /// Returns the heaviest keys of this policy.
    pub(super) fn heaviest(&self, policy: usize) -> Option<HeavyHitters> {
        let TrackedKeys { tracked, options } =
            self.heavy_hitters.as_ref()?.get(policy)?.as_ref()?;
        let read = tracked.read(options.most());
        let keys = read.keys.iter().map(|(key, weight)| HeavyHitter {
            key: options.show(key),
            cost: weight.cost,
            error: weight.error,
            refused: weight.refused,
        });
        Some(HeavyHitters {
            total: read.total,
            error: read.error,
            keys: keys.collect(),
        })
    }

    /// Records that a key has demanded these units of a policy.
    fn note(&self, tally: &Tally<'_>, is_refused: bool, at: Option<Micros>) {
        let each = self.heavy_hitters.as_deref().unwrap_or_default();
        if let Some(Some(heavy)) = each.get(tally.policy) {
            heavy.tracked.add(tally.key, tally.units, is_refused, at);
        }
    }

    #[inline(never)]
    fn note_keys(&self, tallies: &mut dyn Iterator<Item = Tally<'_>>, decided: Decided<'_>) {
        for mut tally in tallies {
            match decided {
                Decided::Outcomes(outcomes) => {
                    let mut each = outcomes.iter();
                    let outcome = each.find(|(policy, _)| *policy == tally.policy);
                    if outcome.is_none() && !outcomes.is_degraded() {
                        // Another policy pays.
                        continue;
                    }
                    let is_refused = outcome.is_some_and(|(_, outcome)| outcome.denies());
                    if outcomes.is_allowed() && outcome.is_some_and(|(_, it)| it.is_allowed()) {
                        tally.units = tally.units_now;
                    }
                    let at = Some(outcomes.at()).filter(|at| *at > Micros::ZERO);
                    self.note(&tally, is_refused, at);
                }
                Decided::Verdict(verdict) => self.note(&tally, verdict == Err(tally.policy), None),
                Decided::Nothing => {}
            }
        }
    }

    /// Returns when counting began.
    pub(super) fn since(&self) -> SystemTime {
        if let Some(past) = self.past.get() {
            return past.since();
        }
        self.since
    }

    /// Reads all counters, including those before a reload.
    pub(super) fn read(&self, now: Instant) -> Totals {
        if let Some(past) = self.past.get() {
            return past.read(&self.counters, now);
        }
        self.counters.read(now)
    }

    /// Continues the counters of another limiter, for policies of the same names. A limiter is new, and
    /// continues only one other.
    fn go_on_from(&self, before: &Self) {
        let first = || Arc::new(Past::of(&before.counters, before.since));
        let past = before.past.get_or_init(first);
        if self.past.set(Arc::clone(past)).is_ok() {
            past.go_on_with(&self.counters);
        }
    }
}

fn heavy_hitters(policies: &[Policy]) -> Option<Box<[Option<TrackedKeys>]>> {
    let of_policy = |policy: &Policy| {
        let options = policy.heaviest()?.clone();
        let tracked = Heaviest::new(options.places());
        Some(TrackedKeys { tracked, options })
    };
    let each: Box<[_]> = policies.iter().map(of_policy).collect();
    each.iter().any(Option::is_some).then_some(each)
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

/// What was decided on a request.
#[derive(Clone, Copy)]
pub(super) enum Decided<'a> {
    /// The outcomes are in units.
    Outcomes(&'a Outcomes),
    /// A verdict without numbers. A denial names a policy that denies.
    Verdict(Result<(), usize>),
    /// The store could not decide.
    Nothing,
}

impl Decided<'_> {
    /// Returns the verdict of a policy that is alone.
    #[inline]
    pub(super) fn by_one(policy: usize, is_allowed: bool) -> Self {
        Self::Verdict(if is_allowed { Ok(()) } else { Err(policy) })
    }
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

    /// Counts a decision on a request, whatever asked for it.
    #[expect(
        clippy::inline_always,
        reason = "each caller knows what was decided; a call costs a sixth of a decision"
    )]
    #[inline(always)]
    pub(super) fn count<'a>(
        &self,
        tallies: impl ExactSizeIterator<Item = Tally<'a>> + Clone,
        decided: Decided<'_>,
    ) {
        let counted = &self.counted;
        let units = tallies.clone().map(|tally| (tally.policy, tally.units_now));
        match decided {
            Decided::Outcomes(outcomes) => {
                if !counted.counters.decided(units, outcomes) {
                    self.log_refusal(&mut tallies.clone(), outcomes);
                }
            }
            Decided::Verdict(verdict) => counted.counters.judged(units, verdict),
            Decided::Nothing => counted.counters.failed(units.map(|(policy, _)| policy)),
        }
        if counted.heavy_hitters.is_some() {
            counted.note_keys(&mut { tallies }, decided);
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
        let counted = &self.counted;
        counted
            .counters
            .policy(charge.policy, Count::Cost, units.into());
        if counted.heavy_hitters.is_some() {
            counted.note(&Tally::of(charge.policy, &charge.key, units), false, None);
        }
    }

    /// Counts that a guess was charged.
    pub(super) fn count_guess(&self) {
        self.counted.counters.request(Request::Guessed);
    }

    /// Counts that charges were corrected after the fact, and their units as this.
    pub(super) fn count_corrected(&self, charges: &[Charge], units_as: Option<Count>) {
        let counters = &self.counted.counters;
        for tally in self.tallies(charges) {
            counters.policy(tally.policy, Count::Settled, 1);
            if let Some(what) = units_as {
                counters.policy(tally.policy, what, tally.units.into());
            }
        }
    }
}

impl Policies {
    /// Returns the counters, for events that are not decisions.
    #[inline]
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counted.counters
    }

    /// Continues the counters of another limiter, for policies of the same names.
    pub fn go_on_from(&self, before: &Self) {
        self.counted.go_on_from(&before.counted);
    }

    /// Returns for how long a block or an override of a key of this policy may hold: see
    /// [`Backend::holds_for`].
    pub fn holds_for(&self, policy: usize) -> Duration {
        self.backend.holds_for(policy)
    }
}

impl<L: Backend + ?Sized> Limiter<L> {
    /// Counts a request that begins to wait under this policy.
    pub(crate) fn begin_to_wait(&self, policy: usize) -> Wait {
        Wait::begin(self.policies.counters(), policy, self.policies.timers())
    }
}
