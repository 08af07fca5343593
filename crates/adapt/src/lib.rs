#![cfg_attr(docsrs, feature(doc_cfg))]
#![doc = include_str!("../README.md")]
//!
//! # In short
//!
//! - A [`Signal`] measures how busy something is: the [kernel](Kernel), the [requests](Traffic) of a layer,
//!   or a [closure](from_fn).
//! - A [`Controller`] turns loads into a [factor](tower_ratelimit::factor::Factor): [`Steps`], [`Aimd`], [`Gradient`], or the
//!   [`Worst`] of several.
//! - [`Adapt`] samples the signals each second and writes the factor. The [policies](tower_ratelimit::Policy::factor)
//!   that hold it enforce that share of their limits.
//! - [`AdaptiveConcurrency`] bounds how many requests are in flight at once, by a limit that it learns from latency.
//!
//! ```
//! use tower_ratelimit_adapt::{Adapt, Steps, from_fn};
//! use tower_ratelimit::{Limiter, Policy, TokenBucket};
//!
//! let cpu = from_fn("cpu", || Some(0.95));
//! let adapt = Adapt::builder(Steps::standard().immediate()).signal(cpu).build()?;
//! let limiter = Limiter::builder()
//!     .policy(Policy::new("api", TokenBucket::per_minute(100)).factor(adapt.factor()))
//!     .build_local()?;
//!
//! // A server spawns `adapt.run()`, which does this each second.
//! adapt.sample();
//! let decision = limiter.check("ann", 1).now();
//! assert_eq!(decision.binding().unwrap().1.limit(), 10);
//! assert_eq!(decision.reduced().next().unwrap().1.cause(), Some("cpu 95 %"));
//! # Ok::<(), tower_ratelimit::ConfigError>(())
//! ```

pub mod guide;
pub mod middleware;
pub mod service;

#[cfg(feature = "redis")]
mod answer_time;
mod concurrency;
mod control;
mod guarded;
mod kernel;
mod load;
mod new_times;
#[cfg(test)]
#[path = "../tests/unit/plant/mod.rs"]
mod plant;
mod sampled;
mod signal;
mod task;
mod traffic;

#[cfg(feature = "redis")]
pub use self::answer_time::AnswerTime;
pub use self::concurrency::{
    AdaptiveConcurrency, AdaptiveConcurrencyBuilder, Permit, Sample, Saturated,
};
pub use self::control::{Aimd, Controller, Gradient, Steps, Target, Worst};
pub use self::guarded::{Guarded, GuardedFuture};
pub use self::kernel::{Cpu, Kernel, Memory, Pressure, Resource};
pub use self::load::{Load, Loads};
pub use self::signal::{FromFn, Signal, from_fn};
pub use self::task::{Adapt, AdaptBuilder};
pub use self::traffic::{Failures, InFlight, InFlightGuard, Latency, Traffic};
