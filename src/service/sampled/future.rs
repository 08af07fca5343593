use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use crate::adapt::{Passage, Permit, Sample};

/// Classifies an answer.
pub(super) type Classify<T, E> = dyn Fn(Result<&T, &E>) -> Sample + Send + Sync;

/// The slot or the timer that a request holds until its answer.
pub(super) enum Occupancy {
    Slot(Permit),
    Passage(Passage),
}

impl Occupancy {
    fn learn(&mut self, sample: Sample) {
        match self {
            Self::Slot(permit) => sample.record(permit),
            Self::Passage(passage) => sample.count(passage),
        }
    }
}

pin_project! {
    /// The response of a [`Concurrency`](super::Concurrency) or [`Count`](super::Count) service. Dropping it
    /// drops the call, which then gives no sample.
    pub struct SampledFuture<F, T, E> {
        #[pin]
        state: State<F, T, E>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, T, E> {
        Calling {
            #[pin]
            future: F,
            // Declared after the future, so that the call is dropped before what it holds.
            held: Option<Occupancy>,
            classify: Option<Arc<Classify<T, E>>>,
        },
        Refused {
            answer: Option<Result<T, E>>,
        },
    }
}

impl<F, T, E> SampledFuture<F, T, E> {
    /// A request that holds nothing gives no sample.
    pub(super) fn calling(
        future: F,
        held: Option<Occupancy>,
        classify: Option<&Arc<Classify<T, E>>>,
    ) -> Self {
        let classify = classify.filter(|_| held.is_some()).cloned();
        Self {
            state: State::Calling {
                future,
                held,
                classify,
            },
        }
    }

    pub(super) fn refused(answer: Result<T, E>) -> Self {
        let answer = Some(answer);
        Self {
            state: State::Refused { answer },
        }
    }
}

/// An answer is a sample and an error a sign of an overload, unless a closure says otherwise.
fn classified<T, E>(classify: Option<&Arc<Classify<T, E>>>, answer: Result<&T, &E>) -> Sample {
    match (classify, answer) {
        (Some(classify), answer) => classify(answer),
        (None, Ok(_)) => Sample::Served,
        (None, Err(_)) => Sample::Overloaded,
    }
}

impl<F, T, E> Future for SampledFuture<F, T, E>
where
    F: Future<Output = Result<T, E>>,
{
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, E>> {
        match self.project().state.project() {
            StateProj::Calling {
                future,
                held,
                classify,
            } => {
                let answer = ready!(future.poll(cx));
                if let Some(mut held) = held.take() {
                    held.learn(classified(classify.as_ref(), answer.as_ref()));
                }
                Poll::Ready(answer)
            }
            StateProj::Refused { answer } => match answer.take() {
                Some(answer) => Poll::Ready(answer),
                // A future that is ready is not polled again.
                None => Poll::Pending,
            },
        }
    }
}

impl<F, T, E> fmt::Debug for SampledFuture<F, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SampledFuture").finish_non_exhaustive()
    }
}
