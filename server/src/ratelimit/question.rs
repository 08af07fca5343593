//! Decides about the descriptors of a request: all of them, or none, are charged.
//!
//! A limiter charges each of its policies once in a step. So descriptors of one limit, with different values, are charged in
//! several steps, after a look at all of them; a step that finds less than the look gives back what the steps before it took.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tower_ratelimit::key::Key;
use tower_ratelimit::{Algorithm, Decision, Limiter, Outcome, StoreError};

use super::rules::Rule;
use super::statistics::{Counts, add};
use crate::envoy::messages::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;

/// What a descriptor of a request asks.
#[derive(Clone, Debug)]
pub(super) enum Demand<'a> {
    /// No limit holds.
    Nothing,
    Unlimited(&'a Rule),
    Limited(Limited<'a>),
}

impl<'a> Demand<'a> {
    /// Returns the limit of the file.
    pub(super) fn rule(&self) -> Option<&'a Rule> {
        match self {
            Self::Nothing => None,
            Self::Unlimited(rule) => Some(*rule),
            Self::Limited(limited) => limited.rule,
        }
    }
}

/// A descriptor of a request with a limit.
#[derive(Clone, Debug)]
pub(super) struct Limited<'a> {
    pub(super) policy: &'a str,
    pub(super) key: Key,
    /// The units; 0 looks.
    pub(super) hits: u32,
    pub(super) algorithm: Algorithm,
    /// The period, as answers tell it.
    pub(super) unit: Unit,
    pub(super) multiplier: Option<u32>,
    /// `None` if the caller has given the limit.
    pub(super) rule: Option<&'a Rule>,
    pub(super) counts: Arc<Counts>,
}

/// The answer about a descriptor with a limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct LimitStatus {
    /// Whether its units were within the limit, or one more is if it looks.
    pub(super) fits: bool,
    /// The most at one instant, which may depend on the hour and on the load.
    pub(super) limit: u32,
    pub(super) remaining: u32,
    /// How long until the same question would pass, or until what remains has to last.
    pub(super) until_reset: Duration,
}

/// The answer about all descriptors.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) passes: bool,
    /// For each descriptor; `None` without a limit, and if its store is away and it lets all pass.
    pub(super) statuses: Vec<Option<LimitStatus>>,
    /// How long a refused request waits, if a wait helps.
    pub(super) retry_after: Option<Duration>,
    /// The decision for the headers of the response.
    pub(super) decision: Option<Decision>,
}

/// The units of one key under one policy.
struct Charge<'q, 'a> {
    limited: &'q Limited<'a>,
    units: u32,
    /// The descriptors that ask for them.
    of: Vec<usize>,
}

impl Limited<'_> {
    fn is_quota(&self) -> bool {
        self.rule.is_some_and(|rule| rule.is_quota)
    }

    fn is_shadow(&self) -> bool {
        self.rule.is_some_and(|rule| rule.is_shadow)
    }

    fn settles(&self) -> bool {
        self.rule.is_some_and(|rule| rule.settles)
    }
}

impl<'a> Charge<'_, 'a> {
    fn demand(&self) -> (&'a str, Key, u32) {
        (self.limited.policy, self.limited.key, self.units)
    }
}

/// How a limiter is limited.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Peek,
    Charge,
}

/// Decides, and charges the descriptors if all let the request pass.
pub(super) async fn decide(
    limiter: &Limiter,
    demands: &[Demand<'_>],
    charges_refused: bool,
) -> Result<Verdict, StoreError> {
    let mut deciding = Deciding {
        limiter,
        demands,
        statuses: vec![None; demands.len()],
        outcomes: vec![None; demands.len()],
        decision: None,
    };
    let passes = if charges_refused {
        deciding.charge_each().await?
    } else {
        deciding.charge_all().await?
    };
    Ok(deciding.end(passes))
}

struct Deciding<'q, 'a> {
    limiter: &'q Limiter,
    demands: &'q [Demand<'a>],
    statuses: Vec<Option<LimitStatus>>,
    /// The last outcome for each descriptor.
    outcomes: Vec<Option<Outcome>>,
    /// The decision that refuses the request, or else the first.
    decision: Option<Decision>,
}

impl<'q, 'a> Deciding<'q, 'a> {
    fn limited(&self) -> impl Iterator<Item = (usize, &'q Limited<'a>)> + use<'q, 'a> {
        let demands = self.demands.iter().enumerate();
        demands.filter_map(|(index, demand)| match demand {
            Demand::Limited(limited) => Some((index, limited)),
            Demand::Nothing | Demand::Unlimited(_) => None,
        })
    }

    /// Charges all descriptors or none.
    async fn charge_all(&mut self) -> Result<bool, StoreError> {
        let mut charges: Vec<Charge<'q, 'a>> = Vec::new();
        for (index, limited) in self.limited() {
            let same = charges.iter_mut().find(|charge| {
                let its = charge.limited;
                its.policy == limited.policy
                    && its.key == limited.key
                    && its.algorithm == limited.algorithm
            });
            if let Some(charge) = same {
                charge.units = charge.units.saturating_add(limited.hits);
                charge.of.push(index);
            } else {
                let of = vec![index];
                let units = limited.hits;
                charges.push(Charge { limited, units, of });
            }
        }
        let steps = steps(charges);
        let is_plain = |charge: &Charge<'_, '_>| {
            charge.units > 0 && !charge.limited.is_quota() && !charge.limited.settles()
        };
        if let [step] = &*steps
            && step.iter().all(is_plain)
        {
            return self.ask(step.iter(), Way::Charge).await;
        }
        for step in &steps {
            self.ask(step.iter(), Way::Peek).await?;
        }
        let mut passes = self.passes();
        if passes {
            passes = self.take(&steps).await?;
        }
        self.settle(&steps).await?;
        Ok(passes)
    }

    /// Charges each descriptor, whether the request is refused or not.
    async fn charge_each(&mut self) -> Result<bool, StoreError> {
        let charges = self.limited().map(|(index, limited)| Charge {
            limited,
            units: limited.hits,
            of: vec![index],
        });
        for step in &steps(charges.collect()) {
            self.ask(step.iter(), Way::Charge).await?;
            let over = step.iter().filter(|charge| !self.fits(charge));
            let over = over.filter(|charge| charge.units > 0);
            let over = over.map(Charge::demand).collect();
            self.charge_past_the_limit(over).await?;
            for charge in step {
                if let Some(status) = &mut self.statuses[charge.of[0]] {
                    status.fits &= charge.units > 0 || status.remaining > 0;
                    status.remaining = if status.fits { status.remaining } else { 0 };
                }
            }
        }
        Ok(self.passes())
    }

    /// Takes the units, or gives back what it has taken: others may have taken some since the look, and the store may fail.
    async fn take(&mut self, steps: &[Vec<Charge<'q, 'a>>]) -> Result<bool, StoreError> {
        let mut taken = Vec::new();
        let passes = self.take_each(steps, &mut taken).await;
        if !matches!(passes, Ok(true)) {
            for demand in taken {
                // What cannot be given back comes back with time.
                if let Ok(named) = self.limiter.named([demand]) {
                    let _ = named.refund().await;
                }
            }
        }
        passes
    }

    /// Takes the units step by step, and notes what it has taken.
    async fn take_each(
        &mut self,
        steps: &[Vec<Charge<'q, 'a>>],
        taken: &mut Vec<(&'a str, Key, u32)>,
    ) -> Result<bool, StoreError> {
        for step in steps {
            let is_taken = |charge: &&Charge<'_, '_>| charge.units > 0 && !charge.limited.settles();
            let takers = || step.iter().filter(is_taken);
            if !self.ask(takers(), Way::Charge).await? {
                return Ok(false);
            }
            let fitted = takers().filter(|charge| self.fits(charge));
            taken.extend(fitted.map(Charge::demand));
        }
        Ok(self.passes())
    }

    /// Charges the units that are reported after the fact.
    async fn settle(&mut self, steps: &[Vec<Charge<'q, 'a>>]) -> Result<(), StoreError> {
        for step in steps {
            let settled = step
                .iter()
                .filter(|charge| charge.limited.settles() && charge.units > 0);
            for index in settled.clone().flat_map(|charge| &charge.of) {
                let Demand::Limited(limited) = &self.demands[*index] else {
                    continue;
                };
                if let Some(status) = &mut self.statuses[*index] {
                    status.remaining = status.remaining.saturating_sub(limited.hits);
                }
            }
            self.charge_past_the_limit(settled.map(Charge::demand).collect())
                .await?;
        }
        Ok(())
    }

    async fn charge_past_the_limit(&self, units: Vec<(&str, Key, u32)>) -> Result<(), StoreError> {
        if units.is_empty() {
            return Ok(());
        }
        match self.limiter.named(units) {
            Ok(named) => named.settle().await,
            // The limiter has the policy of each rule.
            Err(_) => Ok(()),
        }
    }

    /// Asks about charges of different policies, in one step. A look is at 1 unit.
    async fn ask<'c>(
        &mut self,
        charges: impl Iterator<Item = &'c Charge<'q, 'a>>,
        way: Way,
    ) -> Result<bool, StoreError>
    where
        'q: 'c,
        'a: 'q,
    {
        let charges: Vec<&Charge<'q, 'a>> = charges.collect();
        if charges.is_empty() {
            return Ok(true);
        }
        let looks = |charge: &Charge<'_, '_>| charge.units == 0 || charge.limited.settles();
        let demands = charges.iter().map(|charge| match way {
            Way::Peek if looks(charge) => (charge.limited.policy, charge.limited.key, 1),
            Way::Peek | Way::Charge => charge.demand(),
        });
        let own = charges
            .iter()
            .filter(|charge| charge.limited.rule.is_none());
        let own = own.map(|charge| (charge.limited.policy, charge.limited.algorithm));
        // The limiter has each policy, of this kind and period, so it always asks.
        let named = self.limiter.named(demands);
        let Ok(named) = named.and_then(|named| named.under(own)) else {
            return Ok(true);
        };
        let decision = match way {
            Way::Peek => named.peek().await?,
            Way::Charge => named.check().await?,
        };
        let passes = decision.is_allowed();
        for charge in charges {
            let mut outcomes = decision.policies();
            let outcome = outcomes.find(|(name, _)| *name == charge.limited.policy);
            let outcome = outcome.map(|(_, outcome)| *outcome);
            // What a look would have charged.
            let looked = u32::from(way == Way::Peek && looks(charge) && passes);
            for index in &charge.of {
                self.outcomes[*index] = outcome;
                self.statuses[*index] = outcome.map(|outcome| LimitStatus {
                    fits: outcome.is_allowed(),
                    limit: outcome.limit(),
                    remaining: outcome.remaining() + if outcome.is_allowed() { looked } else { 0 },
                    until_reset: until_reset(&outcome, &charge.limited.algorithm, decision.at()),
                });
            }
        }
        // One that refuses stays.
        if self.decision.as_ref().is_none_or(Decision::is_allowed) {
            self.decision = Some(decision);
        }
        Ok(passes)
    }

    fn fits(&self, charge: &Charge<'_, '_>) -> bool {
        charge
            .of
            .iter()
            .all(|index| self.statuses[*index].is_none_or(|status| status.fits))
    }

    /// Returns whether the request passes by the statuses of its descriptors: no limit refuses it, and of the quotas one has
    /// room.
    fn passes(&self) -> bool {
        let (mut quotas, mut quotas_over) = (0, 0);
        for (index, limited) in self.limited() {
            let fits = self.statuses[index].is_none_or(|status| status.fits);
            if limited.is_quota() {
                quotas += 1;
                quotas_over += u32::from(!fits);
            } else if !fits && !limited.is_shadow() {
                return false;
            }
        }
        quotas == 0 || quotas_over < quotas
    }

    /// Returns how long a refused request waits: until no limit refuses it, and one of the quotas has room. `None` if that does not
    /// come with time.
    fn wait(&self) -> Option<Duration> {
        const NEVER: Duration = Duration::MAX;
        let mut of_limits = Duration::ZERO;
        let mut of_quotas = None;
        for (index, limited) in self.limited() {
            let is_over = self.statuses[index].is_some_and(|status| !status.fits);
            let wait = || {
                let outcome = self.outcomes[index]?;
                let next_unit = outcome.effective_window().filter(|_| limited.hits == 0);
                outcome.retry_after().or(next_unit)
            };
            let wait = if is_over {
                wait().unwrap_or(NEVER)
            } else {
                Duration::ZERO
            };
            if limited.is_quota() {
                of_quotas = Some(of_quotas.map_or(wait, |least: Duration| least.min(wait)));
            } else if !limited.is_shadow() {
                of_limits = of_limits.max(wait);
            }
        }
        let wait = of_limits.max(of_quotas.unwrap_or_default());
        Some(wait).filter(|wait| *wait != NEVER && !wait.is_zero())
    }

    fn end(self, passes: bool) -> Verdict {
        Verdict {
            passes,
            retry_after: self.wait().filter(|_| !passes),
            statuses: self.statuses,
            decision: self.decision,
        }
    }
}

/// Counts a request that has this answer.
pub(super) fn count(demands: &[Demand<'_>], verdict: &Verdict) {
    for (demand, status) in demands.iter().zip(&verdict.statuses) {
        let Demand::Limited(limited) = demand else {
            continue;
        };
        let (hits, counts) = (u64::from(limited.hits), &limited.counts);
        add(&counts.total, hits);
        let Some(status) = status else {
            continue;
        };
        if !status.fits {
            add(&counts.over, hits);
            if limited.is_shadow() {
                add(&counts.shadow, hits);
            }
        } else if verdict.passes {
            add(&counts.within, hits);
            if status.remaining <= status.limit / 5 {
                add(&counts.near, hits);
            }
        }
    }
}

/// Divides charges into steps, each of which has a policy once.
fn steps<'q, 'a>(charges: Vec<Charge<'q, 'a>>) -> Vec<Vec<Charge<'q, 'a>>> {
    let mut steps: Vec<Vec<Charge<'q, 'a>>> = Vec::new();
    for charge in charges {
        let has_it = |step: &&mut Vec<Charge<'_, '_>>| {
            step.iter()
                .all(|other| other.limited.policy != charge.limited.policy)
        };
        match steps.iter_mut().find(has_it) {
            Some(step) => step.push(charge),
            None => steps.push(vec![charge]),
        }
    }
    steps
}

fn until_reset(outcome: &Outcome, algorithm: &Algorithm, at: Option<SystemTime>) -> Duration {
    let reset = outcome.retry_after().or_else(|| outcome.effective_window());
    reset.unwrap_or_else(|| {
        // No wait helps; the window ends all the same.
        let (_, period, _) = algorithm.frame();
        let period = period.unwrap_or_default();
        let now = at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        match (algorithm, now) {
            (Algorithm::FixedWindow(_), Some(now)) => {
                let past = now.as_micros() % period.as_micros().max(1);
                period.saturating_sub(Duration::from_micros(u64::try_from(past).unwrap_or(0)))
            }
            _ => period,
        }
    })
}
