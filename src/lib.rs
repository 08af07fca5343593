#![cfg_attr(docsrs, feature(doc_cfg))]
//! lib docs later

pub mod algorithm;
pub mod clock;
pub mod decision;
pub mod error;
pub mod key;
pub mod limiter;
pub mod policy;
pub mod quota;
pub mod store;

#[cfg(feature = "http")]
pub mod middleware;
#[cfg(feature = "http")]
mod observe;
#[cfg(feature = "http")]
pub mod response;

pub use self::algorithm::{
    Algorithm, AnchoredWindow, FixedWindow, Gcra, LeakyBucket, SlidingLog, SlidingSlots,
    SlidingWindow, TokenBucket,
};
pub use self::clock::{ManualClock, Micros};
pub use self::decision::{Decision, Outcome};
pub use self::error::{ConfigError, StoreError};
pub use self::limiter::Limiter;
#[cfg(feature = "http")]
pub use self::middleware::{RateLimit, RateLimitLayer};
pub use self::policy::Policy;
pub use self::quota::Quota;
pub use self::store::MemoryStore;
