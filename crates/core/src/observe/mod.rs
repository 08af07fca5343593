//! Counters of each policy, and the one place where changes are reported.
//!
//! The stores, the limiter and the layers count here, always. A [`Monitor`] reads all counters as a [`Snapshot`],
//! without a lock that a request could wait for.
//!
//! ```
//! # use tower_ratelimit_core as tower_ratelimit;
//! use tower_ratelimit::{FixedWindow, Limiter, Policy};
//!
//! let limiter = Limiter::builder()
//!     .policy(Policy::new("mails", FixedWindow::per_hour(10)))
//!     .build_local()?;
//! let _ = limiter.check("ann", 9).now();
//! let _ = limiter.check("ann", 9).now();
//!
//! let snapshot = limiter.snapshot();
//! let mails = snapshot.policy("mails").unwrap();
//! assert_eq!((mails.allowed, mails.refused, mails.cost), (1, 1, 9));
//! assert_eq!(mails.near_limit, 1);
//! # Ok::<(), tower_ratelimit::ConfigError>(())
//! ```
//!
//! A layer has a monitor too: [`RateLimitLayer::monitor`][monitor].
//!
//! # What is counted
//!
//! A request that a policy is asked about has exactly one of these outcomes under it, so that their sum is the number of
//! such requests:
//!
//! | outcome | the request |
//! | --- | --- |
//! | [`allowed`](PolicyStats::allowed) | goes on, within the limit of the policy |
//! | [`refused`](PolicyStats::refused) | is denied by the policy |
//! | [`shadow_refused`](PolicyStats::shadow_refused) | goes on, and would be refused if the policy were enforced |
//! | [`soft`](PolicyStats::soft) | goes on, over the limit of a soft policy |
//! | [`uncharged`](PolicyStats::uncharged) | is within the limit of the policy, and refused because of another one |
//! | [`failed`](PolicyStats::failed) | is refused, because the store could not decide |
//!
//! The other counts tell of some of these requests. A request that waits is counted when its wait is over. A request is
//! not counted if its client goes away before the decision is there, but what it is settled at is cost.
//!
//! [`cost`](PolicyStats::cost) has what requests cost in the end: an estimate that is settled is counted at its settlement.
//!
//! [`near_limit`](PolicyStats::near_limit) needs the numbers of allowed requests. A layer
//! [`without_headers`][without_headers], and
//! [`admit`](crate::Limiter::admit), do not ask for them and count no near misses.
//!
//! # The heaviest keys
//!
//! A policy with [`top_keys`](crate::Policy::top_keys) finds the keys that ask for most units, in fixed memory
//! and however many keys there are. A snapshot tells them, each with how much its number may be too high. Keys are shown
//! as hashes, unless the policy sets another form.
//!
//! ```
//! # use tower_ratelimit_core as tower_ratelimit;
//! use tower_ratelimit::policy::TopKeys;
//! use tower_ratelimit::{FixedWindow, Limiter, Policy};
//!
//! let mails = Policy::new("mails", FixedWindow::per_hour(10)).top_keys(TopKeys::new(5).in_the_clear());
//! let limiter = Limiter::builder().policy(mails).build_local()?;
//! for (key, cost) in [("ann", 2), ("bob", 8), ("bob", 8)] {
//!     let _ = limiter.check(key, cost).now();
//! }
//! let snapshot = limiter.snapshot();
//! let heaviest = snapshot.policy("mails").unwrap().heaviest.as_ref().unwrap();
//! let bob = &heaviest.keys[0];
//! assert_eq!((bob.key.as_str(), bob.cost, bob.error, bob.refused), ("t:bob", 16, 0, 1));
//! # Ok::<(), tower_ratelimit::ConfigError>(())
//! ```
//!
//! # As data
//!
//! With feature `serde`, a snapshot serializes: a map with the names of the fields as keys. Unix times and lengths of
//! time are numbers of seconds.
//!
//! [monitor]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/middleware/struct.RateLimitLayer.html#method.monitor
//! [without_headers]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/middleware/struct.RateLimitLayerBuilder.html#method.without_headers

mod calls;
mod counters;
mod health;
mod heavy_hitters;
pub(crate) mod metric;
pub(crate) mod monitor;
mod past;
mod penalty;
mod queue;
mod recent;
mod refusal;
mod rows;
mod sketch;
mod slot;
pub(crate) mod snapshot;
mod store;
pub(crate) mod times;
mod wait;

pub use self::monitor::Monitor;
pub use self::snapshot::{
    ConfigStats, FactorStats, HeavyHitter, HeavyHitters, KeyStats, Latency, LeaseStats,
    PolicyStats, QueueStats, RequestStats, ShadowStats, SignalStats, Snapshot, StoreStats,
};

pub(crate) use self::calls::Calls;
pub(crate) use self::counters::{Counters, Metered, Totals};
pub(crate) use self::health::StoreHealth;
pub(crate) use self::heavy_hitters::Heaviest;
pub(crate) use self::metric::{Metric, Published};
pub use self::monitor::Monitored;
pub(crate) use self::past::Past;
pub(crate) use self::snapshot::{Count, Request};
pub(crate) use self::store::{StoreEvent, observe};
pub(crate) use self::wait::Wait;
