//! Metrics of a limiter or a layer, for any exporter of the [`metrics`](https://docs.rs/metrics) facade.
//!
//! A [`Publisher`] reads a [snapshot](crate::observe::Snapshot) and reports it to the recorder of the
//! program. No request does. Counters are reported as absolute numbers, so a recorder that is installed late
//! misses nothing.
//!
//! ```
//! use std::time::Duration;
//! use tower_ratelimit::metrics::Publisher;
//! use tower_ratelimit::{RateLimitLayer, TokenBucket, key};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let layer = RateLimitLayer::new(key::client_ip(), TokenBucket::per_second(5));
//! tokio::spawn(Publisher::new(layer.monitor()).every(Duration::from_secs(5)));
//! # }
//! ```
//!
//! Call [`publish`](Publisher::publish) instead where the program answers a scrape, so that each scrape has
//! the newest numbers. The names, their labels and their units are in [the guide](crate::guide::metrics). No
//! label contains a key, a path or anything else that clients choose.

mod publisher;

pub use self::publisher::Publisher;
