//! The charges that a request holds until its end.
//!
//! All ways to end a request (an answer, a cancellation, a drop) go through one `settle`, so that each charge
//! is settled exactly once.

use std::cell::Cell;
use std::fmt;
use std::slice;
use std::sync::Arc;

use tokio::runtime::Handle;

use super::charges::{ReservedCharge, ReservedCharges};
use super::settlement::{release, settle};
use super::spill::Spill;
use crate::decision::Outcomes;
use crate::error::ConfigError;
use crate::limiter::on_drop::OnDrop;
use crate::limiter::{Charges, Limiter, Policies};
use crate::store::{Amendment, Backend, Charge, Reply, Taken};

/// The charges that a request holds until it ends, and that are settled exactly once.
///
/// It keeps the backend and the policies that have made the charges, so a reload in between changes nothing.
pub struct ReservationGuard {
    policies: Arc<Policies>,
    charges: ReservedCharges,
    /// How many of them are settled, counted from the first.
    settled: usize,
    /// Whether some of them hold slots.
    holds_slots: bool,
    /// Other charges of the request that settlements need: the members of groups that take what an answer costs beyond the room of
    /// the member that has paid, and the keys to which a policy guarantees something.
    beside: Vec<Charge>,
    /// The runtime in which the store has answered, if it did not answer at once.
    runtime: Option<Handle>,
}

/// The real cost of a request under a policy.
#[derive(Clone, Copy, Debug)]
pub enum RealCost {
    /// As many units.
    Units(u32),
    /// As many, by the size of an answer that did not tell them.
    Guess(u32),
    /// What it was charged on arrival.
    Estimate,
    /// The cost that the policy sets for a request that is not settled.
    Unsettled,
}

impl ReservationGuard {
    /// Creates an empty one, which is filled in place, because it is large to move.
    #[inline]
    pub(super) fn nothing(policies: &Arc<Policies>) -> Self {
        Self {
            policies: Arc::clone(policies),
            charges: ReservedCharges::new(),
            settled: 0,
            holds_slots: false,
            beside: Vec::new(),
            runtime: None,
        }
    }

    /// Holds those charges of a request for which this is true, as far as the store has made them, by these outcomes.
    #[inline]
    pub fn of(
        limiter: &Limiter,
        charges: &[Charge],
        is_held: impl Fn(&Charge) -> bool,
        outcomes: &Outcomes,
    ) -> Self {
        let mut guard = Self::nothing(&limiter.policies);
        if outcomes.is_allowed() {
            guard.hold(charges, is_held, outcomes);
        }
        guard
    }

    /// Holds those charges of an allowed request for which this is true, by these outcomes.
    ///
    /// A soft charge that did not fit was left out, and so is the charge of a policy that allows everything
    /// while its store is away: they need no settlement.
    #[inline]
    pub(super) fn hold(
        &mut self,
        charges: &[Charge],
        is_held: impl Fn(&Charge) -> bool,
        outcomes: &Outcomes,
    ) {
        for charge in charges.iter().filter(|charge| is_held(charge)) {
            let mut each = outcomes.iter();
            let Some((_, outcome)) = each.find(|(policy, _)| *policy == charge.policy) else {
                continue;
            };
            if !outcome.is_allowed() {
                continue;
            }
            let algorithm = self.policies.algorithms.get(charge.policy);
            let algorithm = algorithm.filter(|_| charge.slot.is_none());
            let taken = algorithm.map(|algorithm| Taken::with(algorithm, outcome, outcomes));
            if taken.is_some() || charge.slot.is_some() {
                self.holds_slots |= taken.is_none();
                let charge = *charge;
                self.charges.push(ReservedCharge { charge, taken });
            }
        }
        let policies = &*self.policies;
        let may_need = policies.groups.is_some() || !policies.guaranteed.is_empty();
        if may_need && !self.charges.is_empty() {
            self.keep_beside(charges);
        }
    }

    /// Keeps those charges of the request that may take a part of its cost in place of the member that has paid, and those of keys to
    /// which something is guaranteed, unless they are held.
    #[inline(never)]
    fn keep_beside(&mut self, charges: &[Charge]) {
        let policies = &*self.policies;
        let groups = policies.groups.as_ref().filter(|groups| groups.spill());
        let may_take = |charge: &Charge| {
            groups.is_some_and(|groups| groups.spilling(charge.alternative).is_some())
        };
        let held = |policy| self.charges.iter().any(|held| held.charge.policy == policy);
        let is_child = |charge: &Charge| {
            let mut guaranteed = policies.guaranteed.iter();
            guaranteed.any(|(above, below)| *below == charge.policy && held(*above))
                && !held(charge.policy)
        };
        let needed = |charge: &&Charge| may_take(charge) || is_child(charge);
        self.beside = charges.iter().filter(needed).copied().collect();
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
    pub fn is_empty(&self) -> bool {
        self.charges.is_empty()
    }

    /// Returns the policies that have charged the request.
    pub fn policies(&self) -> impl Iterator<Item = usize> {
        let unsettled = self.charges.get(self.settled..).unwrap_or_default();
        let settled = unsettled.iter().filter(|reserved| reserved.taken.is_some());
        settled.map(|reserved| reserved.charge.policy)
    }

    /// Settles the charge of each policy, exactly once.
    pub fn settle(&mut self, cost: impl Fn(usize) -> RealCost) {
        while self.settled < self.charges.len() {
            let ReservedCharge { charge, taken } = &self.charges[self.settled];
            // Even if `cost` or the store panics, it is not settled again.
            self.settled += 1;
            let Some(taken) = *taken else {
                continue;
            };
            // If `cost` panics, the estimate is counted.
            let spent = Cell::new(self.policies.prices.units(charge));
            let _counted = OnDrop::new(|| self.policies.count_spent(charge, spent.get()));
            let units = match cost(charge.policy) {
                RealCost::Units(units) => Some(units),
                RealCost::Guess(units) => {
                    self.policies.count_guess();
                    Some(units)
                }
                RealCost::Estimate => None,
                RealCost::Unsettled => self.policies.on_abandoned(charge.policy).units(),
            };
            let Some(units) = units else {
                continue;
            };
            if let Some(spill) = Spill::of(&self.policies, &self.beside, (charge, taken, units)) {
                self.settle_among(charge, spill);
            } else {
                spent.set(units);
                self.settle_one(charge, taken, units);
            }
        }
    }

    /// Settles the charge of a member of a group, after which the next members pay.
    fn settle_among(&self, charge: &Charge, spill: Spill) {
        self.policies.count_corrected(slice::from_ref(charge), None);
        let settled = spill.charge();
        if !matches!(settled, Reply::Now(Ok(_))) {
            let runtime = self.runtime.as_ref();
            settle(&self.policies, charge.policy, settled, runtime);
        }
    }

    fn settle_one(&self, charge: &Charge, taken: Taken, units: u32) {
        let prices = &self.policies.prices;
        let cost = prices.settled(charge, units);
        let (difference, amendment) = match cost.checked_sub(charge.cost) {
            Some(more) => (more, Amendment::Add(taken)),
            None => (charge.cost - cost, Amendment::TakeBack(taken)),
        };
        if difference == 0 {
            return;
        }
        self.policies.count_corrected(slice::from_ref(charge), None);
        let mut charge = *charge;
        if charge.limit.is_some() {
            prices.take_room_away(&mut charge);
            self.policies.terms.leave_nothing(&mut charge);
        }
        charge.cost = difference;
        let held = self.charges.iter().map(|held| &held.charge);
        let others = held.chain(&self.beside);
        let settled = self.policies.amend_one(&charge, others, amendment);
        if !matches!(settled, Reply::Now(Ok(_))) {
            let runtime = self.runtime.as_ref();
            settle(&self.policies, charge.policy, settled, runtime);
        }
    }

    #[inline(never)]
    fn free_slots(&self) {
        let slots = self
            .charges
            .iter()
            .filter(|reserved| reserved.taken.is_none());
        let mut slots = slots.map(|reserved| &reserved.charge);
        match (slots.next(), slots.next()) {
            (None, _) => {}
            (Some(slot), None) => self.free(slice::from_ref(slot)),
            (Some(first), Some(second)) => {
                let all = [first, second].into_iter().chain(slots);
                self.free(&all.copied().collect::<Charges>());
            }
        }
    }

    fn free(&self, slots: &[Charge]) {
        let released = self.policies.backend.amend(slots, Amendment::Release);
        release(&self.policies, slots, released, self.runtime.as_ref());
    }
}

impl Drop for ReservationGuard {
    #[inline]
    fn drop(&mut self) {
        if self.settled < self.charges.len() {
            self.settle(|_| RealCost::Unsettled);
        }
        if self.holds_slots {
            self.free_slots();
        }
    }
}

impl fmt::Debug for ReservationGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReservationGuard").finish_non_exhaustive()
    }
}
