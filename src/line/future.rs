//! The future of all layers: it holds a request until its turn, and then calls the inner service.
//!
//! A layer tells by [`Holding`] what it keeps of a request, and by [`Answering`] how it asks about one and answers it.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::Turn;

/// What a layer keeps of a request.
pub(crate) trait Holding {
    /// What a request waits for that is not ruled on yet.
    type Awaited;
    /// What a request that goes on holds until its answer.
    type Kept;
    type Refusal;

    /// Whether a request waits for others, and not for a store. What the inner service was ready for is free meanwhile.
    fn waits_its_turn(question: &Self::Awaited) -> bool;

    /// Calls or polls the inner service.
    #[inline]
    fn within<T>(kept: &Self::Kept, call: impl FnOnce() -> T) -> T {
        let _ = kept;
        call()
    }
}

/// How a layer asks about requests of a service, and answers them.
pub(crate) trait Answering<S: Service<Req>, Req>: Holding + Sized {
    type Output;

    /// Goes on with a request that was not ruled on.
    fn resume(
        &self,
        question: &mut Self::Awaited,
        request: &mut Req,
        cx: &mut Context<'_>,
    ) -> Poll<Ruling<Self>>;

    /// The inner service has answered.
    fn answered(kept: &mut Self::Kept, answer: Result<S::Response, S::Error>) -> Self::Output;

    /// The inner service has failed before it was called.
    fn failed(kept: Self::Kept, error: S::Error) -> Self::Output;

    fn refused(refusal: Self::Refusal) -> Self::Output;
}

/// What becomes of a request.
pub(crate) enum Ruling<H: Holding> {
    /// It goes on.
    Pass(H::Kept),
    /// It goes on when it is its turn.
    Hold(Box<Turn>, H::Kept),
    Refuse(H::Refusal),
    /// It is not ruled on yet.
    Wait(Box<H::Awaited>),
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
            // Both boxed, since most futures never wait and all would be as large as this.
            question: Option<Box<H::Awaited>>,
            held: Option<Box<(S, Req)>>,
            layer: H,
            inner_is_ready: bool,
        },
        Held {
            turn: Option<Box<Turn>>,
            is_its_turn: bool,
            // Of a request that has waited: its place before requests that still do.
            place: Option<Box<H::Awaited>>,
            kept: Option<H::Kept>,
            held: Option<Box<(S, Req)>>,
        },
        Calling {
            #[pin]
            future: S::Future,
            // Behind the future: what the call still does comes before its end.
            kept: H::Kept,
        },
        Refused {
            refusal: Option<H::Refusal>,
        },
    }
}

#[cfg(feature = "http")]
impl<S: Service<Req>, Req, H: Holding> HeldCall<S, Req, H> {
    /// `inner` is ready.
    #[inline]
    pub(crate) fn calling(inner: &mut S, request: Req, kept: H::Kept) -> Self {
        Self {
            state: State::calling(inner, request, kept),
        }
    }
}

impl<S: Service<Req> + Clone, Req, H: Holding + Clone> HeldCall<S, Req, H> {
    /// `inner` is ready. What it was ready for goes to others while the request waits for its turn, and if it is
    /// refused: that may be a permit, or a place in a queue.
    pub(crate) fn ruled(ruling: Ruling<H>, layer: &H, inner: &mut S, request: Req) -> Self {
        let state = match ruling {
            Ruling::Pass(kept) => State::calling(inner, request, kept),
            Ruling::Hold(turn, kept) => {
                *inner = inner.clone();
                State::held(turn, kept, (inner.clone(), request))
            }
            Ruling::Refuse(refusal) => {
                *inner = inner.clone();
                let refusal = Some(refusal);
                State::Refused { refusal }
            }
            Ruling::Wait(question) => {
                // The instance that was polled ready has to be the one that is called. Its clone is not ready, and
                // stays behind to be polled again.
                let not_ready = inner.clone();
                let ready = mem::replace(inner, not_ready);
                let inner_is_ready = !H::waits_its_turn(&question);
                let inner = if inner_is_ready { ready } else { inner.clone() };
                State::Waiting {
                    question: Some(question),
                    held: Some(Box::new((inner, request))),
                    layer: layer.clone(),
                    inner_is_ready,
                }
            }
        };
        Self { state }
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

    /// It is its turn, and the inner service is not ready yet.
    fn having_waited(
        place: Option<Box<H::Awaited>>,
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
    /// What comes after a wait, or the end. Kept apart: most requests never wait.
    #[inline(never)]
    fn next(self, cx: &mut Context<'_>) -> Poll<Result<State<S, Req, H>, H::Output>> {
        Poll::Ready(Ok(match self {
            StateProj::Waiting {
                question,
                held,
                layer,
                inner_is_ready,
            } => loop {
                let (inner, request) = held.as_deref_mut().expect(AGAIN);
                let asked = question.as_deref_mut().expect(AGAIN);
                match ready!(layer.resume(asked, request, cx)) {
                    Ruling::Pass(kept) if !*inner_is_ready => {
                        break State::having_waited(question.take(), kept, held.take());
                    }
                    Ruling::Pass(kept) => {
                        let (mut inner, request) = *held.take().expect(AGAIN);
                        break State::calling(&mut inner, request, kept);
                    }
                    Ruling::Refuse(refusal) => {
                        let refusal = Some(refusal);
                        break State::Refused { refusal };
                    }
                    Ruling::Hold(turn, kept) => {
                        let (inner, request) = *held.take().expect(AGAIN);
                        let not_ready = inner.clone();
                        break State::held(turn, kept, (not_ready, request));
                    }
                    Ruling::Wait(unanswered) => {
                        if H::waits_its_turn(&unanswered) {
                            // What it was ready for goes to others meanwhile.
                            *inner = inner.clone();
                            *inner_is_ready = false;
                        }
                        *question = Some(unanswered);
                    }
                }
            },
            StateProj::Held {
                turn,
                is_its_turn,
                place,
                kept,
                held,
            } => {
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
                // The requests behind it go on once it has gone.
                drop((turn.take(), place.take()));
                calling
            }
            StateProj::Calling { .. } | StateProj::Refused { .. } => return Poll::Pending,
        }))
    }
}
