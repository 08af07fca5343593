use std::fmt;
use std::task::{Context, Poll, ready};

use smallvec::SmallVec;

use crate::clock::{Micros, Timer};
use crate::decision::Outcomes;
use crate::limiter::Limiter;
use crate::store::{Charge, Ledger};

/// A request's turn: ready when it may go on. If it goes away before that, it gives its place back.
pub(super) struct Turn {
    timer: Timer,
    places: SmallVec<[Charge; 1]>,
    departure: Micros,
    limiter: Limiter<dyn Ledger>,
}

/// There is nothing that would wake a request when it is due.
pub(super) struct NoTimer;

impl Turn {
    /// The turn of a request that was charged this and allowed, if it has to wait for one.
    pub(super) fn of(
        charges: &[Charge],
        outcomes: &Outcomes,
        limiter: &Limiter<dyn Ledger>,
    ) -> Result<Option<Self>, NoTimer> {
        let delay = outcomes.delay();
        if delay == Micros::ZERO {
            return Ok(None);
        }
        let mut turn = Self {
            places: SmallVec::new(),
            departure: outcomes.at().saturating_add(delay),
            limiter: limiter.clone(),
            timer: limiter.timers().after(delay.to_duration()).ok_or(NoTimer)?,
        };
        let held = outcomes
            .iter()
            .filter(|(_, outcome)| outcome.delay_micros() > Micros::ZERO);
        for (policy, _) in held {
            let place = charges.iter().find(|charge| charge.policy == policy);
            turn.places.extend(place.copied());
        }
        Ok(Some(turn))
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        ready!(self.timer.poll(cx));
        // It is used now, even if the request goes away before it has gone on.
        self.places.clear();
        Poll::Ready(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        for place in &self.places {
            self.limiter.give_back(place, self.departure);
        }
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").finish_non_exhaustive()
    }
}
