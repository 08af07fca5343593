//! What an answer costs beyond the room of the member of a group that has paid: the next members take it in their order.
//!
//! Each member is asked in one step of the store for as many units as it has, up to what is left. So no unit is charged twice, and no
//! member but the last is charged above its limit, whatever other requests take in between.

use std::slice;
use std::sync::Arc;

use crate::clock::Micros;
use crate::decision::Outcomes;
use crate::error::{StoreError, StoreErrorKind};
use crate::limiter::{Charges, Policies};
use crate::store::{Amendment, Backend, Charge, Reply, Taken};

/// The rest of a cost, and the members that take it.
pub(super) struct Spill {
    policies: Arc<Policies>,
    /// The member that has paid, and those after it.
    members: Charges,
    left: u32,
    /// Whether a member that is exempt takes what the others have no room for, and charges nothing.
    is_optional: bool,
}

impl Spill {
    /// Returns it for a charge with these real units, or `None` if they concern that charge alone: they are no more than it, no other
    /// member follows, or it was made in this process because the store was away.
    pub(super) fn of(
        policies: &Arc<Policies>,
        members: &[Charge],
        (charge, taken, units): (&Charge, Taken, u32),
    ) -> Option<Self> {
        let groups = policies.groups.as_ref()?;
        let mine = groups.spilling(charge.alternative)?;
        let left = units.checked_sub(charge.cost).filter(|left| *left > 0)?;
        let may_pay = |member: &&Charge| {
            let its = member.alternative.filter(|its| its.group == mine.group);
            its.is_some_and(|its| its.rank >= mine.rank)
        };
        let mut members: Charges = members.iter().filter(may_pay).copied().collect();
        if taken.is_degraded() || members.len() < 2 && !mine.is_optional {
            return None;
        }
        for member in &mut members {
            if member.limit.is_some() {
                policies.terms.leave_nothing(member);
            }
        }
        Some(Self {
            policies: Arc::clone(policies),
            members,
            left,
            is_optional: mine.is_optional,
        })
    }

    /// Charges the rest to the members in turn.
    pub(super) fn charge(mut self) -> Reply<Result<bool, StoreError>> {
        loop {
            let is_last = self.members.len() == 1 && !self.is_optional;
            if let (true, 1.., [last]) = (is_last, self.left, &*self.members) {
                return self.charge_above_the_limit(last);
            }
            if self.left == 0 || self.members.is_empty() {
                return Reply::Now(Ok(true));
            }
            for member in &mut self.members {
                member.cost = self.left;
            }
            match self.policies.ask_for_units(&self.members) {
                Reply::Now(Ok((units, outcomes))) => {
                    if let Err(error) = self.took(units, &outcomes) {
                        return Reply::Now(Err(error));
                    }
                }
                Reply::Now(Err(error)) => return Reply::Now(Err(error)),
                Reply::Later(taken) => {
                    return Reply::later(async move {
                        let (units, outcomes) = taken.await?;
                        self.took(units, &outcomes)?;
                        self.charge().wait().await
                    });
                }
            }
        }
    }

    /// Passes on to the members after the one that has taken these units.
    ///
    /// # Errors
    ///
    /// When the store is away, so that it has not charged them.
    fn took(&mut self, units: u32, outcomes: &Outcomes) -> Result<(), StoreError> {
        let rank = |member: &Charge| member.alternative.map(|its| its.rank);
        let has_taken = |member: &&Charge| {
            let mut each = outcomes.iter();
            each.any(|(policy, outcome)| policy == member.policy && outcome.is_allowed())
        };
        let taker = self.members.iter().find(has_taken);
        if outcomes.is_degraded() {
            self.take_back(taker, units, outcomes);
            return Err(StoreError::new(StoreErrorKind::Unavailable));
        }
        let units = units.min(self.left);
        self.left -= units;
        if let Some(taker) = taker.filter(|_| units > 0) {
            self.policies.count_spent(taker, units);
            // The last one takes the rest above its limit, also after it had some room.
            let of_taker = rank(taker);
            let is_optional = self.is_optional;
            let last = self.members.iter().map(rank).max().flatten();
            self.members
                .retain(|member| rank(member) > of_taker || !is_optional && rank(member) == last);
        } else {
            // None of them has any room.
            let last = self.members.iter().map(rank).max().flatten();
            self.members.retain(|member| rank(member) == last);
        }
        Ok(())
    }

    /// Takes back what this process has charged because the store was away: the store has charged the request, and what is lost of
    /// that is not counted here.
    fn take_back(&self, from: Option<&Charge>, units: u32, outcomes: &Outcomes) {
        let policies = &self.policies;
        if let Some(mut charge) = from.copied()
            && let Some(algorithm) = policies.algorithms.get(charge.policy)
        {
            charge.cost = units;
            let taken = Taken::of(&charge, algorithm, outcomes);
            let amendment = Amendment::TakeBack(taken);
            // This process answers at once.
            drop(policies.backend.amend(slice::from_ref(&charge), amendment));
        }
    }

    /// Charges the rest to the last member.
    fn charge_above_the_limit(&self, last: &Charge) -> Reply<Result<bool, StoreError>> {
        let policies = &self.policies;
        let Some(algorithm) = policies.algorithms.get(last.policy) else {
            return Reply::Now(Ok(true));
        };
        policies.count_spent(last, self.left);
        let mut charge = *last;
        charge.cost = self.left;
        let taken = Taken::of(&charge, algorithm, &Outcomes::new(Micros::ZERO));
        policies
            .backend
            .amend(slice::from_ref(&charge), Amendment::Add(taken))
    }
}
