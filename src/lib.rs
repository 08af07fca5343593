#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(all(
        feature = "axum",
        feature = "client",
        feature = "quanta",
        feature = "serde",
        feature = "tonic",
        feature = "usage"
    )),
    allow(
        rustdoc::broken_intra_doc_links,
        reason = "the documentation speaks of all features; without them some of its links lead nowhere"
    )
)]
//! Rate limiting middleware for axum, tonic and any other Tower service.
//!
//! ```
//! use axum::{Router, routing::get};
//! use tower_ratelimit::{RateLimitLayer, TokenBucket, key};
//!
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(RateLimitLayer::new(key::client_ip(), TokenBucket::per_second(5).burst(10)));
//! ```
//!
//! Each client address may send ten requests at once, and five a second in the long run. A request
//! over the limit is answered with `429 Too Many Requests` and the time to wait. After that wait the
//! same request passes, unless another request of the client takes the place first.
//!
//! The server has to provide the peer address:
//! `axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())`.
//!
//! # Where the layer belongs
//!
//! Outside everything that costs (parsing, authentication, compression), so that a refusal is
//! cheap, and inside `CorsLayer`, or a browser reports a refusal as a network error. A policy by user
//! stands inside authentication, and a second layer outside it counts by address. More in
//! [`middleware`](middleware#where-the-layer-belongs).
//!
//! # Where to go
//!
//! - [`guide`]: a page for each subject: [which algorithm](guide::choosing), keys, responses,
//!   waiting, gRPC, stores, many nodes, testing, migrating from another limiter
//! - [`middleware`]: the layer and its defaults
//! - [`algorithm`]: what each algorithm admits
//! - [`key`]: what a limit counts by
//! - [`policy`]: costs, conditions, soft limits, requests without a key
//! - [`plan`]: limits by plan, by key and by operation
//! - [`response`]: headers, bodies and status of responses
//! - [`service`]: the layer for services that are not HTTP
//! - [`client`]: the layer around a client, which obeys the limits in the responses of servers
//! - [`limiter`]: the limiter without a service
//! - [`clock`]: the time, and a clock for tests
//! - [`store`]: where state lives
//! - [`observe`]: counters, and a snapshot of them
//! - `usage`: what the body of a response says that it has used, such as tokens of a model
//! - [`factor`]: the share of a limit that is in force
//! - [`diagnostics`]: the codes in the log, and the remedies
//!
//! # How it differs from `tower::limit::RateLimitLayer`
//!
//! Tower's own layer has one limit for all callers, makes them wait in `poll_ready`, and its service
//! cannot be cloned, so a router needs a buffer around it. This layer counts each client apart,
//! refuses at once, and can be cloned: all clones share one state.
#![doc = ""]
#![doc = include_str!("../docs/features.md")]

mod advice;
pub mod diagnostics;
// The examples of its pages need these.
#[cfg(any(
    not(doctest),
    all(
        feature = "axum",
        feature = "calendar",
        feature = "redis",
        feature = "usage"
    )
))]
pub mod guide;
pub mod key;
pub mod middleware;
pub mod policy;
pub mod response;
pub mod store;

#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "usage")]
pub mod usage;
#[cfg(not(feature = "usage"))]
#[path = "usage/absent.rs"]
mod usage;

#[doc(inline)]
pub use tower_ratelimit_core::{
    algorithm, calendar, clock, decision, error, factor, limiter, observe, plan, quota, service,
};

pub use self::algorithm::{
    Algorithm, AnchoredWindow, Concurrency, FixedWindow, Gcra, Hours, LeakyBucket, LeakyQueue,
    SlidingLog, SlidingSlots, SlidingWindow, TokenBucket,
};
pub use self::clock::{ManualClock, Micros};
pub use self::decision::{Decision, Outcome};
pub use self::error::{ConfigError, RestoreError, StoreError};
pub use self::limiter::{Limiter, LocalLimiter};
pub use self::middleware::{RateLimit, RateLimitLayer};
pub use self::policy::{OnStoreFailure, Policy};
pub use self::quota::Quota;
pub use self::service::LimitLayer;
#[cfg(feature = "redis")]
pub use self::store::RedisStore;
pub use self::store::{MemoryStore, SharedStore};

/// What the other crates of the workspace use. It is no part of the API, and may change in any version.
// For the crates of the workspace alone.
#[doc(hidden)]
pub mod __internal {
    pub use tower_ratelimit_core::__internal::{
        ClientCharges, Interval, Kind, LocalTime, Metric, Pointless, Published, ResolverOf, Sealed,
        Times, Value, diagnose, read_zone_data_again, warn_once_in_lines, warn_once_of,
    };

    pub use crate::key::extract::any::AnyKey;
    pub use crate::key::extract::path::normal_path;
    pub use crate::middleware::enforcer::trying::Trial;
    pub use crate::middleware::explanation::{Explanation, PolicyEffect};
    pub use crate::middleware::shadow::Shadow;
    pub use crate::policy::logged::Logged;
    pub use crate::response::saturated::saturated;
}
