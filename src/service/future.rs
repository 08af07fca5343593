use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::Refused;
use super::layer::Rules;
use crate::decision::Outcomes;
use crate::error::StoreError;
use crate::line::{NoTimer, Turn};
use crate::store::{Charge, answered};

type Answer = Pin<Box<dyn Future<Output = Result<Outcomes, StoreError>> + Send>>;

/// What becomes of a request.
pub(super) enum Ruling<T, E> {
    /// It goes on.
    Pass,
    /// It goes on when it is its turn.
    Hold(Turn),
    /// It is answered with this.
    Refuse(Result<T, E>),
}

/// Rules on the store's answer to these charges.
pub(super) fn rule<Q, T, E>(
    rules: &Rules<Q, T, E>,
    charges: &[Charge],
    answer: Result<Outcomes, StoreError>,
) -> Ruling<T, E> {
    let refused = match answered(charges, answer) {
        Err(error) => Refused::Store(error),
        Ok(outcomes) if !outcomes.is_allowed() => {
            rules.limiter.look_at_costs(charges, &outcomes);
            let told = rules.limiter.told(charges, &outcomes).into_owned();
            Refused::OverLimit(rules.limiter.decision(told))
        }
        Ok(outcomes) => match turn(rules, charges, &outcomes) {
            Ok(None) => return Ruling::Pass,
            Ok(Some(turn)) => return Ruling::Hold(turn),
            Err(NoTimer) => Refused::NoTimer,
        },
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
        Asking {
            answer: Answer,
            // Not inline, since most futures never wait and all would be as large as this.
            charges: Vec<Charge>,
            rules: Arc<Rules<Q, S::Response, S::Error>>,
            held: Option<Box<(S, Q)>>,
        },
        Held {
            turn: Turn,
            is_its_turn: bool,
            held: Option<Box<(S, Q)>>,
        },
        Calling {
            #[pin]
            future: S::Future,
        },
        Refused {
            answer: Option<Result<S::Response, S::Error>>,
        },
    }
}

impl<S: Service<Q>, Q> LimitFuture<S, Q> {
    pub(super) fn asking(
        answer: Answer,
        charges: &[Charge],
        rules: Arc<Rules<Q, S::Response, S::Error>>,
        ready_inner: S,
        request: Q,
    ) -> Self {
        let held = Some(Box::new((ready_inner, request)));
        Self {
            state: State::Asking {
                answer,
                charges: charges.to_vec(),
                rules,
                held,
            },
        }
    }

    /// `inner` is not ready: while its request waits for its turn, others may be served.
    pub(super) fn held(turn: Turn, inner: S, request: Q) -> Self {
        Self {
            state: State::held(turn, inner, request),
        }
    }

    pub(super) fn calling(future: S::Future) -> Self {
        Self {
            state: State::Calling { future },
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
    fn held(turn: Turn, inner: S, request: Q) -> Self {
        Self::Held {
            turn,
            is_its_turn: false,
            held: Some(Box::new((inner, request))),
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
                StateProj::Asking {
                    answer,
                    charges,
                    rules,
                    held,
                } => {
                    let answer = ready!(answer.as_mut().poll(cx));
                    let (mut ready_inner, request) = *held.take().expect(AGAIN);
                    match rule(rules, charges, answer) {
                        Ruling::Pass => State::Calling {
                            future: ready_inner.call(request),
                        },
                        Ruling::Hold(turn) => {
                            let not_ready = ready_inner.clone();
                            State::held(turn, not_ready, request)
                        }
                        Ruling::Refuse(answer) => State::Refused {
                            answer: Some(answer),
                        },
                    }
                }
                StateProj::Held {
                    turn,
                    is_its_turn,
                    held,
                } => {
                    if !*is_its_turn {
                        ready!(turn.poll(cx));
                        *is_its_turn = true;
                    }
                    let (inner, _) = held.as_deref_mut().expect(AGAIN);
                    ready!(inner.poll_ready(cx))?;
                    let (mut inner, request) = *held.take().expect(AGAIN);
                    State::Calling {
                        future: inner.call(request),
                    }
                }
                StateProj::Calling { future } => return future.poll(cx),
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
