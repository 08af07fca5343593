//! Asks a ledger to decide. No other file does.
//!
//! An answer is checked here, and the health of the store is reported. A decision is then concluded: large costs are
//! warned of, parts become units, and the request is counted.

use std::mem;
use std::pin::Pin;
use std::slice;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::counting::Asked;
use super::policies::Shape;
use super::prices::Prices;
use super::{Charges, Limiter, LocalLimiter, Policies, Purpose};
use crate::algorithm::Limit;
use crate::clock::Micros;
use crate::decision::{Decision, Names, Outcomes, OwnWindow};
use crate::error::{StoreError, StoreErrorKind};
use crate::key::{IntoKey, Key};
use crate::plan::{Choice, RuleLimit};
use crate::store::{Charge, Charged, Ledger, Reply, Wanted, answered, check};

impl<L: Ledger + ?Sized> Limiter<L> {
    /// Asks for a decision on these charges, and checks an answer that comes at once. One that comes later is to be
    /// [checked](Policies::checked).
    #[inline]
    pub(crate) fn decide(
        &self,
        charges: &[Charge],
        wanted: Wanted,
        outcomes: &mut Outcomes,
    ) -> Charged {
        let error = match self.ledger.charge(charges, wanted, outcomes) {
            Charged::Now(Ok(is_allowed)) if !wanted.includes(is_allowed) => {
                self.policies.store.answered();
                return Charged::Now(Ok(is_allowed));
            }
            Charged::Now(Ok(_)) => match check(charges, outcomes) {
                Ok(()) => {
                    self.policies.store.answered();
                    // Without the numbers of allowed requests, a denial is one, whatever its numbers are.
                    let is_allowed = wanted.includes(true) && outcomes.is_allowed();
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
        self.ledger.decide(charges)
    }

    /// Decides, and returns the outcomes in units.
    pub(super) async fn decided(self, charges: Charges) -> Result<Outcomes, StoreError> {
        let answer = self.ask(&charges).wait().await;
        self.policies.answered(&charges, answer)
    }

    /// Takes as many units as there are. The answer is to be checked.
    pub(super) fn take(&self, charges: &[Charge]) -> Reply<Result<(u32, Outcomes), StoreError>> {
        self.ledger.take_up_to(charges)
    }
}

impl LocalLimiter {
    /// Decides one request of this key at this cost, and charges every policy if all allow it.
    pub fn check_now(&self, key: impl IntoKey, cost: u32) -> Decision {
        let (key, policies) = (key.into_key(), &*self.policies);
        // It is decided in place, because moving a decision costs as much as making it.
        let names = Arc::clone(&policies.names);
        let mut decision = Decision::new(names, Outcomes::new(Micros::ZERO));
        decision.change(|outcomes| match policies.shape_at(cost) {
            Shape::OnePlain(policy) => {
                let ledger = self.ledger.inner();
                let is_allowed = ledger.charge_one(policy, (&key, cost), None, outcomes);
                policies.count_one(Asked::of(policy, &key, cost), is_allowed, outcomes);
            }
            Shape::OnePriced(policy) => self.decide_priced(policy, &key, cost, outcomes),
            Shape::OneLimited(policy) => self.decide_limited(policy, key, cost, outcomes),
            _ => self.decide_alike(key, cost, outcomes),
        });
        decision
    }

    /// Decides and charges as [`check_now`](Self::check_now) does, and returns only the verdict.
    ///
    /// Without the numbers, a decision takes a fraction of the time.
    #[inline]
    pub fn admit_now(&self, key: impl IntoKey, cost: u32) -> bool {
        self.admit_key(&key.into_key(), cost)
    }

    // A function of its own, so that it is compiled here as a whole, and not in parts with its callers.
    #[inline(never)]
    fn admit_key(&self, key: &Key, cost: u32) -> bool {
        let policies = &*self.policies;
        let Some(policy) = policies.only_plain(cost) else {
            return self.admit_as(policies.shape_at(cost), key, cost);
        };
        let is_admitted = self.ledger.inner().admit_one(policy, key, cost);
        policies.count_judged_by_one(policy, (key, cost), is_admitted);
        is_admitted
    }

    // A function of its own, since the path of one plain policy is smaller without it.
    #[inline(never)]
    fn admit_as(&self, shape: Shape, key: &Key, cost: u32) -> bool {
        match shape {
            Shape::OnePriced(policy) => self.admit_priced(policy, key, cost),
            Shape::OneLimited(policy) => self.admit_limited(policy, *key, cost),
            Shape::SeveralPlain => self.admit_alike(key, cost),
            _ => self.admit_charges(&self.asked_alike_now(*key, cost, Purpose::Decide)),
        }
    }

    /// Decides under the only policy, which has a factor.
    fn decide_priced(&self, policy: usize, key: &Key, cost: u32, outcomes: &mut Outcomes) {
        self.with_price(policy, (key, cost), |charge| {
            let (ledger, priced) = (self.ledger.inner(), (key, charge.cost));
            let is_allowed = ledger.charge_one(policy, priced, charge.limit, outcomes);
            let charges = slice::from_ref(charge);
            self.policies.prices.convert_to_units(charges, outcomes);
            let asked = Asked::of(policy, key, cost);
            self.policies.count_one(asked, is_allowed, outcomes);
        });
    }

    /// Returns the limit of a request under the only policy, or `None` if that exempts it. The key becomes that of the
    /// state.
    #[inline]
    fn choice(&self, policy: usize, key: &mut Key) -> Option<(Option<Limit>, Choice)> {
        self.policies.mistakes.note_asked_alike();
        let limits = self.policies.limits.as_ref()?;
        let choice = limits.choice(policy, self.asker.as_deref(), key);
        match choice.given {
            RuleLimit::Nothing => None,
            RuleLimit::Own => Some((None, choice)),
            RuleLimit::Limit(limit) => Some((Some(limit), choice)),
        }
    }

    /// Decides under the only policy, which has several limits.
    fn decide_limited(&self, policy: usize, mut key: Key, cost: u32, outcomes: &mut Outcomes) {
        let Some((limit, choice)) = self.choice(policy, &mut key) else {
            return;
        };
        let ledger = self.ledger.inner();
        let is_allowed = ledger.charge_one(policy, (&key, cost), limit, outcomes);
        let window = limit.map(|_| OwnWindow(choice.window));
        outcomes.ruled_by(policy, choice.rule, window);
        let asked = Asked::of(policy, &key, cost);
        self.policies.count_one(asked, is_allowed, outcomes);
    }

    fn decide_alike(&self, key: Key, cost: u32, outcomes: &mut Outcomes) {
        let charges = self.asked_alike_now(key, cost, Purpose::Decide);
        self.decide_all(&charges, outcomes);
    }

    /// Decides on these charges, and counts the request.
    pub(super) fn decide_all(&self, charges: &[Charge], outcomes: &mut Outcomes) {
        // The store in this process always answers, about each charge.
        let _ = self.decide(charges, Wanted::Everything, outcomes);
        self.policies.conclude(charges, outcomes, |_| false);
    }

    fn admit_limited(&self, policy: usize, mut key: Key, cost: u32) -> bool {
        let Some((limit, _)) = self.choice(policy, &mut key) else {
            return true;
        };
        let ledger = self.ledger.inner();
        let is_admitted = ledger.admit_under(policy, (&key, cost), limit);
        let policies = &self.policies;
        policies.count_judged_by_one(policy, (&key, cost), is_admitted);
        is_admitted
    }

    #[inline]
    fn admit_priced(&self, policy: usize, key: &Key, cost: u32) -> bool {
        let Some(cell) = self.policies.prices.ungrowing(policy) else {
            // A limit that was reached may grow, and that needs the numbers.
            return self.check_now(*key, cost).is_allowed();
        };
        let ledger = self.ledger.inner();
        let is_admitted = match Prices::whole_cost(cell, cost) {
            Some(parts) => ledger.admit_one(policy, key, parts),
            None => self.admit_reduced(policy, key, cost),
        };
        let policies = &self.policies;
        policies.count_judged_by_one(policy, (key, cost), is_admitted);
        if !is_admitted {
            cell.note_reached();
        }
        is_admitted
    }

    // A function of its own, since the whole price is the usual one.
    #[inline(never)]
    fn admit_reduced(&self, policy: usize, key: &Key, cost: u32) -> bool {
        self.with_price(policy, (key, cost), |charge| {
            let ledger = self.ledger.inner();
            ledger.admit_under(policy, (key, charge.cost), charge.limit)
        })
    }

    fn admit_alike(&self, key: &Key, cost: u32) -> bool {
        let policies = &*self.policies;
        policies.mistakes.note_asked_alike();
        match self
            .ledger
            .inner()
            .admit_alike(&policies.limited, key, cost)
        {
            Some(verdict) => {
                let asked = policies.limited.iter();
                let asked = asked.map(|(policy, _)| Asked::of(*policy, key, cost));
                policies.count_judged(asked, verdict);
                verdict.is_ok()
            }
            None => self.admit_charges(&self.charges_now(*key, cost, Purpose::Decide)),
        }
    }

    #[inline(never)]
    fn admit_charges(&self, charges: &[Charge]) -> bool {
        let policies = &*self.policies;
        // A limit that was reached may grow, and a policy in shadow counts what it would refuse.
        let wanted = if policies.prices.are_any() || !policies.modes.are_plain() {
            Wanted::Everything
        } else {
            Wanted::Refusals
        };
        let mut outcomes = Outcomes::new(Micros::ZERO);
        let decided = self.decide(charges, wanted, &mut outcomes);
        let is_admitted = matches!(decided, Charged::Now(Ok(true)));
        if wanted.includes(is_admitted) {
            policies.conclude(charges, &mut outcomes, |_| false);
        } else {
            policies.count_judged(policies.asked(charges, |_| false), Ok(()));
        }
        is_admitted
    }

    /// Takes as many units as there are.
    pub(super) fn take_now(&self, charges: &[Charge]) -> (u32, Outcomes) {
        self.ledger.inner().take_up_to_now(charges)
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

    /// Concludes a decision by its outcomes, which become those in units. What some charges cost is counted when they
    /// are settled.
    #[inline]
    pub(super) fn conclude(
        &self,
        charges: &[Charge],
        outcomes: &mut Outcomes,
        is_settled: impl Fn(&Charge) -> bool + Copy,
    ) {
        self.look_at_costs(charges, outcomes);
        self.prices.convert_to_units(charges, outcomes);
        self.count_decided(self.asked(charges, is_settled), outcomes);
    }

    /// Checks a store's answer to these charges, and concludes the decision.
    fn answered(
        &self,
        charges: &[Charge],
        answer: Result<Outcomes, StoreError>,
    ) -> Result<Outcomes, StoreError> {
        let mut answer = self.checked(charges, answer);
        match &mut answer {
            Ok(outcomes) => self.conclude(charges, outcomes, |_| false),
            Err(_) => self.count_failed(charges),
        }
        answer
    }
}

/// The future of a decision.
///
/// A decision has room for several policies, and moving it costs as much as the decision itself. So it is
/// made and checked in place, and moved as rarely as possible.
pub(super) struct Deciding {
    /// `None` once the decision has been returned.
    names: Option<Arc<Names>>,
    charged: Charged,
    /// The outcomes, if they are ready.
    outcomes: Outcomes,
    /// The charges, if they have to be checked later.
    asked: Option<(Arc<Policies>, Box<[Charge]>)>,
}

impl Deciding {
    #[inline]
    pub(super) fn new<L: Ledger + ?Sized>(limiter: &Limiter<L>, charges: &[Charge]) -> Self {
        let policies = &limiter.policies;
        let mut this = Self {
            names: Some(Arc::clone(&policies.names)),
            charged: Charged::Now(Ok(false)),
            outcomes: Outcomes::new(Micros::ZERO),
            asked: None,
        };
        this.charged = limiter.decide(charges, Wanted::Everything, &mut this.outcomes);
        match this.charged {
            Charged::Now(Ok(_)) => policies.conclude(charges, &mut this.outcomes, |_| false),
            Charged::Now(Err(_)) => policies.count_failed(charges),
            Charged::Later(_) => this.asked = Some((Arc::clone(policies), charges.into())),
        }
        this
    }

    /// Waits for this future, which checks the charges itself.
    pub(super) fn later(
        policies: &Policies,
        decided: impl Future<Output = Result<Outcomes, StoreError>> + Send + 'static,
    ) -> Self {
        Self {
            names: Some(Arc::clone(&policies.names)),
            charged: Charged::Later(Box::pin(decided)),
            outcomes: Outcomes::new(Micros::ZERO),
            asked: None,
        }
    }
}

impl Future for Deciding {
    type Output = Result<Decision, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self {
            names,
            charged,
            outcomes,
            asked,
        } = &mut *self;
        let answer = match charged {
            Charged::Now(Ok(_)) => {
                let Some(names) = names.take() else {
                    return Poll::Pending;
                };
                let outcomes = mem::replace(outcomes, Outcomes::new(Micros::ZERO));
                return Poll::Ready(Ok(Decision::new(names, outcomes)));
            }
            Charged::Now(answer) => {
                let none = Err(StoreError::new(StoreErrorKind::Unavailable));
                mem::replace(answer, none).map(|_| Outcomes::new(Micros::ZERO))
            }
            Charged::Later(answer) => {
                let answer = ready!(answer.as_mut().poll(cx));
                match asked {
                    Some((policies, charges)) => policies.answered(charges, answer),
                    None => answer,
                }
            }
        };
        match names.take() {
            Some(names) => Poll::Ready(answer.map(|outcomes| Decision::new(names, outcomes))),
            // The decision has been returned before.
            None => Poll::Pending,
        }
    }
}
