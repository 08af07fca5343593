use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;

use super::body::ConcurrencyBody;
use super::sample::{Classify, classified};
use crate::adapt::{Permit, Sample};

pin_project! {
    /// The response of a [`WithConcurrency`](super::WithConcurrency) service. Dropping it frees the slot.
    pub struct ConcurrencyFuture<F> {
        #[pin]
        state: State<F>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F> {
        Calling {
            #[pin]
            future: F,
            // Declared after the future, so that the call is dropped before the slot.
            permit: Option<Permit>,
            classify: Option<Arc<Classify>>,
        },
        Refused {
            response: Option<Response<Bytes>>,
        },
    }
}

impl<F> ConcurrencyFuture<F> {
    pub(super) fn calling(
        future: F,
        permit: Option<Permit>,
        classify: Option<Arc<Classify>>,
    ) -> Self {
        Self {
            state: State::Calling {
                future,
                permit,
                classify,
            },
        }
    }

    pub(super) fn refused(response: Response<Bytes>) -> Self {
        let response = Some(response);
        Self {
            state: State::Refused { response },
        }
    }
}

impl<F, R, E> Future for ConcurrencyFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Body,
{
    type Output = Result<Response<ConcurrencyBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Calling {
                future,
                permit,
                classify,
            } => {
                let response = ready!(future.poll(cx));
                let mut permit = permit.take();
                let response = match response {
                    Ok(response) => response,
                    Err(error) => {
                        if let Some(permit) = &mut permit {
                            Sample::Overloaded.record(permit);
                        }
                        return Poll::Ready(Err(error));
                    }
                };
                let (head, body) = response.into_parts();
                if let Some(permit) = &mut permit {
                    classified(classify.as_ref(), &head).record(permit);
                }
                let body = ConcurrencyBody::inner(body, permit);
                Poll::Ready(Ok(Response::from_parts(head, body)))
            }
            StateProj::Refused { response } => match response.take() {
                Some(response) => Poll::Ready(Ok(response.map(ConcurrencyBody::refusal))),
                // A future that is ready is not polled again.
                None => Poll::Pending,
            },
        }
    }
}

impl<F> std::fmt::Debug for ConcurrencyFuture<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConcurrencyFuture").finish_non_exhaustive()
    }
}
