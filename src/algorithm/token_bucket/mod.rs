//! The token bucket: tokens arrive at a steady rate, each request takes some.

mod interval;

use std::time::Duration;

use self::interval::ByInterval;
#[cfg(feature = "redis")]
use super::Lua;
use super::{Gcra, WithRule, quota_constructors};
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
/// - **Choose it** unless you have a reason to choose another: clients may burst after a rest,
///   and cannot exceed the rate for long.
/// - **Keeps** what is missing from a full bucket, and since when: 24 bytes for each key. A
///   decision is a multiplication and a comparison; a charge, one division more.
/// - **Admits** at most the burst at one instant, and in a closed span of length `x` at most
///   `burst + ⌊limit · x / period⌋`.
/// - **Tells** each client its own wait, so that clients that obey do not come back together.
///
/// Policers of network traffic are token buckets; RFC 2697 states one in full.
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
pub struct TokenBucket(Refill);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Refill {
    Continuous(Gcra),
    Interval(ByInterval),
}

impl TokenBucket {
    quota_constructors!();

    /// A bucket refilled at this rate, as large as the quota's limit.
    pub const fn of(quota: Quota) -> Self {
        Self(Refill::Continuous(Gcra::of(quota)))
    }

    /// How many tokens the bucket holds; the quota's limit unless it is said.
    ///
    /// A bucket that holds 0 denies everything, and so does a rate of 0.
    pub const fn burst(self, burst: u32) -> Self {
        Self(match self.0 {
            Refill::Continuous(gcra) => Refill::Continuous(gcra.burst(burst)),
            Refill::Interval(bucket) => Refill::Interval(ByInterval { burst, ..bucket }),
        })
    }

    /// Refills by interval in place of continuously: the quota's whole limit arrives at once,
    /// at each full period after the key's first allowed request.
    ///
    /// ```text
    ///      3 every 0.6 s, burst 3     ● admitted   ○ denied
    ///
    ///      ●●●○  ○   ○  ○ ●●●○        ○ ●     ●
    ///     ─┼────┼────┼────┼────┼────┼────┼────┼────┼──
    ///      0   0.2  0.4  0.6  0.8   1   1.2  1.4  1.6 s
    /// ```
    ///
    /// A bucket that is full again is a new one: its next request starts the intervals anew.
    ///
    /// - **Choose it** when people count in "so many a minute, all at once", and a steady trickle
    ///   in between would surprise them.
    /// - **Keeps** what is missing and the time of the last refill: 16 bytes for each key.
    /// - **Admits** in a closed span of length `x` at most
    ///   `max(B, B − 1 + min(N, B) · (⌊x / period⌋ + 1))`, for a limit `N` and a burst `B`.
    /// - **Tells** a wait to the refill that brings enough.
    pub const fn by_interval(self) -> Self {
        let (quota, burst) = (self.quota(), self.size());
        Self(Refill::Interval(ByInterval { quota, burst }))
    }

    /// Whether it refills by interval.
    pub const fn is_by_interval(&self) -> bool {
        matches!(self.0, Refill::Interval(_))
    }

    /// The rate of refill: how much per how long.
    pub const fn quota(&self) -> Quota {
        match &self.0 {
            Refill::Continuous(gcra) => gcra.quota(),
            Refill::Interval(bucket) => bucket.quota,
        }
    }

    /// How many tokens the bucket holds.
    pub const fn size(&self) -> u32 {
        match &self.0 {
            Refill::Continuous(gcra) => gcra.size(),
            Refill::Interval(bucket) => bucket.burst,
        }
    }

    /// The time in which one token arrives, rounded up to whole microseconds; by interval, the
    /// time in which a whole limit arrives. `None` for a rate of 0.
    pub fn refill_interval(&self) -> Option<Duration> {
        match &self.0 {
            Refill::Continuous(gcra) => gcra.emission_interval(),
            Refill::Interval(bucket) => (bucket.quota.limit() > 0).then(|| bucket.quota.period()),
        }
    }

    /// The same rule in Lua.
    #[cfg(feature = "redis")]
    pub(super) fn lua(self) -> Lua {
        match self.0 {
            Refill::Continuous(gcra) => gcra.lua(),
            Refill::Interval(bucket) => bucket.lua(),
        }
    }

    pub(super) fn with_rule<W: WithRule>(self, act: W) -> W::Result {
        match self.0 {
            Refill::Continuous(gcra) => gcra.with_rule(act),
            Refill::Interval(bucket) => act.fixed(bucket),
        }
    }
}
