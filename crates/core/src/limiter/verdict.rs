//! The verdict on a request, for the layers.
//!
//! A layer reads the charges of a request and asks for a verdict, which is counted here. How it tells the client is the
//! layer's part: it puts its own admission and refusal into the verdict, which goes to the future of the request, a
//! [`PendingCall`](crate::line::PendingCall).

use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::Instant;

use super::counting::Decided;
use super::waiting::{Caller, Ended, NO_TIMER, Wait};
use super::{Charges, Limiter, OnDropped, PendingOutcomes, Policies};
use crate::clock::{Micros, Timers};
use crate::decision::Outcomes;
use crate::diagnostics::diagnose;
use crate::error::StoreError;
use crate::line::{NoTimer, Verdict};
use crate::plan::{self, Finding};
use crate::store::{Charge, Charged, Wanted};

/// The verdict of a limiter on a request. The numbers are in the outcomes that come with it.
pub type LimiterVerdict = Verdict<Numbers, Denial, Box<PendingDecision>>;

/// Whether the numbers of an admitted request are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// The outcomes have them.
    Known,
    /// Nobody wanted them.
    Unknown,
}

/// Why a request is refused.
#[derive(Debug)]
pub enum Denial {
    /// A policy denies it.
    OverLimit,
    /// The store could not decide.
    Store(StoreError),
    /// The request is allowed and would have to wait, but there is no timer to wake it.
    NoTimer,
}

/// A request with its charges.
#[derive(Clone, Copy, Debug)]
pub struct ChargedRequest<'a> {
    /// One for each policy that counts it.
    pub charges: &'a [Charge],
    /// Whose numbers are wanted.
    pub wanted: Wanted,
    /// `None` if the request cannot wait.
    pub caller: Option<Caller>,
    /// Whether its charges have to be settled, even if the client goes away before the store has answered.
    pub is_settled: bool,
}

/// A request without a verdict yet. Nearly all requests have theirs at once, and then the charges are not copied.
pub struct PendingDecision {
    charges: Charges,
    caller: Option<Caller>,
    pending: Pending,
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

type StoreAnswer = Pin<Box<dyn Future<Output = Result<Outcomes, StoreError>> + Send>>;

/// A request that would leave its queue too late. It is denied, whatever the store says now.
struct Late {
    /// The numbers without the request.
    numbers: StoreAnswer,
    /// The numbers with it, in case the store cannot answer or has lost the queue.
    before: Outcomes,
    queue: usize,
    /// The wait after which the request would leave in time.
    wait: Micros,
}

/// Returns the charges that the store has answered. A policy that allows everything without its store was not
/// asked.
fn answered_charges<'a>(charges: &'a [Charge], outcomes: &Outcomes) -> Cow<'a, [Charge]> {
    if !outcomes.is_degraded() {
        return Cow::Borrowed(charges);
    }
    let is_in = |charge: &&Charge| outcomes.iter().any(|(policy, _)| policy == charge.policy);
    charges.iter().filter(is_in).copied().collect()
}

impl ChargedRequest<'_> {
    fn wait(self, pending: Pending) -> LimiterVerdict {
        Verdict::Pending(Box::new(PendingDecision {
            charges: Charges::from_slice(self.charges),
            caller: self.caller,
            pending,
        }))
    }
}

impl Late {
    /// Returns the outcomes of a request that its queue denies.
    fn outcomes(&self, numbers: Option<Outcomes>) -> Outcomes {
        let numbers = numbers.filter(|numbers| numbers.iter().any(|(it, _)| it == self.queue));
        let mut outcomes = numbers.unwrap_or_else(|| self.before.clone());
        outcomes.deny(self.queue, self.wait);
        outcomes
    }
}

impl PendingDecision {
    /// Waits for the finding of a resolver.
    pub fn of_plan(pending: plan::PendingLookup) -> Box<Self> {
        Box::new(Self {
            charges: Charges::new(),
            caller: None,
            pending: Pending::Plan(pending),
        })
    }

    /// Returns the charges of the request.
    pub fn charges(&self) -> &[Charge] {
        &self.charges
    }

    /// Returns whether the request waits for others, and not for the store.
    pub fn waits_its_turn(&self) -> bool {
        matches!(self.pending, Pending::Turn(_))
    }

    /// Continues the request. Its numbers are written into `outcomes`.
    ///
    /// # Errors
    ///
    /// When a resolver has found something, by which the request can be charged now.
    pub fn poll(
        &mut self,
        limiter: &Limiter,
        outcomes: &mut Outcomes,
        cx: &mut Context<'_>,
    ) -> Poll<Result<LimiterVerdict, Finding>> {
        let request = ChargedRequest {
            charges: &self.charges,
            wanted: Wanted::Everything,
            caller: self.caller,
            is_settled: false,
        };
        Poll::Ready(Ok(match &mut self.pending {
            Pending::Plan(pending) => {
                return Poll::Ready(Err(ready!(Pin::new(pending).poll(cx))));
            }
            Pending::Outcomes(answer) => {
                let answer = ready!(answer.as_mut().poll(cx));
                match limiter.policies.checked(request.charges, answer) {
                    Ok(answered) => {
                        *outcomes = answered;
                        limiter.judge(request, outcomes)
                    }
                    Err(error) => limiter.fail(request.charges, error),
                }
            }
            Pending::Turn(waiter) => match ready!(waiter.poll(cx)) {
                Ok(ended) => {
                    limiter.policies.store.answered();
                    match ended {
                        Ended::Charged(charged) => {
                            *outcomes = charged;
                            limiter.judge(request, outcomes)
                        }
                        Ended::Denied(denied) => {
                            *outcomes = denied;
                            limiter.refuse(request.charges, outcomes)
                        }
                    }
                }
                Err(error) => {
                    limiter.policies.store_has_failed(&error);
                    limiter.fail(request.charges, error)
                }
            },
            Pending::Late(late) => {
                let numbers = ready!(late.numbers.as_mut().poll(cx));
                let numbers = limiter.policies.checked(request.charges, numbers);
                *outcomes = late.outcomes(numbers.ok());
                limiter.refuse(request.charges, outcomes)
            }
        }))
    }
}

impl Policies {
    /// Returns the caller of a request, if the request may have to wait for its turn.
    pub fn caller(&self, deadline: impl FnOnce(&Timers) -> Option<Instant>) -> Option<Caller> {
        let timers = &self.timers;
        let may_wait = self.waits.is_some() || self.queue.is_some();
        may_wait.then(|| Caller {
            arrived: timers.now(),
            deadline: deadline(timers),
        })
    }

    /// Returns whether a denied request would wait for its turn. It takes no place.
    pub fn would_wait(&self, charges: &[Charge], caller: Caller, outcomes: &Outcomes) -> bool {
        let waits = self.waits.as_ref();
        waits.is_some_and(|waits| waits.would_wait(charges, caller, outcomes))
    }
}

impl Limiter {
    /// Decides a request, and counts it. Outcomes have room for several policies, and moving them would cost as much as
    /// deciding: they are written in place, in units.
    // For `tower-ratelimit`.
    #[doc(hidden)]
    #[inline]
    pub fn rule(&self, request: ChargedRequest<'_>, outcomes: &mut Outcomes) -> LimiterVerdict {
        let ChargedRequest {
            charges, wanted, ..
        } = request;
        if let Some(waits) = &self.policies.waits
            && let Some(caller) = request.caller
            && let Some(waiter) = waits.wait_behind_others(self, charges, caller)
        {
            return request.wait(Pending::Turn(waiter));
        }
        match self.decide(charges, wanted, outcomes) {
            Charged::Now(Ok(true)) if matches!(wanted, Wanted::Everything) => {
                self.allow(request, outcomes)
            }
            Charged::Now(Ok(true)) => {
                let tallies = self.policies.tallies(charges);
                self.policies.count(tallies, Decided::Verdict(Ok(())));
                Verdict::Pass(Numbers::Unknown)
            }
            Charged::Now(Ok(false)) => self.deny(request, outcomes),
            Charged::Now(Err(error)) => self.fail(charges, error),
            Charged::Later(answer) => self.wait_for_store(request, answer),
        }
    }

    /// A function of its own, since the store in this process answers at once.
    #[inline(never)]
    fn wait_for_store(&self, request: ChargedRequest<'_>, answer: StoreAnswer) -> LimiterVerdict {
        let charges = request.charges;
        let on_dropped = if request.is_settled {
            OnDropped::Settle
        } else if charges.iter().any(|it| self.is_a_queue(it.policy)) {
            OnDropped::GiveTurnBack
        } else {
            return request.wait(Pending::Outcomes(answer));
        };
        let answer = PendingOutcomes::new(self, charges, answer, on_dropped);
        request.wait(Pending::Outcomes(Box::pin(answer)))
    }

    fn judge(&self, request: ChargedRequest<'_>, outcomes: &mut Outcomes) -> LimiterVerdict {
        if outcomes.is_allowed() {
            self.allow(request, outcomes)
        } else {
            self.deny(request, outcomes)
        }
    }

    #[inline]
    fn allow(&self, request: ChargedRequest<'_>, outcomes: &mut Outcomes) -> LimiterVerdict {
        let verdict = if self.policies.queue.is_none() {
            Verdict::Pass(Numbers::Known)
        } else {
            self.queue_up(request, outcomes)
        };
        if let Verdict::Pass(_) | Verdict::Hold(..) = verdict {
            self.policies.conclude_allowed(request.charges, outcomes);
        }
        verdict
    }

    /// Lets an allowed request take its turn, if there is a queue for it.
    fn queue_up(&self, request: ChargedRequest<'_>, outcomes: &Outcomes) -> LimiterVerdict {
        let charges = &*answered_charges(request.charges, outcomes);
        let Some(queued) = self.queued(charges, outcomes) else {
            return Verdict::Pass(Numbers::Known);
        };
        if let Some(caller) = request.caller
            && caller.deadline.is_some()
            && let Some(wait) = caller.misses(self.wait_of(&queued), self.policies.timers.now())
        {
            self.forgo(charges, outcomes);
            let late = Pending::Late(Box::new(Late {
                numbers: Box::pin(self.numbers_without(charges).wait()),
                before: outcomes.clone(),
                queue: queued.policy(),
                wait,
            }));
            return ChargedRequest { charges, ..request }.wait(late);
        }
        match self.stand(&queued) {
            Ok(None) => Verdict::Pass(Numbers::Known),
            Ok(Some(turn)) => Verdict::Hold(Box::new(turn), Numbers::Known),
            Err(NoTimer) => {
                self.forgo(charges, outcomes);
                diagnose(&NO_TIMER);
                let tallies = self.policies.tallies(request.charges);
                self.policies.count(tallies, Decided::Nothing);
                Verdict::Refuse(Denial::NoTimer)
            }
        }
    }

    /// Denies a request, unless it waits for its turn.
    fn deny(&self, request: ChargedRequest<'_>, outcomes: &mut Outcomes) -> LimiterVerdict {
        if let Some(waits) = &self.policies.waits
            && let Some(caller) = request.caller
            && let Some(waiter) = waits.denied(self, request.charges, caller, outcomes)
        {
            return request.wait(Pending::Turn(waiter));
        }
        self.refuse(request.charges, outcomes)
    }

    fn refuse(&self, charges: &[Charge], outcomes: &mut Outcomes) -> LimiterVerdict {
        self.policies.conclude(charges, outcomes);
        Verdict::Refuse(Denial::OverLimit)
    }

    /// Refuses a request that the store could not decide. A policy in shadow does not refuse without its store either.
    #[cold]
    fn fail(&self, charges: &[Charge], error: StoreError) -> LimiterVerdict {
        let tallies = self.policies.tallies(charges);
        self.policies.count(tallies, Decided::Nothing);
        if charges.iter().all(Charge::is_shadow) {
            return Verdict::Pass(Numbers::Unknown);
        }
        Verdict::Refuse(Denial::Store(error))
    }
}

impl fmt::Debug for PendingDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingDecision").finish_non_exhaustive()
    }
}
