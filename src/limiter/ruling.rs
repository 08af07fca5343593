//! The path of a request through a limiter, for the layers: `charge → rule → hold`.
//!
//! A layer reads the charges of a request and asks for a ruling. How it tells the client is the layer's part.
//! The future of the request is a [`HeldCall`](crate::line::HeldCall).

use std::borrow::Cow;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::waiting::{Caller, Ended, NO_TIMER, Wait};
use super::{Charges, Limiter, PendingOutcomes};
use crate::clock::Micros;
use crate::decision::Outcomes;
use crate::diagnostics::diagnose;
use crate::error::StoreError;
use crate::line::Turn;
use crate::plan::{self, Finding};
use crate::store::{Charge, Charged, Wanted};

/// The ruling on a request. The numbers are in the outcomes that come with it.
pub(crate) enum Ruled {
    /// The request goes on, without numbers.
    Untold,
    /// The request goes on, when its turn has come if it has one.
    Allowed(Option<Box<Turn>>),
    Denied,
    /// The store could not decide.
    Failed(StoreError),
    /// The request is allowed and would have to wait, but there is no timer to wake it.
    NoTimer,
    /// The store has not answered yet, or the request waits.
    Later(Box<Question>),
}

/// A request without a ruling yet.
pub(crate) struct Question {
    charges: Charges,
    caller: Option<Caller>,
    coming: Pending,
}

enum Pending {
    /// Waits for the finding of a resolver; nothing is charged yet.
    Plan(plan::PendingLookup),
    Outcomes(StoreAnswer),
    /// The request was denied, and waits for its turn.
    Turn(Box<dyn Wait>),
    /// The request would leave its queue too late.
    Late(Box<Late>),
}

/// The result of a question.
pub(crate) enum Resumed {
    /// The finding of a resolver, with which the request can be charged now.
    Found(Finding),
    Ruled(Ruled),
}

/// A request that would leave its queue too late. It is denied, whatever the store says now.
struct Late {
    /// The numbers without the request.
    numbers: Pin<Box<dyn Future<Output = Result<Outcomes, StoreError>> + Send>>,
    /// The numbers with it, in case the store cannot answer or has lost the queue.
    before: Outcomes,
    queue: usize,
    /// The wait after which the request would leave in time.
    wait: Micros,
}

/// How a layer asks for a ruling.
#[derive(Clone, Copy)]
pub(crate) struct Asking {
    pub(crate) wanted: Wanted,
    /// `None` if the request cannot wait.
    pub(crate) caller: Option<Caller>,
    /// Set if charges have to be settled, even if the client goes away before the store has answered.
    pub(crate) hold_answer: Option<HoldAnswer>,
}

/// Holds an answer that comes later, as [`PendingOutcomes`]. It is a pointer, so that a program that settles nothing does
/// not contain the code.
#[derive(Clone, Copy)]
pub(crate) struct HoldAnswer(fn(&Limiter, &[Charge], StoreAnswer) -> StoreAnswer);

type StoreAnswer = Pin<Box<dyn Future<Output = Result<Outcomes, StoreError>> + Send>>;

impl HoldAnswer {
    pub(crate) fn new() -> Self {
        Self(|limiter, charges, answer| Box::pin(PendingOutcomes::new(limiter, charges, answer)))
    }
}

/// The charges of a request. Nearly all requests have their answer at once, and then the charges are not
/// kept.
#[derive(Clone, Copy)]
struct ChargedRequest<'a> {
    charges: &'a [Charge],
    caller: Option<Caller>,
}

/// Returns the charges that the store has answered. A policy that allows everything without its store was not
/// asked.
pub(crate) fn asked<'a>(charges: &'a [Charge], outcomes: &Outcomes) -> Cow<'a, [Charge]> {
    if !outcomes.is_degraded() {
        return Cow::Borrowed(charges);
    }
    let is_in = |charge: &&Charge| outcomes.iter().any(|(policy, _)| policy == charge.policy);
    charges.iter().filter(is_in).copied().collect()
}

impl ChargedRequest<'_> {
    #[inline(never)]
    fn later(self, coming: Pending) -> Ruled {
        Ruled::Later(Box::new(Question {
            charges: Charges::from_slice(self.charges),
            caller: self.caller,
            coming,
        }))
    }
}

impl Late {
    /// Returns the outcomes of a request that its queue denies.
    fn outcomes(&self, numbers: Option<Outcomes>) -> Outcomes {
        let numbers = numbers.filter(|numbers| numbers.iter().any(|(it, _)| it == self.queue));
        let mut told = numbers.unwrap_or_else(|| self.before.clone());
        told.deny(self.queue, self.wait);
        told
    }
}

impl Question {
    /// Waits for the finding of a resolver.
    pub(crate) fn of_plan(coming: plan::PendingLookup) -> Box<Self> {
        Box::new(Self {
            charges: Charges::new(),
            caller: None,
            coming: Pending::Plan(coming),
        })
    }

    pub(crate) fn charges(&self) -> &[Charge] {
        &self.charges
    }

    /// Returns whether the request waits for others, and not for the store.
    pub(crate) fn waits_its_turn(&self) -> bool {
        matches!(self.coming, Pending::Turn(_))
    }

    /// Continues the request. Its numbers are written into `outcomes`.
    pub(crate) fn poll(
        &mut self,
        limiter: &Limiter,
        outcomes: &mut Outcomes,
        cx: &mut Context<'_>,
    ) -> Poll<Resumed> {
        let asked = ChargedRequest {
            charges: &self.charges,
            caller: self.caller,
        };
        Poll::Ready(Resumed::Ruled(match &mut self.coming {
            Pending::Plan(coming) => {
                return Poll::Ready(Resumed::Found(ready!(Pin::new(coming).poll(cx))));
            }
            Pending::Outcomes(answer) => {
                let answer = ready!(answer.as_mut().poll(cx));
                match limiter.policies.checked(asked.charges, answer) {
                    Ok(told) => {
                        *outcomes = told;
                        limiter.ruled(asked, outcomes)
                    }
                    Err(error) => Ruled::Failed(error),
                }
            }
            Pending::Turn(waiter) => {
                let (told, is_charged) = match ready!(waiter.poll(cx)) {
                    Ok(Ended::Charged(told)) => (told, true),
                    Ok(Ended::Denied(told)) => (told, false),
                    Err(error) => {
                        limiter.policies.store_has_failed(&error);
                        return Poll::Ready(Resumed::Ruled(Ruled::Failed(error)));
                    }
                };
                limiter.policies.store.answered();
                *outcomes = told;
                if is_charged {
                    limiter.ruled(asked, outcomes)
                } else {
                    Ruled::Denied
                }
            }
            Pending::Late(late) => {
                let numbers = ready!(late.numbers.as_mut().poll(cx));
                let numbers = limiter.policies.checked(asked.charges, numbers);
                *outcomes = late.outcomes(numbers.ok());
                Ruled::Denied
            }
        }))
    }
}

impl Limiter {
    /// Returns whether a request may have to wait for its turn.
    pub(crate) fn may_hold(&self) -> bool {
        self.policies.waits.is_some() || self.policies.queue.is_some()
    }

    /// Rules on a request with these charges. Outcomes have room for several policies, and moving them would
    /// cost as much as deciding: they are read in place.
    #[inline]
    pub(crate) fn rule(
        &self,
        charges: &[Charge],
        asking: Asking,
        outcomes: &mut Outcomes,
    ) -> Ruled {
        let Asking { wanted, caller, .. } = asking;
        let asked = ChargedRequest { charges, caller };
        if let Some(waits) = &self.policies.waits
            && let Some(caller) = caller
            && let Some(waiter) = waits.wait_behind_others(self, charges, caller)
        {
            return asked.later(Pending::Turn(waiter));
        }
        match self.decide(charges, wanted, outcomes) {
            Charged::Now(Ok(true)) if !wanted.includes(true) => Ruled::Untold,
            Charged::Now(Ok(true)) => self.allow(asked, outcomes),
            Charged::Now(Ok(false)) => self.deny(asked, outcomes),
            Charged::Now(Err(error)) => Ruled::Failed(error),
            Charged::Later(answer) => asked.later(Pending::Outcomes(match asking.hold_answer {
                Some(HoldAnswer(hold)) => hold(self, charges, answer),
                None if charges.iter().any(|it| self.is_a_queue(it.policy)) => {
                    Box::pin(PendingOutcomes::of_turn(self, charges, answer))
                }
                None => answer,
            })),
        }
    }

    fn ruled(&self, asked: ChargedRequest<'_>, outcomes: &Outcomes) -> Ruled {
        if outcomes.is_allowed() {
            self.allow(asked, outcomes)
        } else {
            self.deny(asked, outcomes)
        }
    }

    #[inline]
    fn allow(&self, asked: ChargedRequest<'_>, outcomes: &Outcomes) -> Ruled {
        if self.policies.queue.is_none() {
            return Ruled::Allowed(None);
        }
        self.queue_up(asked, outcomes)
    }

    /// Lets an allowed request take its turn, if there is a queue for it.
    fn queue_up(&self, asked: ChargedRequest<'_>, outcomes: &Outcomes) -> Ruled {
        let charges = &*self::asked(asked.charges, outcomes);
        let asked = ChargedRequest { charges, ..asked };
        let Some(queued) = self.queued(charges, outcomes) else {
            return Ruled::Allowed(None);
        };
        if let Some(caller) = asked.caller
            && caller.deadline.is_some()
            && let Some(wait) = caller.misses(self.wait_of(&queued), self.timers().now())
        {
            self.forgo(charges, outcomes);
            let numbers = self.numbers_without(charges);
            return asked.later(Pending::Late(Box::new(Late {
                numbers: Box::pin(numbers.wait()),
                before: outcomes.clone(),
                queue: queued.policy(),
                wait,
            })));
        }
        if let Ok(turn) = self.stand(&queued) {
            return Ruled::Allowed(turn.map(Box::new));
        }
        self.forgo(charges, outcomes);
        diagnose(&NO_TIMER);
        Ruled::NoTimer
    }

    /// Denies a request, unless it waits for its turn.
    fn deny(&self, asked: ChargedRequest<'_>, outcomes: &Outcomes) -> Ruled {
        self.policies.look_at_costs(asked.charges, outcomes);
        if let Some(waits) = &self.policies.waits
            && let Some(caller) = asked.caller
            && let Some(waiter) = waits.denied(self, asked.charges, caller, outcomes)
        {
            return asked.later(Pending::Turn(waiter));
        }
        Ruled::Denied
    }

    /// Returns whether a denied request would wait for its turn. It takes no place.
    #[cfg(feature = "config")]
    pub(crate) fn would_wait(
        &self,
        charges: &[Charge],
        caller: Caller,
        outcomes: &Outcomes,
    ) -> bool {
        let waits = self.policies.waits.as_ref();
        waits.is_some_and(|waits| waits.would_wait(charges, caller, outcomes))
    }
}
