//! The future of all layers: it holds a request until its turn, and then calls the inner service.
//!
//! A layer implements [`Holding`] for what it keeps of a request, and [`Answering`] for how it decides and
//! answers. Both name types alone: what decides a waiting request is part of what it awaits.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::Turn;

/// The data that a layer keeps of a request while it is held.
pub(crate) trait Holding {
    /// The state of a request that has no ruling yet. It is small: every future has room for it.
    type Awaited;
    /// The data that a request keeps from its ruling until its answer.
    type Kept;
    type Refusal;

    /// Returns whether the request waits for other requests, rather than for a store. While it does, the
    /// readiness of the inner service is given up.
    fn waits_its_turn(awaited: &Self::Awaited) -> bool;

    /// Calls or polls the inner service on behalf of the request.
    #[inline]
    fn within<T>(kept: &Self::Kept, call: impl FnOnce() -> T) -> T {
        let _ = kept;
        call()
    }
}

/// How a layer decides requests of a service, and answers them.
pub(crate) trait Answering<S: Service<Req>, Req>: Holding + Sized {
    type Output;

    /// Continues with a request that had no ruling yet.
    fn resume(
        awaited: &mut Self::Awaited,
        request: &mut Req,
        cx: &mut Context<'_>,
    ) -> Poll<Ruling<Self>>;

    /// Turns the answer of the inner service into the output.
    fn answered(kept: &mut Self::Kept, answer: Result<S::Response, S::Error>) -> Self::Output;

    /// Turns a failure of the inner service before the call into the output.
    fn failed(kept: Self::Kept, error: S::Error) -> Self::Output;

    fn refused(refusal: Self::Refusal) -> Self::Output;
}

/// The ruling on a request.
pub(crate) enum Ruling<H: Holding> {
    /// The request goes to the inner service.
    Pass(H::Kept),
    /// The request goes to the inner service when its turn comes.
    Hold(Box<Turn>, H::Kept),
    Refuse(H::Refusal),
    /// The request has no ruling yet.
    Wait(H::Awaited),
}

pin_project! {
    /// A request under a layer. Dropping it drops the request, or the call to the inner service.
    pub(crate) struct HeldCall<S, Req, H>
    where
        S: Service<Req>,
        H: Holding,
    {
        #[pin]
        state: State<S, Req, H>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, Req, H>
    where
        S: Service<Req>,
        H: Holding,
    {
        Waiting {
            awaited: Option<H::Awaited>,
            // Boxed, since most futures never wait, and each would have the size of this.
            held: Option<Box<(S, Req)>>,
            inner_is_ready: bool,
        },
        Held {
            turn: Option<Box<Turn>>,
            is_its_turn: bool,
            // The place of a request that has waited, in front of the requests that still wait.
            place: Option<H::Awaited>,
            kept: Option<H::Kept>,
            held: Option<Box<(S, Req)>>,
        },
        Calling {
            #[pin]
            future: S::Future,
            // Declared after the future, so that the call is dropped before what it keeps.
            kept: H::Kept,
        },
        Refused {
            refusal: Option<H::Refusal>,
        },
    }
}

impl<S: Service<Req> + Clone, Req, H: Holding> HeldCall<S, Req, H> {
    /// Starts with a ruling; `inner` is ready. While the request waits for its turn, and when it is refused,
    /// that readiness is given up: it may be a permit, or a place in a queue.
    #[inline]
    pub(crate) fn ruled(ruling: Ruling<H>, inner: &mut S, request: Req) -> Self {
        let state = match ruling {
            Ruling::Pass(kept) => State::calling(inner, request, kept),
            ruling => State::stopped(ruling, inner, request),
        };
        Self { state }
    }
}

impl<S: Service<Req> + Clone, Req, H: Holding> State<S, Req, H> {
    /// A function of its own, since most requests go on.
    #[inline(never)]
    fn stopped(ruling: Ruling<H>, inner: &mut S, request: Req) -> Self {
        match ruling {
            Ruling::Pass(kept) => Self::calling(inner, request, kept),
            Ruling::Hold(turn, kept) => {
                *inner = inner.clone();
                Self::held(turn, kept, (inner.clone(), request))
            }
            Ruling::Refuse(refusal) => {
                *inner = inner.clone();
                let refusal = Some(refusal);
                Self::Refused { refusal }
            }
            Ruling::Wait(awaited) => {
                // Call the instance that was polled ready. Its clone is not ready, and stays behind to be
                // polled again.
                let not_ready = inner.clone();
                let ready = mem::replace(inner, not_ready);
                let inner_is_ready = !H::waits_its_turn(&awaited);
                let inner = if inner_is_ready { ready } else { inner.clone() };
                Self::Waiting {
                    awaited: Some(awaited),
                    held: Some(Box::new((inner, request))),
                    inner_is_ready,
                }
            }
        }
    }
}

impl<S: Service<Req>, Req, H: Holding> State<S, Req, H> {
    #[inline]
    fn calling(inner: &mut S, request: Req, kept: H::Kept) -> Self {
        Self::Calling {
            future: H::within(&kept, || inner.call(request)),
            kept,
        }
    }

    fn held(turn: Box<Turn>, kept: H::Kept, held: (S, Req)) -> Self {
        Self::Held {
            turn: Some(turn),
            is_its_turn: false,
            place: None,
            kept: Some(kept),
            held: Some(Box::new(held)),
        }
    }

    /// Continues after the turn has come: the inner service may not be ready again.
    fn having_waited(
        place: Option<H::Awaited>,
        kept: H::Kept,
        held: Option<Box<(S, Req)>>,
    ) -> Self {
        Self::Held {
            turn: None,
            is_its_turn: true,
            place,
            kept: Some(kept),
            held,
        }
    }
}

impl<S, Req, H> Future for HeldCall<S, Req, H>
where
    S: Service<Req> + Clone,
    H: Answering<S, Req>,
{
    type Output = H::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<H::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProj::Calling { future, kept } => {
                    let answer = ready!(H::within(kept, || future.poll(cx)));
                    return Poll::Ready(H::answered(kept, answer));
                }
                StateProj::Refused { refusal } => {
                    return Poll::Ready(H::refused(refusal.take().expect(AGAIN)));
                }
                waiting => ready!(waiting.next(cx)),
            };
            match next {
                Ok(next) => state.set(next),
                Err(output) => {
                    state.set(State::Refused { refusal: None });
                    return Poll::Ready(output);
                }
            }
        }
    }
}

const AGAIN: &str = "polled after it was ready";

impl<S, Req, H> StateProj<'_, S, Req, H>
where
    S: Service<Req> + Clone,
    H: Answering<S, Req>,
{
    /// Moves to the next state after a wait, or ends. A function of its own, since most requests never wait.
    #[inline(never)]
    fn next(self, cx: &mut Context<'_>) -> Poll<Result<State<S, Req, H>, H::Output>> {
        match self {
            StateProj::Waiting { .. } => self.resume(cx).map(Ok),
            StateProj::Held { .. } => self.take_turn(cx),
            StateProj::Calling { .. } | StateProj::Refused { .. } => Poll::Pending,
        }
    }

    /// Asks the layer again about a request that waits for a ruling.
    fn resume(self, cx: &mut Context<'_>) -> Poll<State<S, Req, H>> {
        let StateProj::Waiting {
            awaited,
            held,
            inner_is_ready,
        } = self
        else {
            return Poll::Pending;
        };
        loop {
            let (inner, request) = held.as_deref_mut().expect(AGAIN);
            let question = awaited.as_mut().expect(AGAIN);
            return Poll::Ready(match ready!(H::resume(question, request, cx)) {
                Ruling::Pass(kept) if !*inner_is_ready => {
                    State::having_waited(awaited.take(), kept, held.take())
                }
                Ruling::Pass(kept) => {
                    let (mut inner, request) = *held.take().expect(AGAIN);
                    State::calling(&mut inner, request, kept)
                }
                Ruling::Refuse(refusal) => State::Refused {
                    refusal: Some(refusal),
                },
                Ruling::Hold(turn, kept) => {
                    let (inner, request) = *held.take().expect(AGAIN);
                    let not_ready = inner.clone();
                    State::held(turn, kept, (not_ready, request))
                }
                Ruling::Wait(unanswered) => {
                    if H::waits_its_turn(&unanswered) {
                        // Gives up the readiness, so that other requests can use it meanwhile.
                        *inner = inner.clone();
                        *inner_is_ready = false;
                    }
                    *awaited = Some(unanswered);
                    continue;
                }
            });
        }
    }

    /// Waits for the turn of a held request, and then calls the inner service.
    fn take_turn(self, cx: &mut Context<'_>) -> Poll<Result<State<S, Req, H>, H::Output>> {
        let StateProj::Held {
            turn,
            is_its_turn,
            place,
            kept,
            held,
        } = self
        else {
            return Poll::Pending;
        };
        if !*is_its_turn {
            ready!(turn.as_deref_mut().expect(AGAIN).poll(cx));
            *is_its_turn = true;
        }
        let (inner, _) = held.as_deref_mut().expect(AGAIN);
        let readiness = inner.poll_ready(cx);
        if readiness.is_pending() {
            // A request that waits for a limit does not wait for the inner service.
            drop(place.take());
        }
        let readiness = ready!(readiness);
        let kept = kept.take().expect(AGAIN);
        if let Err(error) = readiness {
            return Poll::Ready(Err(H::failed(kept, error)));
        }
        let (mut inner, request) = *held.take().expect(AGAIN);
        let calling = State::calling(&mut inner, request, kept);
        // The request is on its way: let the requests behind it go on.
        drop((turn.take(), place.take()));
        Poll::Ready(Ok(calling))
    }
}
