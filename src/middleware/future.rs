use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::ResponseBody;
use super::beside::Beside;
use super::ending::Kept;
use super::gate::{Gate, Question, Ruling};
use super::nesting::Within;
use crate::line::Turn;
use crate::response::Fields;

pin_project! {
    /// The response of a [`RateLimit`](super::RateLimit) service.
    ///
    /// Dropping it drops the request, or the call to the inner service. What was charged stays
    /// charged, but for a place in a [`LeakyQueue`](crate::LeakyQueue) before its turn: the next request takes
    /// that, and the last place is given back. A request that waits under another algorithm is charged
    /// nothing yet, and leaves its line at once.
    pub struct ResponseFuture<S, Req>
    where
        S: Service<Req>,
    {
        #[pin]
        state: State<S, Req>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, Req>
    where
        S: Service<Req>,
    {
        Waiting {
            // Both boxed, since most futures never wait and all would be as large as this.
            question: Option<Box<Question>>,
            beside: Beside,
            gate: Arc<Gate>,
            held: Option<Box<(S, Req)>>,
            inner_is_ready: bool,
        },
        Held {
            turn: Option<Box<Turn>>,
            is_its_turn: bool,
            // Of a request that has waited: its place before those who still do.
            place: Option<Box<Question>>,
            fields: Option<Fields>,
            kept: Kept,
            gate: Arc<Gate>,
            held: Option<Box<(S, Req)>>,
        },
        Calling {
            #[pin]
            future: S::Future,
            fields: Option<Fields>,
            // Behind the future: what the call still does comes before its end.
            kept: Kept,
            // The layer's number, for those that stand on a route twice.
            gate: usize,
        },
        Refused {
            response: Option<Response<Bytes>>,
        },
    }
}

impl<S: Service<Req>, Req> ResponseFuture<S, Req> {
    /// `inner` is ready.
    #[inline]
    pub(super) fn calling(
        inner: &mut S,
        request: Req,
        fields: Option<Fields>,
        kept: Kept,
        gate: usize,
    ) -> Self {
        Self {
            state: State::calling(inner, request, fields, kept, gate),
        }
    }

    pub(super) fn refused(response: Response<Bytes>) -> Self {
        Self {
            state: State::Refused {
                response: Some(response),
            },
        }
    }

    /// `inner` is not ready: while its request waits for its turn, others may be served.
    pub(super) fn held(turn: Turn, end: AtItsEnd, gate: Arc<Gate>, inner: S, request: Req) -> Self {
        Self {
            state: State::held(turn, end, gate, (inner, request)),
        }
    }

    pub(super) fn waiting(
        (question, beside): (Box<Question>, Beside),
        gate: Arc<Gate>,
        inner: S,
        inner_is_ready: bool,
        request: Req,
    ) -> Self {
        Self {
            state: State::Waiting {
                question: Some(question),
                beside,
                gate,
                held: Some(Box::new((inner, request))),
                inner_is_ready,
            },
        }
    }
}

impl<S: Service<Req>, Req> State<S, Req> {
    #[inline]
    fn calling(
        inner: &mut S,
        request: Req,
        fields: Option<Fields>,
        kept: Kept,
        gate: usize,
    ) -> Self {
        let _within = Within::enter(gate);
        Self::Calling {
            future: inner.call(request),
            fields,
            kept,
            gate,
        }
    }

    fn held(turn: Turn, (fields, kept): AtItsEnd, gate: Arc<Gate>, held: (S, Req)) -> Self {
        Self::Held {
            turn: Some(Box::new(turn)),
            is_its_turn: false,
            place: None,
            fields,
            kept,
            gate,
            held: Some(Box::new(held)),
        }
    }

    /// It is its turn, and the inner service is not ready yet.
    fn having_waited(
        place: Option<Box<Question>>,
        (fields, kept): AtItsEnd,
        gate: Arc<Gate>,
        held: Option<Box<(S, Req)>>,
    ) -> Self {
        Self::Held {
            turn: None,
            is_its_turn: true,
            place,
            fields,
            kept,
            gate,
            held,
        }
    }
}

impl<S, B, R> Future for ResponseFuture<S, Request<B>>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    R: Body,
    R::Data: From<Bytes>,
{
    type Output = Result<Response<ResponseBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProj::Calling {
                    future,
                    fields,
                    kept,
                    gate,
                } => {
                    let _within = Within::enter(*gate);
                    let response = ready!(future.poll(cx));
                    let kept = kept.take();
                    let response = response?;
                    let mut response = if kept.is_nothing() {
                        response.map(ResponseBody::inner)
                    } else {
                        kept.answered(response)
                    };
                    // Taking none would copy as much as taking some.
                    if fields.is_some()
                        && let Some(fields) = fields.take()
                    {
                        fields.add_to(&mut response);
                    }
                    return Poll::Ready(Ok(response));
                }
                StateProj::Refused { response } => {
                    let response = response.take().expect(AGAIN);
                    return Poll::Ready(Ok(response.map(ResponseBody::refusal)));
                }
                waiting => ready!(waiting.next(cx))?,
            };
            state.set(next);
        }
    }
}

/// What its response gets, and what the request holds to its end.
type AtItsEnd = (Option<Fields>, Kept);

/// A state, or how the inner service failed.
type Next<S, Req> = Result<State<S, Req>, <S as Service<Req>>::Error>;

const AGAIN: &str = "polled after it was ready";

impl<S, B> StateProj<'_, S, Request<B>>
where
    S: Service<Request<B>> + Clone,
{
    /// What comes after a wait. Kept apart: most requests never wait.
    #[inline(never)]
    fn next(self, cx: &mut Context<'_>) -> Poll<Next<S, Request<B>>> {
        Poll::Ready(Ok(match self {
            StateProj::Waiting {
                question,
                beside,
                gate,
                held,
                inner_is_ready,
            } => loop {
                let (inner, request) = held.as_deref_mut().expect(AGAIN);
                let asked = question.as_deref_mut().expect(AGAIN);
                let mut ruling = ready!(gate.resume(asked, request, cx));
                beside.compare(&mut ruling, request);
                match ruling {
                    Ruling::Pass(fields, kept) if !*inner_is_ready => {
                        let (place, held) = (question.take(), held.take());
                        let end = (fields, kept);
                        break State::having_waited(place, end, Arc::clone(gate), held);
                    }
                    Ruling::Pass(fields, kept) => {
                        let (mut ready_inner, request) = *held.take().expect(AGAIN);
                        break State::calling(&mut ready_inner, request, fields, kept, gate.id());
                    }
                    Ruling::Refuse(response) => {
                        let response = Some(response);
                        break State::Refused { response };
                    }
                    Ruling::Hold(turn, fields, kept) => {
                        let (inner, request) = *held.take().expect(AGAIN);
                        let (end, not_ready) = ((fields, kept), inner.clone());
                        break State::held(turn, end, Arc::clone(gate), (not_ready, request));
                    }
                    Ruling::Wait(unanswered) => {
                        if unanswered.waits_its_turn() {
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
                fields,
                kept,
                gate,
                held,
            } => {
                if !*is_its_turn {
                    ready!(turn.as_deref_mut().expect(AGAIN).poll(cx));
                    *is_its_turn = true;
                }
                let (inner, _) = held.as_deref_mut().expect(AGAIN);
                let readiness = inner.poll_ready(cx);
                if readiness.is_pending() {
                    // Those who wait for a limit do not wait for the inner service.
                    drop(place.take());
                }
                ready!(readiness)?;
                let (mut inner, request) = *held.take().expect(AGAIN);
                let (fields, kept) = (fields.take(), kept.take());
                let calling = State::calling(&mut inner, request, fields, kept, gate.id());
                // Those behind it go on once it has gone.
                drop((turn.take(), place.take()));
                calling
            }
            StateProj::Calling { .. } | StateProj::Refused { .. } => return Poll::Pending,
        }))
    }
}

impl<S: Service<Req>, Req> fmt::Debug for ResponseFuture<S, Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
