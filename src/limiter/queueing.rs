//! Turns in a queue, for the layers that hold requests.

use std::sync::Arc;

use super::Charges;
use super::Limiter;
use super::background::spawn;
use crate::clock::{Micros, Timers};
use crate::decision::Outcomes;
use crate::error::StoreError;
use crate::line::{Free, Lines, NoTimer, Place, Turn};
use crate::policy::Policy;
use crate::store::Taken;
use crate::store::{Amendment, Charge, Ledger, Reply};

/// The charge of a limiter's queue for an allowed request.
#[derive(Clone, Copy)]
pub(crate) struct Queued {
    charge: Charge,
    place: Place,
    delay: Micros,
}

impl Queued {
    /// Returns the index of the policy.
    pub(crate) fn policy(&self) -> usize {
        self.charge.policy
    }
}

impl<L: Ledger + ?Sized> Limiter<L> {
    /// Returns the place of an allowed request with these charges, if there is a queue for it.
    pub(crate) fn queued(&self, charges: &[Charge], outcomes: &Outcomes) -> Option<Queued> {
        let (queue, _) = self.policies.queue.as_ref()?;
        let of_queue =
            |charge: &&Charge| charge.policy == *queue && charge.cost > 0 && !charge.is_shadow;
        let charge = *charges.iter().find(of_queue)?;
        let (_, outcome) = outcomes.iter().find(|(policy, _)| policy == queue)?;
        let delay = outcome.delay_micros();
        let begins = outcomes.at().saturating_add(delay);
        let ends = outcomes.at().saturating_add(outcome.reset_micros());
        let moments = (begins, ends.max(begins));
        let now = self.timers().now();
        let due = now.checked_add(delay.to_duration()).unwrap_or(now);
        let place = Place::new(charge.cost, moments, due);
        Some(Queued {
            charge,
            place: place.degraded(outcomes.is_degraded()),
            delay,
        })
    }

    /// Returns how long this request would wait for its turn.
    pub(crate) fn wait_of(&self, queued: &Queued) -> Micros {
        match &self.policies.queue {
            Some((_, lines)) => lines.wait(&queued.charge.key, queued.place).into(),
            None => queued.delay,
        }
    }

    /// Lets this request wait for its turn. Returns `None` if it can go on at once.
    pub(crate) fn stand(&self, queued: &Queued) -> Result<Option<Turn>, NoTimer> {
        let Some((_, lines)) = &self.policies.queue else {
            return Ok(None);
        };
        let (limiter, charge) = (self.clone(), queued.charge);
        let give_back = move |free| limiter.give_back(&charge, free);
        let delay = queued.delay.to_duration();
        let place = (queued.place, delay);
        let turn = Turn::join(lines, charge.key, place, Box::new(give_back))?;
        Ok(turn.map(|turn| turn.counted_by(self.begin_to_wait(charge.policy))))
    }

    /// Gives turns back that no request takes, in the background. Turns that the store cannot take back are
    /// kept for the next requests.
    fn give_back(&self, of: &Charge, free: Free) {
        let Some((_, lines)) = &self.policies.queue else {
            return;
        };
        let mut left = Some(free);
        while let Some(free) = left.take() {
            let charge = Charge {
                cost: free.count(),
                ..*of
            };
            let amendment = Amendment::GiveBack(free.begins());
            match self.ledger.amend(&[charge], amendment) {
                Reply::Now(Ok(false)) => left = lines.keep(&of.key, free),
                Reply::Now(_) => {}
                Reply::Later(answer) => {
                    let (limiter, lines) = (self.clone(), Arc::clone(lines));
                    settle(async move {
                        if let Ok(false) = answer.await
                            && let Some(free) = lines.keep(&charge.key, free)
                        {
                            limiter.give_back(&charge, free);
                        }
                    });
                }
            }
        }
    }

    /// Gives back the charges of a request that would leave its queue too late, in the background, and asks
    /// for the numbers without it.
    pub(crate) fn take_back(
        &self,
        charges: &[Charge],
        outcomes: &Outcomes,
        queued: &Queued,
    ) -> Reply<Result<Outcomes, StoreError>> {
        self.give_back(&queued.charge, Free::all_of(queued.place));
        for (charge, (_, outcome)) in charges.iter().zip(outcomes.iter()) {
            let is_other = charge.policy != queued.charge.policy;
            if is_other
                && outcome.is_allowed()
                && charge.cost > 0
                && let Some(algorithm) = self.policies.algorithms.get(charge.policy)
            {
                let amendment = Amendment::TakeBack(Taken::of(charge, algorithm, outcomes));
                if let Reply::Later(settled) = self.ledger.amend(&[*charge], amendment) {
                    settle(async move { drop(settled.await) });
                }
            }
        }
        let mut free = Charges::from_slice(charges);
        free.iter_mut().for_each(|charge| charge.cost = 0);
        self.ask(&free)
    }
}

/// Returns the queue among these policies, by its index, and its lines.
pub(super) fn queue(policies: &[Policy], timers: &Timers) -> Option<(usize, Arc<Lines>)> {
    let index = policies.iter().position(Policy::shapes)?;
    Some((
        index,
        Arc::new(Lines::new(policies[index].name(), timers.clone())),
    ))
}

/// Runs what a store has to finish while no request waits for it.
fn settle(settled: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        spawn(&runtime, settled);
    }
}
