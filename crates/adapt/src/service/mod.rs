//! Layers for any service that hold something until its answer, and learn from that: a slot of an adaptive
//! concurrency, or a request in flight of the traffic.

mod concurrency;
mod count;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use self::concurrency::{Concurrency, ConcurrencyLayer};
pub use self::count::{Count, CountLayer};

use crate::sampled::Sampling;
use crate::{Passage, Permit, Sample};

/// Excludes requests.
type Except<Q> = dyn Fn(&Q) -> bool + Send + Sync;

/// Classifies an answer.
type Classify<T, E> = dyn Fn(Result<&T, &E>) -> Sample + Send + Sync;

/// What a request holds until its answer, if it gives a sample, and what classifies the answer.
#[expect(missing_debug_implementations, reason = "users do not see it")]
pub struct Sampled<G, T, E> {
    guard: Option<G>,
    classify: Option<Arc<Classify<T, E>>>,
}

/// What learns from an answer.
pub trait Learn {
    /// Records what the answer says about the load.
    fn learn(&mut self, sample: Sample);
}

impl Learn for Permit {
    fn learn(&mut self, sample: Sample) {
        sample.record(self);
    }
}

impl Learn for Passage {
    fn learn(&mut self, sample: Sample) {
        sample.count(self);
    }
}

impl<G: Learn, T, E> Sampling<Result<T, E>> for Sampled<G, T, E> {
    type Output = Result<T, E>;

    /// An answer is a sample and an error a sign of an overload, unless a closure says otherwise.
    fn answered(self, answer: Result<T, E>) -> Result<T, E> {
        if let Some(mut guard) = self.guard {
            guard.learn(match (self.classify, &answer) {
                (Some(classify), answer) => classify(answer.as_ref()),
                (None, Ok(_)) => Sample::Served,
                (None, Err(_)) => Sample::Overloaded,
            });
        }
        answer
    }
}
