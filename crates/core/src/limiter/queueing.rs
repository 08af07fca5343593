//! Turns in a queue, for the layers that hold requests.

use std::sync::Arc;

use super::background::spawn;
use super::{Charges, Limiter, ReservationGuard};
use crate::clock::{Micros, Timers};
use crate::decision::Outcomes;
use crate::error::StoreError;
use crate::line::{Free, LineOf, Lines, NoTimer, Place, Tenant, Turn};
use crate::policy::Policy;
use crate::store::{Amendment, Backend, Charge, Departure, Reply, Taken};

/// The charge of a limiter's queue for an allowed request.
#[derive(Clone, Copy)]
pub(crate) struct Queued {
    charge: Charge,
    line: LineOf,
    /// Whose request it is, if tenants share the queue.
    tenant: Option<Tenant>,
    place: Place,
    delay: Micros,
}

/// Turns that the store is asked to take back. If it is never known whether it did, they pass unused.
struct Returning {
    lines: Arc<Lines>,
    line: LineOf,
    free: Option<Free>,
}

impl Queued {
    /// Returns the index of the policy.
    pub(crate) fn policy(&self) -> usize {
        self.charge.policy
    }
}

impl Limiter {
    /// Returns whether the turn of a request that goes away without an answer is given back as a turn. If the policy says
    /// what such a request has cost, its charge is settled in place of that.
    pub(crate) fn keeps_its_turns(&self) -> bool {
        let queue = self.policies.queue.as_ref();
        queue.is_some_and(|(queue, _)| self.policies.on_abandoned(*queue).units().is_none())
    }

    /// Returns the place of an allowed request with these charges, if there is a queue for it.
    pub(crate) fn queued(&self, charges: &[Charge], outcomes: &Outcomes) -> Option<Queued> {
        let (queue, lines) = self.policies.queue.as_ref()?;
        let of_queue =
            |charge: &&Charge| charge.policy == *queue && charge.cost > 0 && !charge.is_shadow;
        let charge = *charges.iter().find(of_queue)?;
        let (_, outcome) = outcomes.iter().find(|(policy, _)| policy == queue)?;
        let delay = outcome.delay_micros();
        let begins = outcomes.at().saturating_add(delay);
        let ends = outcomes.at().saturating_add(outcome.reset_micros());
        let moments = [outcomes.at(), begins, ends.max(begins)];
        let now = self.policies.timers().now();
        let due = now.checked_add(delay.to_duration()).unwrap_or(now);
        let place = Place::new(charge.cost, moments, due);
        let line = if outcome.is_overflow() {
            LineOf::Overflow
        } else if lines.are_shared() {
            LineOf::Key(charge.key.root())
        } else {
            LineOf::Key(charge.key)
        };
        let tenant = lines.are_shared().then_some(Tenant {
            name: charge.key,
            weight: charge.weight,
        });
        Some(Queued {
            charge,
            line,
            tenant,
            place: place.degraded(outcomes.is_degraded()),
            delay,
        })
    }

    /// Returns how long this request would wait for its turn.
    pub(crate) fn wait_of(&self, queued: &Queued) -> Micros {
        match &self.policies.queue {
            Some((_, lines)) => lines.wait(queued.line, queued.place, queued.tenant).into(),
            None => queued.delay,
        }
    }

    /// Lets this request wait for its turn. Returns `None` if it can go on at once.
    pub(crate) fn stand(&self, queued: &Queued) -> Result<Option<Turn>, NoTimer> {
        let Some((_, lines)) = &self.policies.queue else {
            return Ok(None);
        };
        let (limiter, of) = (self.clone(), *queued);
        let give_back = move |free| limiter.give_back(&of, Some(free));
        let place = (of.place, of.tenant, of.delay.to_duration());
        let turn = Turn::join(lines, of.line, place, Box::new(give_back))?;
        Ok(turn.map(|turn| turn.counted_by(self.begin_to_wait(of.charge.policy))))
    }

    /// Gives the turn of a request back that is not served. Other requests of its line may move up into it.
    pub(crate) fn give_turn_back(&self, charges: &[Charge], outcomes: &Outcomes) {
        if outcomes.is_allowed()
            && let Some(queued) = self.queued(charges, outcomes)
            && let Some((_, lines)) = &self.policies.queue
        {
            let free = lines.free(queued.line, Free::all_of(queued.place, queued.tenant));
            self.give_back(&queued, free);
        }
    }

    /// Gives turns back that no request takes, in the background, and then those that are the last without
    /// them. The line keeps turns that the store cannot take back.
    fn give_back(&self, of: &Queued, free: Option<Free>) {
        let Some((_, lines)) = &self.policies.queue else {
            return;
        };
        let mut next = free;
        while let Some(free) = next.take() {
            let mut charge = of.charge;
            charge.cost = free.count();
            if let Some(tenant) = free.tenant() {
                (charge.key, charge.weight) = (tenant.name, tenant.weight);
            }
            let is_overflow = of.line == LineOf::Overflow;
            let departure = Departure::at(free.begins());
            let departure = departure.charged_where(free.is_degraded(), is_overflow);
            let returning = Returning {
                lines: Arc::clone(lines),
                line: of.line,
                free: Some(free),
            };
            match self
                .backend
                .amend(&[charge], Amendment::GiveBack(departure))
            {
                Reply::Now(answer) => next = returning.answered(answer.ok()),
                Reply::Later(answer) => {
                    let (limiter, of) = (self.clone(), *of);
                    self.finish(async move {
                        let free = returning.answered(answer.await.ok());
                        limiter.give_back(&of, free);
                    });
                }
            }
        }
    }

    /// Gives back, in the background, all that was charged to an allowed request which is not served.
    pub(crate) fn forgo(&self, charges: &[Charge], outcomes: &Outcomes) {
        if !outcomes.is_allowed() {
            return;
        }
        self.give_turn_back(charges, outcomes);
        let queue = self.policies.queue.as_ref().map(|(queue, _)| *queue);
        for charge in charges {
            let mut each = outcomes.iter();
            let own = each.find(|(policy, _)| *policy == charge.policy);
            if Some(charge.policy) != queue
                && charge.cost > 0
                && charge.slot.is_none()
                && own.is_some_and(|(_, outcome)| outcome.is_allowed())
                && let Some(algorithm) = self.policies.algorithms.get(charge.policy)
            {
                let amendment = Amendment::TakeBack(Taken::of(charge, algorithm, outcomes));
                let taken_back = self.policies.amend_one(charge, charges.iter(), amendment);
                if let Reply::Later(settled) = taken_back {
                    self.finish(async move { drop(settled.await) });
                }
            }
        }
        if self.has_slots() {
            let holds_a_slot = |charge: &Charge| charge.slot.is_some();
            drop(ReservationGuard::of(self, charges, holds_a_slot, outcomes));
        }
    }

    /// Runs what the store has to finish while no request waits for it.
    fn finish(&self, settled: impl Future<Output = ()> + Send + 'static) {
        spawn(&self.policies.backend, None, settled);
    }

    /// Asks for the numbers without a request of these charges.
    pub(crate) fn numbers_without(
        &self,
        charges: &[Charge],
    ) -> Reply<Result<Outcomes, StoreError>> {
        let mut free = Charges::from_slice(charges);
        free.iter_mut().for_each(|charge| charge.cost = 0);
        self.ask(&free)
    }
}

impl Returning {
    /// Records whether the store has taken the turns back, if that is known. Returns turns to give back next.
    fn answered(mut self, are_given_back: Option<bool>) -> Option<Free> {
        let free = self.free.take()?;
        self.lines.answered(self.line, free, are_given_back)
    }
}

impl Drop for Returning {
    fn drop(&mut self) {
        if let Some(free) = self.free.take() {
            let _ = self.lines.answered(self.line, free, None);
        }
    }
}

/// Returns the queue among these policies, by its index, and its lines.
pub(super) fn queue(policies: &[Policy], timers: &Timers) -> Option<(usize, Arc<Lines>)> {
    let index = policies.iter().position(Policy::shapes)?;
    let lines = Lines::new(policies[index].name(), timers.clone());
    let lines = match policies[index].fairness() {
        Some(fair) => lines.shared_by(fair.tenants()),
        None => lines,
    };
    Some((index, Arc::new(lines)))
}
