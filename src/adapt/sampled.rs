use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

pin_project! {
    /// The response of a service under a layer that learns from answers, such as a
    /// [`ConcurrencyLayer`](crate::service::ConcurrencyLayer). Dropping it drops the call, which then gives no sample, and
    /// what the call holds.
    pub struct SampledFuture<F: Future, G, O> {
        #[pin]
        state: State<F, G, O>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F: Future, G, O> {
        Calling {
            #[pin]
            future: F,
            // Declared after the future, so that the call is dropped before it.
            guard: Option<G>,
            answered: fn(G, F::Output) -> O,
        },
        Refused {
            answer: Option<O>,
        },
    }
}

impl<F: Future, G, O> SampledFuture<F, G, O> {
    /// Polls a call, and passes its answer on together with the guard.
    #[inline]
    pub(crate) fn calling(future: F, guard: G, answered: fn(G, F::Output) -> O) -> Self {
        Self {
            state: State::Calling {
                future,
                guard: Some(guard),
                answered,
            },
        }
    }

    pub(crate) fn refused(answer: O) -> Self {
        let answer = Some(answer);
        Self {
            state: State::Refused { answer },
        }
    }
}

impl<F: Future, G, O> Future for SampledFuture<F, G, O> {
    type Output = O;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<O> {
        let answer = match self.project().state.project() {
            StateProj::Calling {
                future,
                guard,
                answered,
            } => {
                let answer = ready!(future.poll(cx));
                guard.take().map(|guard| answered(guard, answer))
            }
            StateProj::Refused { answer } => answer.take(),
        };
        // A future that is ready is not polled again.
        answer.map_or(Poll::Pending, Poll::Ready)
    }
}

impl<F: Future, G, O> fmt::Debug for SampledFuture<F, G, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SampledFuture").finish_non_exhaustive()
    }
}
