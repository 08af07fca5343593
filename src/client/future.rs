//! The future of an outgoing call: it waits in line, then waits for the inner service, then calls it.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::advice::Advice;
use super::learned::Back;
use super::lines::{Admission, Call, Place};
use super::{LearnedLimitError, NotSent};
use crate::clock::Timer;

pin_project! {
    /// The response of a [`LearnedLimit`](super::LearnedLimit) service.
    ///
    /// Dropping it drops the request or the call to the inner service, and lets another call go.
    pub struct LearnedLimitFuture<S, Req>
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
            place: Place,
            timer: Timer,
            held: Option<Box<(S, Req)>>,
        },
        // It may go as soon as the inner service is ready.
        Going {
            call: Option<Call>,
            held: Option<Box<(S, Req)>>,
        },
        Calling {
            #[pin]
            future: S::Future,
            call: Option<Call>,
        },
        Refused {
            held: Option<NotSent>,
        },
    }
}

impl<S: Service<Req>, Req> LearnedLimitFuture<S, Req> {
    pub(super) fn calling(future: S::Future, call: Option<Call>) -> Self {
        Self {
            state: State::Calling { future, call },
        }
    }

    /// `inner` is not ready: while the request waits, the service can serve other requests.
    pub(super) fn waiting(place: Place, timer: Timer, inner: S, request: Req) -> Self {
        Self {
            state: State::Waiting {
                place,
                timer,
                held: Some(Box::new((inner, request))),
            },
        }
    }

    pub(super) fn refused(held: NotSent) -> Self {
        Self {
            state: State::Refused { held: Some(held) },
        }
    }
}

impl<S, B, R> Future for LearnedLimitFuture<S, Request<B>>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Output = Result<Response<R>, LearnedLimitError<S::Error>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        const AGAIN: &str = "polled after it was ready";
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProj::Waiting { place, timer, held } => match place.ask(cx.waker()) {
                    Ok(Admission::Go(call)) => State::Going {
                        call: Some(call),
                        held: held.take(),
                    },
                    Ok(Admission::AgainAt(at)) => {
                        if timer.deadline() != at {
                            timer.reset(at);
                        }
                        ready!(timer.poll(cx));
                        continue;
                    }
                    Err(held) => State::Refused { held: Some(held) },
                },
                StateProj::Going { call, held } => {
                    let (inner, _) = held.as_deref_mut().expect(AGAIN);
                    if let Err(error) = ready!(inner.poll_ready(cx)) {
                        // At once: the future may be dropped much later.
                        if let Some(call) = call.take() {
                            call.back(Back::Failed);
                        }
                        state.set(State::Refused { held: None });
                        return Poll::Ready(Err(LearnedLimitError::Inner(error)));
                    }
                    let (mut inner, request) = *held.take().expect(AGAIN);
                    State::Calling {
                        future: inner.call(request),
                        call: call.take(),
                    }
                }
                StateProj::Calling { future, call } => {
                    let answer = ready!(future.poll(cx)).map_err(LearnedLimitError::Inner);
                    if let Some(call) = call.take() {
                        let with = match &answer {
                            Ok(response) => Back::Answered(Advice::by(response, call.wall())),
                            Err(_) => Back::Failed,
                        };
                        call.back(with);
                    }
                    return Poll::Ready(answer);
                }
                StateProj::Refused { held } => {
                    return Poll::Ready(Err(LearnedLimitError::NotSent(held.take().expect(AGAIN))));
                }
            };
            state.set(next);
        }
    }
}

impl<S: Service<Req>, Req> fmt::Debug for LearnedLimitFuture<S, Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LearnedLimitFuture").finish_non_exhaustive()
    }
}
