//! The future of a request that waits under `wait_up_to`.
//!
//! It polls the store only when its request stands at the front, so that a line of any length makes one call
//! at a time.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use super::{
    ASKS_EVERY, ASKS_SHARED_EVERY, Caller, Ended, NO_TIMER, SHORTEST, Step, Wait, Waits, is_low,
};
use crate::clock::Timer;
use crate::decision::Outcomes;
use crate::diagnostics::diagnose;
use crate::error::StoreError;
use crate::limiter::{Charges, Limiter, OnDropped, PendingOutcomes};
use crate::line::{LineId, Number, Position, QueuedCharges, Vacancy, WaitPlace, queued_charges};
use crate::observe;
use crate::store::{Charge, Outlook, Reply, answered};

/// A waiting request: a future that is ready when the request was allowed, or stops waiting. Dropping it
/// leaves its place.
pub(super) struct Waiter {
    waits: Arc<Waits>,
    limiter: Limiter,
    charges: Charges,
    caller: Caller,
    asks: QueuedCharges,
    /// When the request was first told how long to wait.
    waits_since: Option<Instant>,
    /// The line in which it stands, or would stand.
    line: LineId,
    place: Option<WaitPlace>,
    /// Counts the request as waiting.
    wait: Option<observe::Wait>,
    timer: Timer,
    /// Reports slots that are given back, once the request has asked for one.
    vacancy: Option<Vacancy>,
    /// How often the request asks for a slot, whatever its wait is.
    asks_every: Duration,
    step: Step,
    has_ended: bool,
}

impl Waiter {
    /// Prepares to wait in this line. Returns `None` if no timer would wake the request.
    pub(super) fn new(
        waits: &Arc<Waits>,
        limiter: &Limiter,
        charges: &[Charge],
        caller: Caller,
        line: LineId,
    ) -> Option<Box<Self>> {
        let Some(timer) = waits.timers().after(Duration::ZERO) else {
            diagnose(&NO_TIMER);
            return None;
        };
        let now = waits.timers().now();
        Some(Box::new(Self {
            waits: Arc::clone(waits),
            limiter: limiter.clone(),
            charges: Charges::from_slice(charges),
            asks: queued_charges(charges, now),
            caller,
            waits_since: None,
            line,
            place: None,
            wait: None,
            timer,
            vacancy: None,
            asks_every: ASKS_SHARED_EVERY,
            step: Step::Stands {
                due: now,
                may_ask: now,
                give_up: now,
            },
            has_ended: false,
        }))
    }

    /// Takes a place in the line, if there is one.
    pub(super) fn take_place(&mut self) {
        let (waits, line) = (&self.waits, self.line);
        let bounds = (waits.places_in(line), waits.places);
        let order = (is_low(&self.charges), self.caller.arrived);
        self.place = waits.queue.stand(line, self.asks.clone(), order, bounds);
        if self.place.is_some() {
            self.wait = Some(self.limiter.begin_to_wait(line.0));
        }
    }

    fn number(&self) -> Number {
        self.place.as_ref().map_or_else(
            || Number::of_a_newcomer(is_low(&self.charges), self.waits.timers().now()),
            WaitPlace::number,
        )
    }

    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Result<Ended, StoreError>> {
        loop {
            match &mut self.step {
                Step::Stands {
                    due,
                    may_ask,
                    give_up,
                } => {
                    let (due, may_ask, give_up) = (*due, *may_ask, *give_up);
                    let is_freed = self
                        .vacancy
                        .as_ref()
                        .is_some_and(|it| it.poll(cx).is_ready());
                    let due = if is_freed { may_ask.min(due) } else { due };
                    ready!(self.stand(due, give_up, cx));
                }
                Step::Asks(answer) => {
                    let outcomes = ready!(answer.as_mut().poll(cx))?;
                    if outcomes.is_allowed() {
                        return Poll::Ready(Ok(Ended::Charged(outcomes)));
                    }
                    if self.place.is_none() {
                        return Poll::Ready(Ok(Ended::Denied(outcomes)));
                    }
                    if !self.goes_on(&outcomes) {
                        self.give_up();
                    }
                }
                Step::Estimates(answer) => {
                    let outlook = ready!(answer.as_mut().poll(cx))?;
                    let outcomes = self.outcomes_beside_others(&outlook);
                    if outcomes.is_allowed() {
                        // The store is away, and the policies with lines allow everything. The request need
                        // not wait, but what it has estimated was not charged.
                        self.ask();
                        continue;
                    }
                    if !self.goes_on(&outcomes) {
                        let had_place = self.place.take().is_some();
                        return Poll::Ready(Ok(Ended::Denied(if had_place {
                            // It holds up no request any more.
                            self.outcomes_beside_others(&outlook)
                        } else {
                            outcomes
                        })));
                    }
                    if let Step::Stands { due, .. } = &mut self.step {
                        // The request may come to the front earlier, if others go away.
                        *due = self.waits.timers().now();
                    }
                }
            }
        }
    }

    fn outcomes_beside_others(&self, outlook: &Outlook) -> Outcomes {
        let own = (self.number(), &self.asks);
        let mut outcomes = self.waits.estimate(outlook, own);
        if outcomes.is_allowed() {
            // The requests before it are about to ask.
            outcomes.put_behind(self.line.0, SHORTEST.into());
        }
        outcomes
    }

    /// Asks if the request is at the front and its wait is over. Otherwise it stays until something changes.
    fn stand(&mut self, due: Instant, give_up: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let now = self.waits.timers().now();
        // A step may pass over its turn, and over the end of its wait as well.
        let steps = self.waits.timers().are_stepped();
        let patience = self.waits.queue.patience();
        let stand = self.place.as_ref().map(|place| place.look(cx, now, due));
        let again = match stand {
            Some(Position::Front) if due <= now && (now <= give_up || steps) => {
                match self.line_ahead(now) {
                    Some(line) if self.move_to(line) => {}
                    Some(_) => self.give_up(),
                    None => self.ask(),
                }
                return Poll::Ready(());
            }
            Some(Position::Front) => due.min(give_up),
            // The request before it is about to ask, and then wakes this one.
            Some(Position::Behind(acts_by)) if steps && acts_by <= now + patience => acts_by,
            Some(Position::Behind(acts_by)) => acts_by.min(now + patience).min(give_up),
            None => now,
        };
        if now >= give_up && again <= now {
            self.give_up();
            return Poll::Ready(());
        }
        self.timer.reset(again);
        self.timer.poll(cx)
    }

    fn line_ahead(&self, now: Instant) -> Option<LineId> {
        let lines = self.waits.lines(&self.charges);
        self.place.as_ref()?.is_behind_in(lines, now)
    }

    fn ask(&mut self) {
        let charges = self.charges.clone();
        // Set before the request asks, so that no slot that is given back is missed.
        match &self.vacancy {
            Some(vacancy) => vacancy.look_ahead(),
            None => self.vacancy = Vacancy::watch(&charges),
        }
        let reply = self.limiter.ask(&charges);
        self.asks_every = match reply {
            Reply::Now(_) => ASKS_EVERY,
            Reply::Later(_) => ASKS_SHARED_EVERY,
        };
        let reply = match reply {
            // A client that goes away now is charged nothing either.
            Reply::Later(coming) => {
                let forgo = OnDropped::Forgo;
                let coming = PendingOutcomes::new(&self.limiter, &charges, coming, forgo);
                Reply::Later(Box::pin(coming))
            }
            now => now,
        };
        self.step = Step::Asks(Box::pin(
            async move { answered(&charges, reply.wait().await) },
        ));
    }

    pub(super) fn estimate(&mut self) {
        let (limiter, charges) = (&self.limiter, &self.charges);
        let outlook = self.waits.outlook(limiter, charges, self.number());
        self.step = Step::Estimates(outlook);
    }

    /// Stops waiting, and asks for the numbers to tell.
    fn give_up(&mut self) {
        self.place = None;
        self.wait = None;
        self.estimate();
    }

    /// Returns whether the request waits on after this denial.
    fn goes_on(&mut self, outcomes: &Outcomes) -> bool {
        let now = self.waits.timers().now();
        let hope = self.waits.line_for(
            &self.charges,
            self.caller,
            outcomes,
            now,
            self.waits_since,
            self.asks_every,
        );
        hope.is_some_and(|(line, step)| self.move_to(line) && self.waits(step, outcomes))
    }

    /// Waits after these outcomes, if the request stands in a line.
    pub(super) fn waits(&mut self, step: Step, outcomes: &Outcomes) -> bool {
        let now = self.waits.timers().now();
        let Some(place) = &self.place else {
            return false;
        };
        place.note(outcomes, now);
        self.waits_since.get_or_insert(now);
        self.step = step;
        true
    }

    /// Moves to another line, if there is a place in it.
    fn move_to(&mut self, line: LineId) -> bool {
        let places = self.waits.places_in(line);
        let Some(place) = &mut self.place else {
            return false;
        };
        let has_moved = place.move_to(line, places);
        if has_moved {
            self.line = line;
            if let Some(wait) = &mut self.wait {
                wait.move_to(line.0);
            }
        }
        has_moved
    }
}

impl Wait for Waiter {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Ended, StoreError>> {
        let ended = ready!(self.wait(cx));
        self.has_ended = true;
        Poll::Ready(ended)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let has_waited = self.waits_since.is_some();
        if has_waited && let Some(leaving) = self.waits.leaving.get(self.line.0) {
            leaving.ended(self.has_ended);
        }
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").finish_non_exhaustive()
    }
}
