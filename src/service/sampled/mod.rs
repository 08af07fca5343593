//! Layers for any service that hold something until its answer, and learn from that: a slot of an adaptive
//! concurrency, or a request in flight of the traffic.

mod concurrency;
mod count;

use std::sync::Arc;

pub use self::concurrency::{Concurrency, ConcurrencyLayer};
pub use self::count::{Count, CountLayer};

use crate::adapt::{Sample, SampledFuture};

/// Excludes requests.
type Except<Q> = dyn Fn(&Q) -> bool + Send + Sync;

/// Classifies an answer.
type Classify<T, E> = dyn Fn(Result<&T, &E>) -> Sample + Send + Sync;

/// A call that holds `G` until its answer. A request that holds nothing gives no sample.
type Sampled<F, G, T, E> = SampledFuture<F, (Option<G>, Option<Arc<Classify<T, E>>>), Result<T, E>>;

/// An answer is a sample and an error a sign of an overload, unless a closure says otherwise.
fn classified<T, E>(classify: Option<Arc<Classify<T, E>>>, answer: &Result<T, E>) -> Sample {
    match (classify, answer) {
        (Some(classify), answer) => classify(answer.as_ref()),
        (None, Ok(_)) => Sample::Served,
        (None, Err(_)) => Sample::Overloaded,
    }
}
