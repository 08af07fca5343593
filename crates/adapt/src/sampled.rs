use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

/// What a call holds until its answer, or until the end of its body, and learns from.
pub trait Sampling<A> {
    /// The answer of the layer.
    type Output;

    /// Learns from the answer of the inner service.
    fn answered(self, answer: A) -> Self::Output;
}

pin_project! {
    /// The response of a service under a layer that learns from answers, such as a
    /// [`ConcurrencyLayer`](crate::service::ConcurrencyLayer). Dropping it drops the call, which then gives no sample, and
    /// what the call holds.
    pub struct SampledFuture<F, G, O> {
        #[pin]
        state: State<F, G, O>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, G, O> {
        Calling {
            #[pin]
            future: F,
            // Declared after the future, so that the call is dropped before it.
            sampling: Option<G>,
        },
        Refused {
            // Boxed, since most calls are not refused, and each future would have the size of this.
            answer: Option<Box<O>>,
        },
    }
}

impl<F, G, O> SampledFuture<F, G, O> {
    #[inline]
    pub(crate) fn calling(future: F, sampling: G) -> Self {
        let sampling = Some(sampling);
        Self {
            state: State::Calling { future, sampling },
        }
    }

    pub(crate) fn refused(answer: O) -> Self {
        let answer = Some(Box::new(answer));
        Self {
            state: State::Refused { answer },
        }
    }
}

impl<F: Future, G: Sampling<F::Output>> Future for SampledFuture<F, G, G::Output> {
    type Output = G::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<G::Output> {
        match self.project().state.project() {
            StateProj::Calling { future, sampling } => {
                let answer = ready!(future.poll(cx));
                match sampling.take() {
                    Some(sampling) => Poll::Ready(sampling.answered(answer)),
                    // A future that is ready is not polled again.
                    None => Poll::Pending,
                }
            }
            StateProj::Refused { answer } => match answer.take() {
                Some(answer) => Poll::Ready(*answer),
                None => Poll::Pending,
            },
        }
    }
}

impl<F, G, O> fmt::Debug for SampledFuture<F, G, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SampledFuture").finish_non_exhaustive()
    }
}
