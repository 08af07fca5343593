//! The layer for any Tower service, whatever its protocol.
//!
//! [`LimitLayer`] decides each request of a service by a [`Limiter`](crate::Limiter), whatever the type of
//! the request. One closure returns the key of a request. Another returns the refusal: an error of the
//! service, or a response made from the [`Decision`](crate::Decision). The layer needs no feature, and no
//! HTTP dependency.
//!
//! # Example
//!
//! A refusal that is an error:
//!
//! ```
//! # use tower_ratelimit_core as tower_ratelimit;
//! use tower::{BoxError, Layer, ServiceExt, service_fn};
//! use tower_ratelimit::service::{LimitLayer, Refused};
//! use tower_ratelimit::{FixedWindow, Limiter, Policy};
//!
//! struct Mail {
//!     customer: u64,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let limiter = Limiter::builder()
//!     .policy(Policy::new("mails", FixedWindow::per_day(1)))
//!     .build()?;
//! let limit = LimitLayer::new(limiter, |mail: &Mail| mail.customer, |refused| Err(refused.into()));
//!
//! let send = service_fn(async |_: Mail| Ok::<_, BoxError>("sent"));
//! let send = limit.layer(send);
//! assert_eq!(send.clone().oneshot(Mail { customer: 7 }).await?, "sent");
//!
//! let error = send.oneshot(Mail { customer: 7 }).await.unwrap_err();
//! let refused: &Refused = error.downcast_ref().unwrap();
//! assert!(refused.retry_after().is_some());
//! # Ok(())
//! # }
//! ```
//!
//! A refusal that is a response, and requests whose cost is their size:
//!
//! ```
//! # use tower_ratelimit_core as tower_ratelimit;
//! use std::convert::Infallible;
//! use std::time::Duration;
//!
//! use tower::{Layer, ServiceExt, service_fn};
//! use tower_ratelimit::service::{LimitLayer, Refused};
//! use tower_ratelimit::{Limiter, ManualClock, MemoryStore, Policy, TokenBucket};
//!
//! struct Batch(Vec<u8>);
//!
//! #[derive(Debug, PartialEq)]
//! enum Receipt {
//!     Stored(usize),
//!     Busy { retry_after: Option<Duration> },
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tower_ratelimit::ConfigError> {
//! let limiter = Limiter::builder()
//!     .policy(Policy::new("bytes", TokenBucket::per_second(100)))
//!     .store(MemoryStore::new().clock(ManualClock::new()))
//!     .build()?;
//! let busy = |refused: Refused| {
//!     let retry_after = refused.retry_after();
//!     Ok(Receipt::Busy { retry_after })
//! };
//! let limit = LimitLayer::new(limiter, |_: &Batch| "disk", busy)
//!     .cost(|batch: &Batch| u32::try_from(batch.0.len()).unwrap_or(u32::MAX));
//!
//! let store = limit.layer(service_fn(async |batch: Batch| {
//!     Ok::<_, Infallible>(Receipt::Stored(batch.0.len()))
//! }));
//! let batch = || Batch(vec![0; 75]);
//! assert_eq!(store.clone().oneshot(batch()).await, Ok(Receipt::Stored(75)));
//! let retry_after = Some(Duration::from_millis(500));
//! assert_eq!(store.oneshot(batch()).await, Ok(Receipt::Busy { retry_after }));
//! # Ok(())
//! # }
//! ```
//!
//! # Waiting for a turn
//!
//! With a [`LeakyQueue`](crate::LeakyQueue) an early request is held until its turn, and then goes on. A
//! request that finds all places taken is refused. Around a client, this paces calls to a server with a known
//! limit. For limits that a server announces, use feature `client`.
//! [`longest_wait`](crate::algorithm::LeakyQueueRate::longest_wait) sets how long a caller may wait.
//!
//! ```
//! # use tower_ratelimit_core as tower_ratelimit;
//! use std::time::{Duration, Instant};
//!
//! use tower::{BoxError, Layer, ServiceExt, service_fn};
//! use tower_ratelimit::service::LimitLayer;
//! use tower_ratelimit::{LeakyQueue, Limiter, Policy};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let queue = LeakyQueue::per_second(20).longest_wait(Duration::from_millis(100))?;
//! let limiter = Limiter::builder().policy(Policy::new("api", queue)).build()?;
//! let limit = LimitLayer::new(limiter, |_: &&str| "api", |refused| Err(refused.into()));
//! let api = limit.layer(service_fn(async |call: &'static str| Ok::<_, BoxError>(call)));
//!
//! let start = Instant::now();
//! let call = |name| api.clone().oneshot(name);
//! let (_, _, third, fourth) = tokio::join!(call("a"), call("b"), call("c"), call("d"));
//! assert!(third.is_ok() && start.elapsed() >= Duration::from_millis(100));
//! assert!(fourth.is_err());
//! # Ok(())
//! # }
//! ```
//!
//! - A waiting request takes nothing of the inner service. When its caller goes away, the requests behind it
//!   move up, and the last place of the queue is free again: no turn passes unused.
//! - Requests of a key go on in order, none before its turn. They wait by tokio's timers, which fire a
//!   millisecond or so late. A request that is due and is not polled, or whose inner service is not ready,
//!   delays the requests behind it by a second at most.
//!
//! Under any other algorithm, [`Policy::wait_up_to`](crate::Policy::wait_up_to) lets a request wait that is a
//! little early. Requests of a key go on in the order of their arrival, and a waiting request is charged when
//! its turn comes. [`LimiterBuilder::wait_places`](crate::limiter::LimiterBuilder::wait_places) bounds how
//! many wait in all. [`RateLimitLayer`][waiting-under-any-algorithm] lists which requests
//! are refused at once.
//!
//! # Several services, one budget
//!
//! A [`Limiter`](crate::Limiter) is cheap to clone, and its clones share their state and the lines in which
//! requests wait: pass one to several layers, or use that of an HTTP layer.
//!
//! A refusal waits until the inner service is ready. The inner service has to be `Clone`, because a
//! waiting request keeps a clone of it.
//!
//! [waiting-under-any-algorithm]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/middleware/index.html#waiting-under-any-algorithm

mod future;
mod layer;
mod limit;
mod refused;
mod verdict;

pub use self::future::LimitFuture;
pub use self::layer::LimitLayer;
pub use self::limit::Limit;
pub use self::refused::Refused;
