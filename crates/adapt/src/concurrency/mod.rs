//! How many requests may be in flight at once, learnt from their latency.
//!
//! - `shared.rs` has the counts that requests touch: no request takes a lock.
//! - `learning.rs` is the rule, a pure function of the results of a window of time.
//! - `permit.rs` is what a request holds.

mod adaptive;
#[cfg(test)]
#[path = "../../tests/unit/concurrency/bounded.rs"]
mod bounded;
#[cfg(test)]
#[path = "../../tests/unit/concurrency/bounded_tests.rs"]
mod bounded_tests;
mod learning;
mod partitions;
mod permit;
mod sample;
mod shared;
#[cfg(test)]
mod tests;

pub use self::adaptive::{AdaptiveConcurrency, AdaptiveConcurrencyBuilder};
pub use self::permit::{Permit, Saturated};
pub use self::sample::Sample;
