//! The future of all layers: it holds a request until its turn, and then calls the inner service.
//!
//! A layer implements [`Holding`] for what it has of a request, and [`Answering`] for how it decides and
//! answers. Both name types alone: what decides a waiting request is part of what it awaits.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::Turn;

/// The data that a layer keeps of a request while it is held.
pub trait Holding {
    /// The state of a request that has no verdict yet. It is small: every future has room for it.
    type Pending;
    /// The data that a request has from its admission until its answer.
    type Admission;
    /// What is answered in place of the service.
    type Refusal;

    /// Returns whether the request waits for other requests, rather than for a store. While it does, the
    /// readiness of the inner service is given up.
    fn waits_its_turn(pending: &Self::Pending) -> bool;

    /// Is there while the inner service is called or polled on behalf of the request.
    type Within;

    /// Begins the call to the service.
    fn enter(admission: &Self::Admission) -> Self::Within;
}

/// How a layer decides requests of a service, and answers them.
pub trait Answering<S: Service<Req>, Req>: Holding + Sized {
    /// What the future is ready with.
    type Output;

    /// Continues with a request that had no verdict yet.
    fn resume(
        pending: &mut Self::Pending,
        request: &mut Req,
        cx: &mut Context<'_>,
    ) -> Poll<LayerVerdict<Self>>;

    /// Turns the answer of the inner service into the output.
    fn answered(
        admission: &mut Self::Admission,
        answer: Result<S::Response, S::Error>,
    ) -> Self::Output;

    /// Turns a failure of the inner service before the call into the output.
    fn failed(admission: Self::Admission, error: S::Error) -> Self::Output;

    /// Makes the output of a refusal.
    fn refused(refusal: Self::Refusal) -> Self::Output;
}

/// The verdict on a request, from the limiter to the future that calls the inner service. `A` comes with an admission, `R`
/// with a refusal, and `P` continues a request without a verdict.
#[derive(Debug)]
pub enum Verdict<A, R, P> {
    /// The request goes to the inner service.
    Pass(A),
    /// The request goes to the inner service when its turn comes.
    Hold(Box<Turn>, A),
    /// The service is not called.
    Refuse(R),
    /// There is no verdict yet.
    Pending(P),
}

/// The verdict of a layer.
pub type LayerVerdict<H> =
    Verdict<<H as Holding>::Admission, <H as Holding>::Refusal, <H as Holding>::Pending>;

pin_project! {
    /// A request under a layer. Dropping it drops the request, or the call to the inner service.
    #[project = PendingCallProj]
    #[allow(missing_docs, reason = "the layers only make and poll it")]
    pub enum PendingCall<S, Req, H>
    where
        S: Service<Req>,
        H: Holding,
    {
        Waiting {
            pending: Option<H::Pending>,
            // Boxed, since most futures never wait, and each would have the size of this.
            call: Option<Box<(S, Req)>>,
            inner_is_ready: bool,
        },
        InTurn {
            turn: Option<Box<Turn>>,
            is_its_turn: bool,
            // The place of a request that has waited, in front of the requests that still wait.
            place: Option<H::Pending>,
            admission: Option<H::Admission>,
            call: Option<Box<(S, Req)>>,
        },
        Calling {
            #[pin]
            future: S::Future,
            // Declared after the future, so that the call is dropped before what it has.
            admission: H::Admission,
        },
        Refused {
            refusal: Option<H::Refusal>,
        },
    }
}

impl<S: Service<Req> + Clone, Req, H: Holding> PendingCall<S, Req, H> {
    /// Starts with a verdict; `inner` is ready. While the request waits for its turn, and when it is refused,
    /// that readiness is given up: it may be a permit, or a place in a queue.
    #[inline]
    pub fn of(verdict: LayerVerdict<H>, inner: &mut S, request: Req) -> Self {
        match verdict {
            Verdict::Pass(admission) => {
                let within = H::enter(&admission);
                let future = inner.call(request);
                drop(within);
                Self::Calling { future, admission }
            }
            verdict => Self::stopped(verdict, inner, request),
        }
    }

    /// A function of its own, since most requests go on.
    #[inline(never)]
    fn stopped(verdict: LayerVerdict<H>, inner: &mut S, request: Req) -> Self {
        match verdict {
            Verdict::Pass(_) => Self::of(verdict, inner, request),
            Verdict::Hold(turn, admission) => {
                *inner = inner.clone();
                Self::in_turn(turn, admission, (inner.clone(), request))
            }
            Verdict::Refuse(refusal) => {
                *inner = inner.clone();
                let refusal = Some(refusal);
                Self::Refused { refusal }
            }
            Verdict::Pending(pending) => {
                // Call the instance that was polled ready. Its clone is not ready, and stays behind to be
                // polled again.
                let not_ready = inner.clone();
                let ready = mem::replace(inner, not_ready);
                let inner_is_ready = !H::waits_its_turn(&pending);
                let inner = if inner_is_ready { ready } else { inner.clone() };
                Self::Waiting {
                    pending: Some(pending),
                    call: Some(Box::new((inner, request))),
                    inner_is_ready,
                }
            }
        }
    }
}

impl<S: Service<Req>, Req, H: Holding> PendingCall<S, Req, H> {
    fn in_turn(turn: Box<Turn>, admission: H::Admission, call: (S, Req)) -> Self {
        Self::InTurn {
            turn: Some(turn),
            is_its_turn: false,
            place: None,
            admission: Some(admission),
            call: Some(Box::new(call)),
        }
    }

    /// Continues after the turn has come: the inner service may not be ready again.
    fn having_waited(
        place: Option<H::Pending>,
        admission: H::Admission,
        call: Option<Box<(S, Req)>>,
    ) -> Self {
        Self::InTurn {
            turn: None,
            is_its_turn: true,
            place,
            admission: Some(admission),
            call,
        }
    }
}

impl<S, Req, H> Future for PendingCall<S, Req, H>
where
    S: Service<Req> + Clone,
    H: Answering<S, Req>,
{
    type Output = H::Output;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<H::Output> {
        loop {
            let next = match self.as_mut().project() {
                PendingCallProj::Calling { future, admission } => {
                    let within = H::enter(admission);
                    let answer = ready!(future.poll(cx));
                    drop(within);
                    return Poll::Ready(H::answered(admission, answer));
                }
                PendingCallProj::Refused { refusal } => {
                    return Poll::Ready(H::refused(refusal.take().expect(AGAIN)));
                }
                waiting => ready!(waiting.next(cx)),
            };
            match next {
                Ok(next) => self.set(next),
                Err(output) => {
                    self.set(Self::Refused { refusal: None });
                    return Poll::Ready(output);
                }
            }
        }
    }
}

const AGAIN: &str = "polled after it was ready";

impl<S, Req, H> PendingCallProj<'_, S, Req, H>
where
    S: Service<Req> + Clone,
    H: Answering<S, Req>,
{
    /// Moves to the next state after a wait, or ends. A function of its own, since most requests never wait.
    #[inline(never)]
    fn next(self, cx: &mut Context<'_>) -> Poll<Result<PendingCall<S, Req, H>, H::Output>> {
        match self {
            PendingCallProj::Waiting { .. } => self.resume(cx).map(Ok),
            PendingCallProj::InTurn { .. } => self.take_turn(cx),
            PendingCallProj::Calling { .. } | PendingCallProj::Refused { .. } => Poll::Pending,
        }
    }

    /// Asks the layer again about a request that waits for a verdict.
    fn resume(self, cx: &mut Context<'_>) -> Poll<PendingCall<S, Req, H>> {
        let PendingCallProj::Waiting {
            pending,
            call,
            inner_is_ready,
        } = self
        else {
            return Poll::Pending;
        };
        loop {
            let (inner, request) = call.as_deref_mut().expect(AGAIN);
            let question = pending.as_mut().expect(AGAIN);
            return Poll::Ready(match ready!(H::resume(question, request, cx)) {
                Verdict::Pass(admission) if !*inner_is_ready => {
                    PendingCall::having_waited(pending.take(), admission, call.take())
                }
                verdict @ Verdict::Pass(_) => {
                    let (mut inner, request) = *call.take().expect(AGAIN);
                    PendingCall::of(verdict, &mut inner, request)
                }
                Verdict::Refuse(refusal) => PendingCall::Refused {
                    refusal: Some(refusal),
                },
                Verdict::Hold(turn, admission) => {
                    let (inner, request) = *call.take().expect(AGAIN);
                    let not_ready = inner.clone();
                    PendingCall::in_turn(turn, admission, (not_ready, request))
                }
                Verdict::Pending(unanswered) => {
                    if H::waits_its_turn(&unanswered) {
                        // Gives up the readiness, so that other requests can use it meanwhile.
                        *inner = inner.clone();
                        *inner_is_ready = false;
                    }
                    *pending = Some(unanswered);
                    continue;
                }
            });
        }
    }

    /// Waits for the turn of a held request, and then calls the inner service.
    fn take_turn(self, cx: &mut Context<'_>) -> Poll<Result<PendingCall<S, Req, H>, H::Output>> {
        let PendingCallProj::InTurn {
            turn,
            is_its_turn,
            place,
            admission,
            call,
        } = self
        else {
            return Poll::Pending;
        };
        if !*is_its_turn {
            ready!(turn.as_deref_mut().expect(AGAIN).poll(cx));
            *is_its_turn = true;
        }
        let (inner, _) = call.as_deref_mut().expect(AGAIN);
        let readiness = inner.poll_ready(cx);
        if readiness.is_pending() {
            // A request that waits for a limit does not wait for the inner service.
            drop(place.take());
        }
        let readiness = ready!(readiness);
        let admission = admission.take().expect(AGAIN);
        if let Err(error) = readiness {
            return Poll::Ready(Err(H::failed(admission, error)));
        }
        let (mut inner, request) = *call.take().expect(AGAIN);
        let calling = PendingCall::of(Verdict::Pass(admission), &mut inner, request);
        // The request is on its way: let the requests behind it go on.
        drop((turn.take(), place.take()));
        Poll::Ready(Ok(calling))
    }
}
