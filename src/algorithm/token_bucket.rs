//! The token bucket: tokens drip in at a steady rate, each request takes some.

use std::time::Duration;

use super::{Gcra, quota_constructors};
use crate::quota::Quota;

/// A bucket of tokens, refilled continuously at the quota's rate and never fuller than the
/// burst; a request takes as many tokens as it costs, or is denied and takes none.
///
/// ```text
///      5 a second, burst 3        ● admitted   ○ denied
///
///      ●●●○  ●   ○ ●    ●               ●●●○
///     ─┼────┼────┼────┼────┼────┼────┼────┼────┼──
///      0   0.2  0.4  0.6  0.8   1   1.2  1.4  1.6 s
///  tokens
///      0  0.5   0    0    0     1    2   0
/// ```
///
/// A key that was never seen has a full bucket. Tokens are counted exactly, in fractions, so
/// that a rate such as three in ten milliseconds does not drift.
///
/// - **Keeps** what is missing from a full bucket, and since when.
/// - **Admits** at most the burst at one instant, and in a closed span of length `x` at most
///   `burst + ⌊limit · x / period⌋`.
/// - **Tells** each client its own wait, so that clients that obey do not come back together.
///
/// It decides exactly as [`Gcra`] and [`LeakyBucket`](crate::LeakyBucket) do: the tokens are the
/// burst less what is owed.
///
/// ```
/// use tower_ratelimit::TokenBucket;
///
/// // Five a second in the long run; ten at once after a rest.
/// let bucket = TokenBucket::per_second(5).burst(10);
/// assert_eq!("5/second burst 10".parse(), Ok(bucket));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenBucket(Gcra);

impl TokenBucket {
    quota_constructors!();

    /// A bucket refilled at this rate, as large as the quota's limit.
    pub const fn of(quota: Quota) -> Self {
        Self(Gcra::of(quota))
    }

    /// How many tokens the bucket holds; the quota's limit unless it is said.
    ///
    /// A bucket that holds 0 denies everything.
    pub const fn burst(self, burst: u32) -> Self {
        Self(self.0.burst(burst))
    }

    /// The rate of refill: how much per how long.
    pub const fn quota(&self) -> Quota {
        self.0.quota()
    }

    /// How many tokens the bucket holds.
    pub const fn capacity(&self) -> u32 {
        self.0.capacity()
    }

    /// The time in which one token arrives, rounded up to whole microseconds; `None` for a rate
    /// of 0.
    pub fn refill_interval(&self) -> Option<Duration> {
        self.0.emission_interval()
    }

    pub(super) const fn as_gcra(&self) -> &Gcra {
        &self.0
    }
}
