//! A layer that bounds how many requests are in flight at once, by a limit that it learns.
//!
//! It is a layer of its own, so that a service without it pays nothing for it, and so that it can be on the
//! other side of a rate limit.

mod layer;
mod options;
mod sample;
mod service;

pub use self::layer::AdaptiveConcurrencyLayer;
pub use self::service::WithConcurrency;
