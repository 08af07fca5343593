#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(all(
        feature = "axum",
        feature = "client",
        feature = "quanta",
        feature = "serde",
        feature = "tonic"
    )),
    allow(
        rustdoc::broken_intra_doc_links,
        reason = "the documentation speaks of all features; without them some of its links lead nowhere"
    )
)]
//! Rate limiting for axum, tonic and any other Tower service.
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
//! Each address has ten requests at once and five a second in the long run. Whoever asks for
//! more is answered with `429 Too Many Requests` and told how long to wait; after that wait the
//! same request passes, if nobody else has taken its place.
//!
//! The address has to be asked for where the service is started:
//! `axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())`.
//!
//! # Where the layer belongs
//!
//! Outside everything that costs (parsing, authentication, compression), so that a refusal is
//! cheap, and inside `CorsLayer`, or a browser sees a refusal as a network error. A policy by user
//! stands inside authentication, and another layer outside it counts by address. More in
//! [`middleware`](middleware#where-the-layer-belongs).
//!
//! # Where to go
//!
//! - [`middleware`]: the layer, its defaults, and where it belongs among other layers
//! - [`algorithm`]: what each algorithm admits, and [which one to choose](choosing)
//! - [`key`]: who is counted, behind proxies too
//! - [`policy`]: costs, conditions, soft limits, and requests without a key
//! - [`response`]: what clients are told
//! - [`service`]: the same for services that are not of HTTP
//! - [`client`]: the outgoing side, a client that heeds the limits that it is told
//! - [`limiter`]: the same without a service
//! - [`clock`]: testing with a clock that stands still
//! - [`store`]: where state lives
//! - [`diagnostics`]: what the log says, and what mends it
//! - [`migrating`]: from `tower_governor`, option by option
//!
//! # How it differs from `tower::limit::RateLimitLayer`
//!
//! Tower's own layer holds a service back: it knows one limit for everybody, makes callers wait
//! in `poll_ready`, and its service cannot be cloned, so that a router needs a buffer around it.
//! This one counts each client apart, answers at once those who are over their limit, and can be
//! cloned: all clones share one state.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! | --- | --- | --- |
//! | `axum` | yes | finds the peer's address and the matched path where axum puts them; turns on `http` |
//! | `tracing` | yes | logs what a human should mend |
//! | `http` | by `axum` | the layer, for any server of HTTP |
//! | `tonic` | no | refuses calls of gRPC as gRPC does, and reads what tonic tells of a connection; turns on `http` |
//! | `client` | no | a layer around clients, which learns the limits of servers |
//! | `quanta` | no | a faster clock, for machines whose processors agree on the time |
//! | `serde` | no | quotas and algorithms in configuration files: see [`Algorithm`] |
//! | `redis` | no | state in Redis or Valkey, shared by many nodes: `RedisStore` |
//! | `redis-cluster` | no | the same in a cluster; turns on `redis` |
//! | `redis-sentinel` | no | the same behind Sentinel; turns on `redis` |
//! | `redis-tls` | no | the same through TLS, by rustls; turns on `redis` |
//! | `testing` | no | tells whether a [store of your own](store::Items) is right, and tells Redis the time |
//!
//! Without any, there is the [`Limiter`] with its algorithms and its store, and the
//! [`LimitLayer`] for services of any kind.

pub mod algorithm;
pub mod clock;
pub mod decision;
pub mod diagnostics;
pub mod error;
pub mod key;
pub mod limiter;
pub mod policy;
pub mod quota;
pub mod service;
pub mod store;

mod line;

#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "http")]
pub mod middleware;
#[cfg(feature = "http")]
mod observe;
#[cfg(feature = "http")]
pub mod response;
#[cfg(feature = "testing")]
pub mod testing;

#[doc = include_str!("../docs/choosing.md")]
pub mod choosing {}

#[cfg(feature = "redis")]
#[doc = include_str!("../docs/many-nodes.md")]
pub mod many_nodes {}

#[cfg(feature = "redis")]
#[doc = include_str!("../docs/reliability.md")]
pub mod reliability {}

#[cfg(feature = "axum")]
#[doc = include_str!("../docs/migrating.md")]
pub mod migrating {}

pub use self::algorithm::{
    Algorithm, AnchoredWindow, FixedWindow, Gcra, LeakyBucket, LeakyQueue, SlidingLog,
    SlidingSlots, SlidingWindow, TokenBucket,
};
pub use self::clock::{ManualClock, Micros};
pub use self::decision::{Decision, Outcome};
pub use self::error::{ConfigError, RestoreError, StoreError};
pub use self::limiter::Limiter;
#[cfg(feature = "http")]
pub use self::middleware::{RateLimit, RateLimitLayer};
pub use self::policy::{OnStoreFailure, Policy};
pub use self::quota::Quota;
pub use self::service::LimitLayer;
#[cfg(feature = "redis")]
pub use self::store::RedisStore;
pub use self::store::{MemoryStore, SharedStore};

#[cfg(all(
    doctest,
    feature = "axum",
    feature = "client",
    feature = "redis",
    feature = "tonic"
))]
#[doc = include_str!("../README.md")]
mod readme {}
