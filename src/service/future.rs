use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::Refused;
use super::kept::Kept;
use super::layer::Rules;
use crate::clock::Micros;
use crate::decision::Outcomes;
use crate::error::StoreError;
use crate::limiter::{Answer as HeldAnswer, heed};
use crate::line::{NoTimer, Turn};
use crate::observe::Request;
use crate::plan::{Coming, Finding};
use crate::store::{Charge, Charged, Wanted, answered};

type Answer = Pin<Box<dyn Future<Output = Result<Outcomes, StoreError>> + Send>>;

/// What becomes of a request.
pub(super) enum Ruling<T, E> {
    /// It goes on, and holds this until its answer.
    Pass(Option<Box<Kept<T, E>>>),
    /// It goes on when it is its turn.
    Hold(Turn, Option<Box<Kept<T, E>>>),
    /// It is answered with this.
    Refuse(Result<T, E>),
}

/// What comes of a question to the store.
pub(super) enum Asked<T, E> {
    Ruled(Ruling<T, E>),
    /// The store has not answered yet. Not inline, since most futures never wait and all would be as large as this.
    Later(Answer, Vec<Charge>),
}

/// Asks about a request for which a resolver has this.
#[inline]
pub(super) fn ask<Q, T, E>(
    rules: &Rules<Q, T, E>,
    request: &Q,
    finding: Option<&Finding>,
) -> Asked<T, E> {
    if let Some(Err(error)) = finding.map(heed) {
        rules.limiter.count_failed(&[]);
        return Asked::Ruled(Ruling::Refuse(rules.refuse(Refused::Store(error))));
    }
    let charges = rules.read(request, finding);
    if charges.is_empty() {
        rules.limiter.counters().request(Request::Exempt);
        return Asked::Ruled(Ruling::Pass(None));
    }
    let mut outcomes = Outcomes::new(Micros::ZERO);
    match rules
        .limiter
        .charge(&charges, Wanted::Everything, &mut outcomes)
    {
        Charged::Now(answer) => Asked::Ruled(rule(rules, &charges, answer.map(|_| outcomes))),
        Charged::Later(answer) if rules.settles() => {
            let answer = Box::pin(HeldAnswer::new(&rules.limiter, &charges, answer));
            Asked::Later(answer, charges.to_vec())
        }
        Charged::Later(answer) => Asked::Later(answer, charges.to_vec()),
    }
}

/// Rules on the store's answer to these charges.
fn rule<Q, T, E>(
    rules: &Rules<Q, T, E>,
    charges: &[Charge],
    answer: Result<Outcomes, StoreError>,
) -> Ruling<T, E> {
    let answer = answered(charges, answer);
    let refused = match answer {
        // What refuses no request does not do it without its store either.
        Err(_) if charges.iter().all(Charge::is_shadow) => {
            rules.limiter.count_failed(charges);
            return Ruling::Pass(None);
        }
        Err(error) => {
            rules.limiter.count_failed(charges);
            Refused::Store(error)
        }
        Ok(outcomes) if !outcomes.is_allowed() => {
            rules.limiter.look_at_costs(charges, &outcomes);
            let told = rules.limiter.told(charges, &outcomes).into_owned();
            rules.limiter.count_decided(charges, &told);
            Refused::OverLimit(rules.limiter.decision(told))
        }
        Ok(outcomes) => {
            if let Ok(turn) = turn(rules, charges, &outcomes) {
                let told = rules.limiter.told(charges, &outcomes);
                rules.limiter.count_decided(charges, &told);
                let kept = Kept::of(rules, charges, &outcomes);
                return match turn {
                    None => Ruling::Pass(kept),
                    Some(turn) => Ruling::Hold(turn, kept),
                };
            }
            rules.limiter.free_slots(charges, &outcomes);
            rules.limiter.count_failed(charges);
            Refused::NoTimer
        }
    };
    Ruling::Refuse(rules.refuse(refused))
}

/// The turn of a request that was allowed, if it has to wait for one.
fn turn<Q, T, E>(
    rules: &Rules<Q, T, E>,
    charges: &[Charge],
    outcomes: &Outcomes,
) -> Result<Option<Turn>, NoTimer> {
    match rules.limiter.queued(charges, outcomes) {
        Some(queued) => rules.limiter.stand(&queued),
        None => Ok(None),
    }
}

pin_project! {
    /// The response of a [`Limit`](super::Limit) service.
    ///
    /// Dropping it drops the request, or the call to the inner service. What was charged stays
    /// charged, but for a place in a [`LeakyQueue`](crate::LeakyQueue) before its turn: the next request takes
    /// that, and the last place is given back.
    pub struct LimitFuture<S, Q>
    where
        S: Service<Q>,
    {
        #[pin]
        state: State<S, Q>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, Q>
    where
        S: Service<Q>,
    {
        Finding {
            coming: Box<Coming>,
            rules: Arc<Rules<Q, S::Response, S::Error>>,
            held: Option<Box<(S, Q)>>,
        },
        Asking {
            answer: Answer,
            charges: Vec<Charge>,
            rules: Arc<Rules<Q, S::Response, S::Error>>,
            held: Option<Box<(S, Q)>>,
        },
        Held {
            turn: Turn,
            is_its_turn: bool,
            kept: Option<Box<Kept<S::Response, S::Error>>>,
            held: Option<Box<(S, Q)>>,
        },
        Calling {
            #[pin]
            future: S::Future,
            kept: Option<Box<Kept<S::Response, S::Error>>>,
        },
        Refused {
            answer: Option<Result<S::Response, S::Error>>,
        },
    }
}

impl<S: Service<Q>, Q> LimitFuture<S, Q> {
    pub(super) fn finding(
        coming: Coming,
        rules: Arc<Rules<Q, S::Response, S::Error>>,
        ready_inner: S,
        request: Q,
    ) -> Self {
        Self {
            state: State::Finding {
                coming: Box::new(coming),
                rules,
                held: Some(Box::new((ready_inner, request))),
            },
        }
    }

    pub(super) fn asking(
        answer: Answer,
        charges: Vec<Charge>,
        rules: Arc<Rules<Q, S::Response, S::Error>>,
        ready_inner: S,
        request: Q,
    ) -> Self {
        let held = Some(Box::new((ready_inner, request)));
        Self {
            state: State::Asking {
                answer,
                charges,
                rules,
                held,
            },
        }
    }

    /// `inner` is not ready: while its request waits for its turn, others may be served.
    pub(super) fn held(
        turn: Turn,
        kept: Option<Box<Kept<S::Response, S::Error>>>,
        inner: S,
        request: Q,
    ) -> Self {
        Self {
            state: State::held(turn, kept, inner, request),
        }
    }

    /// `inner` is ready.
    pub(super) fn calling(
        inner: &mut S,
        request: Q,
        kept: Option<Box<Kept<S::Response, S::Error>>>,
    ) -> Self {
        Self {
            state: State::calling(inner, request, kept),
        }
    }

    pub(super) fn refused(answer: Result<S::Response, S::Error>) -> Self {
        let answer = Some(answer);
        Self {
            state: State::Refused { answer },
        }
    }
}

impl<S: Service<Q>, Q> State<S, Q> {
    /// What is kept is dropped after the inner service has been called, or has panicked.
    fn calling(inner: &mut S, request: Q, kept: Option<Box<Kept<S::Response, S::Error>>>) -> Self {
        Self::Calling {
            future: inner.call(request),
            kept,
        }
    }

    fn held(
        turn: Turn,
        kept: Option<Box<Kept<S::Response, S::Error>>>,
        inner: S,
        request: Q,
    ) -> Self {
        Self::Held {
            turn,
            is_its_turn: false,
            kept,
            held: Some(Box::new((inner, request))),
        }
    }
}

impl<S: Service<Q> + Clone, Q> State<S, Q> {
    /// `inner` is ready.
    fn ruled(ruling: Ruling<S::Response, S::Error>, mut inner: S, request: Q) -> Self {
        match ruling {
            Ruling::Pass(kept) => Self::calling(&mut inner, request, kept),
            Ruling::Hold(turn, kept) => Self::held(turn, kept, inner.clone(), request),
            Ruling::Refuse(answer) => Self::Refused {
                answer: Some(answer),
            },
        }
    }
}

impl<S, Q> Future for LimitFuture<S, Q>
where
    S: Service<Q> + Clone,
{
    type Output = Result<S::Response, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        const AGAIN: &str = "polled after it was ready";
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProj::Finding {
                    coming,
                    rules,
                    held,
                } => {
                    let finding = ready!(Pin::new(&mut **coming).poll(cx));
                    let (inner, request) = *held.take().expect(AGAIN);
                    match ask(rules, &request, Some(&finding)) {
                        Asked::Ruled(ruling) => State::ruled(ruling, inner, request),
                        Asked::Later(answer, charges) => State::Asking {
                            answer,
                            charges,
                            rules: Arc::clone(rules),
                            held: Some(Box::new((inner, request))),
                        },
                    }
                }
                StateProj::Asking {
                    answer,
                    charges,
                    rules,
                    held,
                } => {
                    let answer = ready!(answer.as_mut().poll(cx));
                    let (inner, request) = *held.take().expect(AGAIN);
                    State::ruled(rule(rules, charges, answer), inner, request)
                }
                StateProj::Held {
                    turn,
                    is_its_turn,
                    kept,
                    held,
                } => {
                    if !*is_its_turn {
                        ready!(turn.poll(cx));
                        *is_its_turn = true;
                    }
                    let (inner, _) = held.as_deref_mut().expect(AGAIN);
                    ready!(inner.poll_ready(cx))?;
                    let (mut inner, request) = *held.take().expect(AGAIN);
                    State::calling(&mut inner, request, kept.take())
                }
                StateProj::Calling { future, kept } => {
                    let answer = ready!(future.poll(cx));
                    if let Some(kept) = kept.take() {
                        kept.settle(&answer);
                    }
                    return Poll::Ready(answer);
                }
                StateProj::Refused { answer } => return Poll::Ready(answer.take().expect(AGAIN)),
            };
            state.set(next);
        }
    }
}

impl<S: Service<Q>, Q> fmt::Debug for LimitFuture<S, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitFuture").finish_non_exhaustive()
    }
}
