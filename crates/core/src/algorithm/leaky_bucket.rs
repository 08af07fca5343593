//! The leaky bucket as a meter: requests pour in, and the bucket leaks at a steady rate.

use super::kind::{Kind, Replenishment};
use super::{Gcra, WithRule, quota_constructors, table};
use crate::error::ConfigError;
use crate::quota::Quota;

/// A bucket that leaks at the quota's rate; a request pours in as much as it costs. A request that would make
/// the bucket overflow is denied, and pours nothing.
///
/// ```text
///      5 a second, capacity 3     ● admitted   ○ denied
///
///      ●●●○  ●   ○ ●    ●               ●●●○
///     ─┼────┼────┼────┼────┼────┼────┼────┼────┼──
///      0   0.2  0.4  0.6  0.8   1   1.2  1.4  1.6 s
///   level
///      3  2.5   3    3    3     2    1   3
/// ```
///
/// This is the bucket as a meter, which only measures. The bucket as a queue, which holds requests until they
/// may leave, is a [`LeakyQueue`](crate::LeakyQueue).
///
/// - **Choose it** as you would a [token bucket](crate::TokenBucket), if you think in a level that must not
///   overflow.
/// - **Keeps** the level, and its time: 24 bytes for each key. A decision is a multiplication and a
///   comparison; a charge, one division more.
/// - **Admits** at most the capacity at one instant, and in a closed span of length `x` at most
///   `capacity + ⌊limit · x / period⌋`.
/// - **Tells** each client its own wait, so that clients that obey do not come back all at the same time.
///
/// Jonathan Turner proposed it in "New directions in communications" (1986).
///
/// It decides exactly as [`Gcra`] and [`TokenBucket`](crate::TokenBucket) do: the level is what
/// is missing from a full bucket of tokens.
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use tower_ratelimit::LeakyBucket;
///
/// let meter = LeakyBucket::per_second(5).capacity(3);
/// assert_eq!("5/second capacity 3".parse(), Ok(meter));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeakyBucket(Gcra);

impl LeakyBucket {
    quota_constructors!();

    /// A bucket that leaks at this rate, and is as large as the quota's limit.
    pub const fn of(quota: Quota) -> Self {
        Self(Gcra::of(quota))
    }

    /// Sets how much the bucket holds; by default the quota's limit.
    ///
    /// A bucket that holds 0 denies every request, and so does a rate of 0.
    pub const fn capacity(self, capacity: u32) -> Self {
        Self(self.0.burst(capacity))
    }

    /// Returns the rate of the leak.
    pub const fn quota(&self) -> Quota {
        self.0.quota()
    }
}

impl Kind for LeakyBucket {
    const NAME: &'static str = "leaky-bucket";
    const NUMBER: &'static str = "capacity";

    fn of_number(quota: Quota, capacity: Option<u32>) -> Result<Self, ConfigError> {
        Gcra::of_number(quota, capacity).map(Self)
    }

    fn quota(&self) -> Quota {
        self.0.quota()
    }

    fn number(&self) -> Option<u32> {
        self.0.number()
    }

    fn size(&self) -> u32 {
        self.0.burst_size()
    }

    fn resized(&self, quota: Quota, capacity: u32) -> Result<Self, ConfigError> {
        self.0.resized(quota, capacity).map(Self)
    }

    fn replenishment(&self) -> Replenishment {
        Replenishment::Steady
    }

    fn with_rule<W: WithRule>(&self, act: W) -> W::Result {
        self.0.with_rule(act)
    }

    fn lua(&self) -> super::Lua {
        self.0.lua()
    }
}

table!(LeakyBucket { capacity });
