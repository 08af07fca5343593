//! Layers for any service that hold something until its answer, and learn from that: a slot of an adaptive
//! concurrency, or a request in flight of the traffic.

mod concurrency;
mod count;
mod future;

pub use self::concurrency::{Concurrency, ConcurrencyLayer};
pub use self::count::{Count, CountLayer};
pub use self::future::SampledFuture;
