//! Refuses a request before its body is read, if policies deny it that ask for nothing of the body.
//!
//! They are only looked at first, so that a request that they allow is charged once, by all policies together, when the body has
//! been read. If they deny it, they decide it for good, as a denial charges nothing. In between other requests may have given units
//! back: what a request is charged then is given back too, and its body is read.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};

use tower_ratelimit_core::__internal::{
    ChargedRequest, ClientCharges, Finding, PendingDecision, PlanLookup, Purpose, RealCost,
    Request as RequestCount, ReservationGuard, Verdict,
};

use super::{Enforcer, Reading};
use crate::clock::Micros;
use crate::decision::{Decision, Outcomes};
use crate::error::StoreError;
use crate::key::{AheadOfBody, Head};
use crate::middleware::deadline::deadline;
use crate::middleware::lists::Listed;
use crate::store::{Charges, Reply, Wanted};

/// Whether a request is refused, whatever its body says.
pub(in crate::middleware) enum Ahead {
    /// It is.
    Refused(Response<Bytes>),
    /// It is not known, so that the body has to be read.
    Unknown,
    /// The store is asked.
    Asked(Box<LookingAhead>),
}

/// A question to the store about a request whose body has not been read.
pub(in crate::middleware) struct LookingAhead {
    enforcer: Arc<Enforcer>,
    charges: Charges,
    answer: Answer,
}

enum Answer {
    /// What the policies would decide.
    Peeked(Box<Reply<Result<Decision, StoreError>>>),
    /// What they decide, after they have denied it once.
    Decided(Box<PendingDecision>),
}

impl Enforcer {
    /// Looks at a request whose body has not been read. The fields of the body that are in its extensions tell whether they were
    /// asked for.
    pub(in crate::middleware) fn look_ahead<B>(
        self: &Arc<Self>,
        request: &mut Request<B>,
        body: &AheadOfBody,
    ) -> Ahead {
        let head = Head::of(request);
        let lists = self.lists.as_ref();
        let listed = lists.map_or(Listed::Nowhere, |lists| lists.look_up(&head));
        match listed {
            _ if body.was_read() || self.limiter.groups().next().is_some() => {
                return Ahead::Unknown;
            }
            Listed::Allowed => return Ahead::Unknown,
            Listed::Denied => {
                self.policies.counters().request(RequestCount::Forbidden);
                return Ahead::Refused(self.answers.forbidden(request));
            }
            Listed::Nowhere => {}
        }
        let finding = match self.sources.look(&head) {
            None => None,
            Some(PlanLookup::Known(finding)) => Some(finding),
            Some(PlanLookup::Pending(_)) => return Ahead::Unknown,
        };
        let plan = self.plan(&head, finding.as_ref());
        if body.was_read() || finding.as_ref().and_then(Finding::refusal).is_some() {
            return Ahead::Unknown;
        }
        let mut charges = Charges::new();
        let mut later = Vec::new();
        for (policy, reader) in self.readers.iter().filter(|(_, reader)| !reader.is_queue()) {
            let reading = Reading {
                reader,
                head: &head,
                plan,
                finding: finding.as_ref(),
            };
            let limiter = &self.limiter;
            let of_others = charges.len();
            let one = [(*policy, reading)];
            let read = limiter
                .policies()
                .charges_for(one, Purpose::Reserve, &mut (), &mut charges);
            if body.was_read() {
                charges.truncate(of_others);
                later.push(*policy);
                continue;
            }
            if let Err(refusal) = read {
                return match self.refuse_for(refusal, request) {
                    Verdict::Refuse(response) => Ahead::Refused(response),
                    _ => Ahead::Unknown,
                };
            }
        }
        // What a level has for a request depends on the key to which it guarantees something.
        charges.retain(|charge| {
            let below = self.policies.guaranteed_below(charge.policy);
            below.is_none_or(|below| !later.contains(&below))
        });
        if charges.is_empty() {
            return Ahead::Unknown;
        }
        let peeked = ClientCharges::new(&self.limiter, charges.clone()).peek();
        Ahead::Asked(Box::new(LookingAhead {
            enforcer: Arc::clone(self),
            charges,
            answer: Answer::Peeked(Box::new(peeked)),
        }))
    }
}

impl LookingAhead {
    /// Returns the refusal of the request, or `None` if its body has to be read.
    pub(in crate::middleware) fn poll<B>(
        &mut self,
        request: &mut Request<B>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Response<Bytes>>> {
        let enforcer = &self.enforcer;
        loop {
            let mut outcomes = Outcomes::new(Micros::ZERO);
            let verdict = match &mut self.answer {
                Answer::Peeked(peeked) => {
                    let denied = match ready!(Pin::new(peeked).poll(cx)) {
                        Ok(decision) if !decision.is_allowed() => decision,
                        // Without an answer of the store, the policies say what happens, once the body has been read.
                        Ok(_) | Err(_) => return Poll::Ready(None),
                    };
                    let caller = enforcer
                        .policies()
                        .caller(|timers| deadline(request.headers(), request.extensions(), timers));
                    let (_, outcomes_seen) = denied.rules_and_outcomes();
                    let waits = caller.is_some_and(|caller| {
                        let charges = &self.charges;
                        enforcer
                            .policies()
                            .would_wait(charges, caller, outcomes_seen)
                    });
                    if waits {
                        return Poll::Ready(None);
                    }
                    let request = ChargedRequest {
                        charges: &self.charges,
                        wanted: Wanted::Everything,
                        caller,
                        is_settled: true,
                    };
                    enforcer.limiter.rule(request, &mut outcomes)
                }
                Answer::Decided(pending) => {
                    match ready!(pending.poll(&enforcer.limiter, &mut outcomes, cx)) {
                        Ok(verdict) => verdict,
                        Err(_) => return Poll::Ready(None),
                    }
                }
            };
            return Poll::Ready(match verdict {
                Verdict::Pending(pending) if !pending.waits_its_turn() => {
                    self.answer = Answer::Decided(pending);
                    continue;
                }
                // It leaves the line again.
                Verdict::Pending(_) => None,
                Verdict::Pass(_) | Verdict::Hold(..) => {
                    let (limiter, charges) = (&enforcer.limiter, &self.charges);
                    let mut held = ReservationGuard::of(limiter, charges, |_| true, &outcomes);
                    held.settle(|_| RealCost::Units(0));
                    None
                }
                refusal @ Verdict::Refuse(_) => {
                    match enforcer.answer(refusal, &self.charges, &outcomes, request) {
                        Verdict::Refuse(response) => Some(response),
                        _ => None,
                    }
                }
            });
        }
    }
}

impl fmt::Debug for LookingAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LookingAhead").finish_non_exhaustive()
    }
}
