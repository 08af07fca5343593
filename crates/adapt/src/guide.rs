//! The guide: limits that follow the load, and how many requests may be in flight.
//!
//! The pages are also files in the folder `crates/adapt/docs` of the repository.

#[doc = include_str!("../docs/adaptive.md")]
pub mod adaptive {}

#[doc = include_str!("../docs/adaptive-concurrency.md")]
pub mod adaptive_concurrency {}
