//! The layers for HTTP services: an adaptive concurrency, and what counts requests for the signals of the load.

mod concurrency;
mod traffic;

pub use self::concurrency::AdaptiveConcurrencyLayer;
pub use self::traffic::TrafficLayer;

use tower_ratelimit::key::Head;

/// Excludes requests.
type Except = dyn Fn(&Head<'_>) -> bool + Send + Sync;
