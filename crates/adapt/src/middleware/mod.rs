//! The layers for HTTP services: an adaptive concurrency, and what counts requests for the signals of the load.

mod concurrency;
mod traffic;

pub use self::concurrency::{AdaptiveConcurrencyLayer, WithConcurrency};
pub use self::traffic::{TrafficLayer, WithTraffic};
