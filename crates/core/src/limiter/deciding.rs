//! Asks a backend to decide. No other file does.
//!
//! An answer is checked here, and the health of the store is reported. A decision is then concluded: large costs are
//! warned of, parts become units, and the request is counted.

use std::iter;
use std::slice;
use std::sync::Arc;

use smallvec::SmallVec;

use super::counting::{Decided, Tally};
use super::policies::Shape;
use super::prices::Prices;
use super::{Limiter, LocalLimiter, Policies, Purpose};
use crate::algorithm::Limit;
use crate::clock::Micros;
use crate::decision::{Decision, Outcomes, OwnWindow};
use crate::error::StoreError;
use crate::factor::FactorCell;
use crate::key::Key;
use crate::plan::{Choice, RuleLimit};
use crate::store::{Backend, Charge, Charged, Reply, Wanted, answered, check};

impl<L: Backend + ?Sized> Limiter<L> {
    /// Asks for a decision on these charges, and checks an answer that comes at once. One that comes later is to be
    /// [checked](Policies::checked).
    // For `tower-ratelimit`.
    #[doc(hidden)]
    #[inline]
    pub fn decide(&self, charges: &[Charge], wanted: Wanted, outcomes: &mut Outcomes) -> Charged {
        let error = match self.backend.charge(charges, wanted, outcomes) {
            Charged::Now(Ok(is_allowed)) if !wanted.includes(is_allowed) => {
                self.policies.store.answered();
                return Charged::Now(Ok(is_allowed));
            }
            Charged::Now(Ok(_)) => match check(charges, outcomes) {
                Ok(()) => {
                    self.policies.store.answered();
                    // Without the numbers of allowed requests, a denial is one, whatever its numbers are.
                    let is_allowed = matches!(wanted, Wanted::Everything) && outcomes.is_allowed();
                    return Charged::Now(Ok(is_allowed));
                }
                Err(error) => error,
            },
            Charged::Now(Err(error)) => error,
            later @ Charged::Later(_) => return later,
        };
        self.policies.store_has_failed(&error);
        Charged::Now(Err(error))
    }

    /// Asks for a decision, and returns the outcomes by value. They are to be [checked](Policies::checked).
    pub(crate) fn ask(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>> {
        self.backend.decide(charges)
    }

    /// Decides on these charges, and counts the request. An answer that comes at once is written in place.
    pub(super) fn decision_on(&self, charges: &[Charge]) -> Reply<Result<Decision, StoreError>> {
        let mut decision = self.policies.decision(Outcomes::new(Micros::ZERO));
        let mut answer = Charged::Now(Ok(false));
        decision.change(|outcomes| answer = self.decide_all(charges, outcomes));
        let answer = match answer {
            Charged::Now(Ok(_)) => return Reply::Now(Ok(decision)),
            // It has been reported.
            Charged::Now(Err(error)) => {
                let tallies = self.policies.tallies(charges);
                self.policies.count(tallies, Decided::Nothing);
                return Reply::Now(Err(error));
            }
            Charged::Later(answer) => answer,
        };
        self.once_answered(
            charges,
            Reply::Later(answer),
            |policies, charges, answer| {
                let outcomes = policies.answered(charges, answer)?;
                Ok(Decision::new(Arc::clone(&policies.names), outcomes))
            },
        )
    }

    /// Decides on these charges, and concludes the decision if the answer comes at once.
    pub(super) fn decide_all(&self, charges: &[Charge], outcomes: &mut Outcomes) -> Charged {
        let answer = self.decide(charges, Wanted::Everything, outcomes);
        if let Charged::Now(Ok(_)) = answer {
            self.policies.conclude(charges, outcomes);
        }
        answer
    }

    /// Converts the answer of the store to these charges, now or later.
    pub(super) fn once_answered<A: 'static, T>(
        &self,
        charges: &[Charge],
        answer: Reply<A>,
        convert: impl FnOnce(&Policies, &[Charge], A) -> T + Send + 'static,
    ) -> Reply<T> {
        match answer {
            Reply::Now(answer) => Reply::Now(convert(&self.policies, charges, answer)),
            Reply::Later(answer) => {
                let policies = Arc::clone(&self.policies);
                let charges: SmallVec<[Charge; 1]> = SmallVec::from_slice(charges);
                Reply::later(async move { convert(&policies, &charges, answer.await) })
            }
        }
    }
}

impl Policies {
    /// Takes as many units as there are. The answer is to be checked.
    pub(super) fn ask_for_units(
        &self,
        charges: &[Charge],
    ) -> Reply<Result<(u32, Outcomes), StoreError>> {
        self.backend.acquire_up_to(charges)
    }
}

impl LocalLimiter {
    /// Decides as [`Limiter::check`] does. The outcomes are empty before.
    #[inline]
    pub(super) fn decide_at_once(&self, mut key: Key, cost: u32, outcomes: &mut Outcomes) {
        let policies = &*self.policies;
        let policy = match policies.shape_at(cost) {
            Shape::OnePlain(policy) => {
                let backend = self.backend.inner();
                backend.charge_one(policy, (&key, cost), None, outcomes);
                policy
            }
            Shape::OnePriced(policy) => {
                self.decide_priced(policy, &key, cost, outcomes);
                policy
            }
            Shape::OneLimited(policy) => {
                if !self.decide_limited(policy, &mut key, cost, outcomes) {
                    return;
                }
                policy
            }
            _ => return self.decide_alike(key, cost, outcomes),
        };
        let tally = iter::once(Tally::of(policy, &key, cost));
        policies.count(tally, Decided::Outcomes(outcomes));
    }

    /// Decides as [`Limiter::admit`] does.
    // A function of its own, so that it is compiled here as a whole, and not in parts with its callers.
    #[inline(never)]
    pub(super) fn admit_at_once(&self, key: &Key, cost: u32) -> bool {
        let policies = &*self.policies;
        let Some(policy) = policies.only_plain(cost) else {
            return self.admit_as(policies.shape_at(cost), key, cost);
        };
        let is_admitted = self.backend.inner().admit_one(policy, key, cost);
        let tally = iter::once(Tally::of(policy, key, cost));
        policies.count(tally, Decided::by_one(policy, is_admitted));
        is_admitted
    }

    // A function of its own, since the path of one plain policy is smaller without it.
    #[inline(never)]
    fn admit_as(&self, shape: Shape, key: &Key, cost: u32) -> bool {
        let (policies, backend) = (&*self.policies, self.backend.inner());
        let mut of_rule;
        let (policy, key, is_admitted) = match shape {
            Shape::OnePriced(policy) => match policies.prices.ungrowing(policy) {
                Some(cell) => (policy, key, self.admit_priced((policy, cell), key, cost)),
                // A limit that was reached may grow, and that needs the numbers.
                None => return self.check(*key, cost).now().is_allowed(),
            },
            Shape::OneLimited(policy) => {
                of_rule = *key;
                let Some((limit, _)) = self.choice(policy, &mut of_rule) else {
                    return true;
                };
                let is_admitted = backend.admit_under(policy, (&of_rule, cost), limit);
                (policy, &of_rule, is_admitted)
            }
            _ => {
                let alike = (shape == Shape::SeveralPlain)
                    .then(|| backend.admit_alike(&policies.limited, key, cost))
                    .flatten();
                let Some(verdict) = alike else {
                    let admit = |charges: &[Charge]| self.admit_charges(charges);
                    return self.with_charges_now(*key, cost, Purpose::Decide, admit);
                };
                policies.mistakes.note_alike();
                let tallies = policies.limited.iter();
                let tallies = tallies.map(|(policy, _)| Tally::of(*policy, key, cost));
                policies.count(tallies, Decided::Verdict(verdict));
                return verdict.is_ok();
            }
        };
        let tally = iter::once(Tally::of(policy, key, cost));
        policies.count(tally, Decided::by_one(policy, is_admitted));
        is_admitted
    }

    /// Decides under the only policy, which has a factor.
    fn decide_priced(&self, policy: usize, key: &Key, cost: u32, outcomes: &mut Outcomes) {
        self.with_price(policy, (key, cost), |charge| {
            let (backend, priced) = (self.backend.inner(), (key, charge.cost));
            backend.charge_one(policy, priced, charge.limit, outcomes);
            let charges = slice::from_ref(charge);
            self.policies.prices.convert_to_units(charges, outcomes);
        });
    }

    /// Returns the limit of a request under the only policy, or `None` if that exempts it. The key becomes that of the
    /// state.
    #[inline]
    fn choice(&self, policy: usize, key: &mut Key) -> Option<(Option<Limit>, Choice)> {
        let limits = self.policies.limits.as_ref()?;
        let choice = limits.choice(policy, self.context.as_deref(), key);
        match choice.given {
            RuleLimit::Nothing => None,
            RuleLimit::Own => Some((None, choice)),
            RuleLimit::Limit(limit) => Some((Some(limit), choice)),
        }
    }

    /// Decides under the only policy, which has several limits. Returns whether one of them applies.
    fn decide_limited(
        &self,
        policy: usize,
        key: &mut Key,
        cost: u32,
        outcomes: &mut Outcomes,
    ) -> bool {
        let Some((limit, choice)) = self.choice(policy, key) else {
            return false;
        };
        let backend = self.backend.inner();
        backend.charge_one(policy, (key, cost), limit, outcomes);
        let window = limit.map(|_| OwnWindow(choice.window));
        outcomes.ruled_by(policy, choice.rule, window);
        true
    }

    fn decide_alike(&self, key: Key, cost: u32, outcomes: &mut Outcomes) {
        self.with_charges_now(key, cost, Purpose::Decide, |charges| {
            // The store in this process always answers, about each charge.
            let _ = self.decide_all(charges, outcomes);
        });
    }

    /// Admits under the only policy, which has a factor that cannot grow.
    #[inline]
    fn admit_priced(&self, (policy, cell): (usize, &FactorCell), key: &Key, cost: u32) -> bool {
        let backend = self.backend.inner();
        let is_admitted = match Prices::whole_cost(cell, cost) {
            Some(parts) => backend.admit_one(policy, key, parts),
            None => self.admit_reduced(policy, key, cost),
        };
        if !is_admitted {
            cell.note_reached();
        }
        is_admitted
    }

    // A function of its own, since the whole price is the usual one.
    #[inline(never)]
    fn admit_reduced(&self, policy: usize, key: &Key, cost: u32) -> bool {
        self.with_price(policy, (key, cost), |charge| {
            let backend = self.backend.inner();
            backend.admit_under(policy, (key, charge.cost), charge.limit)
        })
    }

    #[inline(never)]
    fn admit_charges(&self, charges: &[Charge]) -> bool {
        let policies = &*self.policies;
        // A limit that was reached may grow, and a policy in shadow counts what it would refuse.
        let wanted = if policies.prices.are_any()
            || !policies.modes.are_plain()
            || policies.groups.is_some()
        {
            Wanted::Everything
        } else {
            Wanted::Refusals
        };
        let mut outcomes = Outcomes::new(Micros::ZERO);
        let decided = self.decide(charges, wanted, &mut outcomes);
        let is_admitted = matches!(decided, Charged::Now(Ok(true)));
        if wanted.includes(is_admitted) {
            policies.conclude(charges, &mut outcomes);
        } else {
            policies.count(policies.tallies(charges), Decided::Verdict(Ok(())));
        }
        is_admitted
    }
}

impl Policies {
    /// Checks a store's answer to these charges, and reports the store's health.
    pub(super) fn checked(
        &self,
        charges: &[Charge],
        answer: Result<Outcomes, StoreError>,
    ) -> Result<Outcomes, StoreError> {
        let answer = answered(charges, answer);
        match &answer {
            Ok(_) => self.store.answered(),
            Err(error) => self.store_has_failed(error),
        }
        answer
    }

    /// Concludes a decision by its outcomes, which become those in units.
    #[inline]
    pub(super) fn conclude(&self, charges: &[Charge], outcomes: &mut Outcomes) {
        self.look_at_costs(charges, outcomes);
        self.conclude_allowed(charges, outcomes);
    }

    /// Concludes a decision that allows a request.
    #[inline]
    pub(super) fn conclude_allowed(&self, charges: &[Charge], outcomes: &mut Outcomes) {
        self.prices.convert_to_units(charges, outcomes);
        if self.groups.is_some() && outcomes.is_degraded() {
            return self.count_payers(charges, outcomes);
        }
        self.count(self.tallies(charges), Decided::Outcomes(outcomes));
    }

    /// Counts a decision while the store is away, when a policy without an outcome allows everything, or leaves paying to another one.
    #[cold]
    fn count_payers(&self, charges: &[Charge], outcomes: &Outcomes) {
        let is_told = |charge: &Charge| outcomes.iter().any(|(it, _)| it == charge.policy);
        let counts = |charge: &&Charge| charge.alternative.is_none() || is_told(charge);
        let counted: SmallVec<[Charge; 1]> = charges.iter().filter(counts).copied().collect();
        self.count(self.tallies(&counted), Decided::Outcomes(outcomes));
    }

    /// Checks a store's answer to these charges, and concludes the decision.
    fn answered(
        &self,
        charges: &[Charge],
        answer: Result<Outcomes, StoreError>,
    ) -> Result<Outcomes, StoreError> {
        let mut answer = self.checked(charges, answer);
        match &mut answer {
            Ok(outcomes) => self.conclude(charges, outcomes),
            Err(_) => self.count(self.tallies(charges), Decided::Nothing),
        }
        answer
    }
}
