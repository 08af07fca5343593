use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::ResponseBody;
use super::gate::{Gate, Ruling, StoreAnswer};
use crate::response::Fields;

pin_project! {
    /// The response of a [`RateLimit`](super::RateLimit) service.
    ///
    /// Dropping it drops the request, or the call to the inner service; what was charged stays
    /// charged.
    pub struct ResponseFuture<S, Request>
    where
        S: Service<Request>,
    {
        #[pin]
        state: State<S, Request>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, Request>
    where
        S: Service<Request>,
    {
        Waiting {
            answer: StoreAnswer,
            gate: Arc<Gate>,
            // Boxed, since most futures never wait and all would be as large as this.
            held: Option<Box<(S, Request)>>,
        },
        Calling {
            #[pin]
            future: S::Future,
            fields: Option<Fields>,
        },
        Refused {
            response: Option<Response<Bytes>>,
        },
    }
}

impl<S: Service<Request>, Request> ResponseFuture<S, Request> {
    pub(super) fn calling(future: S::Future, fields: Option<Fields>) -> Self {
        Self {
            state: State::Calling { future, fields },
        }
    }

    pub(super) fn refused(response: Response<Bytes>) -> Self {
        Self {
            state: State::Refused {
                response: Some(response),
            },
        }
    }

    pub(super) fn waiting(
        answer: StoreAnswer,
        gate: Arc<Gate>,
        ready_inner: S,
        request: Request,
    ) -> Self {
        Self {
            state: State::Waiting {
                answer,
                gate,
                held: Some(Box::new((ready_inner, request))),
            },
        }
    }
}

impl<S, Request, R> Future for ResponseFuture<S, Request>
where
    S: Service<Request, Response = Response<R>>,
    R: Body,
    R::Data: From<Bytes>,
{
    type Output = Result<Response<ResponseBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        const AGAIN: &str = "polled after it was ready";
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProj::Waiting { answer, gate, held } => {
                    let ruling = gate.rule(ready!(answer.as_mut().poll(cx)));
                    let (mut ready_inner, request) = *held.take().expect(AGAIN);
                    match ruling {
                        Ruling::Pass(fields) => State::Calling {
                            future: ready_inner.call(request),
                            fields,
                        },
                        Ruling::Refuse(response) => State::Refused {
                            response: Some(response),
                        },
                    }
                }
                StateProj::Calling { future, fields } => {
                    let mut response = ready!(future.poll(cx))?;
                    if let Some(fields) = fields.take() {
                        fields.add_to(response.status(), response.headers_mut());
                    }
                    return Poll::Ready(Ok(response.map(ResponseBody::inner)));
                }
                StateProj::Refused { response } => {
                    let response = response.take().expect(AGAIN);
                    return Poll::Ready(Ok(response.map(ResponseBody::refusal)));
                }
            };
            state.set(next);
        }
    }
}

impl<S: Service<Request>, Request> fmt::Debug for ResponseFuture<S, Request> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
