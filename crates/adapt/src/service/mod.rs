//! The layers for services of any kind: an adaptive concurrency, and what counts requests for the signals of the load.

mod concurrency;
mod count;
#[cfg(test)]
mod tests;

pub use self::concurrency::ConcurrencyLayer;
pub use self::count::CountTrafficLayer;

/// Excludes requests.
type Except<Q> = dyn Fn(&Q) -> bool + Send + Sync;
