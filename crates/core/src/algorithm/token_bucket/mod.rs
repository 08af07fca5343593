//! The token bucket: tokens arrive at a steady rate, and each request takes some.
//!
//! A bucket that refills continuously decides as a [`Gcra`] does; a bucket that refills by interval has a
//! rule of its own. Both are one type, since users look for both under one name. In text and in files each
//! has its own name, and the kind overrides what [`Kind`] assumes of a kind with one name.

mod interval;

use std::fmt;

use self::interval::ByInterval;
use super::kind::{self, Kind, Replenishment};
use super::{Gcra, WithRule, quota_constructors, table};
use crate::error::ConfigError;
use crate::quota::Quota;

/// A bucket of tokens, which refills continuously at the quota's rate and holds at most the burst; a
/// request takes as many tokens as it costs, or is denied and takes none.
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
/// A new key has a full bucket. Fractions of tokens are exact, so that a rate such as three in ten
/// milliseconds does not drift.
///
/// - **Choose it** unless you have a reason to choose another algorithm: clients may burst after a rest, and
///   cannot exceed the rate for long.
/// - **Keeps** what is missing from a full bucket, and its time: 24 bytes for each key. A decision is a
///   multiplication and a comparison; a charge, one division more.
/// - **Admits** at most the burst at one instant, and in a closed span of length `x` at most
///   `burst + ⌊limit · x / period⌋`.
/// - **Tells** each client its own wait, so that clients that obey do not come back all at the same time.
///
/// Policers of network traffic are token buckets; RFC 2697 specifies one.
///
/// It decides exactly as [`Gcra`] and [`LeakyBucket`](crate::LeakyBucket) do: the tokens are the burst minus
/// the debt.
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use tower_ratelimit::TokenBucket;
///
/// // Five a second in the long run; ten at once after a rest.
/// let bucket = TokenBucket::per_second(5).burst(10);
/// assert_eq!("5/second burst 10".parse(), Ok(bucket));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenBucket {
    gcra: Gcra,
    is_by_interval: bool,
}

impl TokenBucket {
    /// The name of a bucket that refills by interval.
    pub(super) const BY_INTERVAL: &'static str = "token-bucket-interval";

    quota_constructors!();

    /// A bucket that refills at this rate, and is as large as the quota's limit.
    pub const fn of(quota: Quota) -> Self {
        Self {
            gcra: Gcra::of(quota),
            is_by_interval: false,
        }
    }

    /// Sets how many tokens the bucket holds; by default the quota's limit.
    ///
    /// A bucket that holds 0 denies every request, and so does a rate of 0.
    pub const fn burst(self, burst: u32) -> Self {
        Self {
            gcra: self.gcra.burst(burst),
            ..self
        }
    }

    /// Refills by interval in place of continuously: the quota's whole limit arrives at once, at each full
    /// period after the key's first allowed request.
    ///
    /// ```text
    ///      3 every 0.6 s, burst 3     ● admitted   ○ denied
    ///
    ///      ●●●○  ○   ○  ○ ●●●○        ○ ●     ●
    ///     ─┼────┼────┼────┼────┼────┼────┼────┼────┼──
    ///      0   0.2  0.4  0.6  0.8   1   1.2  1.4  1.6 s
    /// ```
    ///
    /// Once the bucket is full again, the next request starts the intervals anew.
    ///
    /// - **Choose it** if people count in "100 a minute, all at once", and a steady trickle in between would
    ///   surprise them.
    /// - **Keeps** what is missing, its rate and the time of the last refill: 24 bytes for each key.
    /// - **Admits** in a closed span of length `x` at most
    ///   `max(B, B − 1 + min(N, B) · (⌊x / period⌋ + 1))`, for a limit `N` and a burst `B`.
    /// - **Tells** a wait to the refill that brings enough tokens.
    pub const fn by_interval(self) -> Self {
        Self {
            is_by_interval: true,
            ..self
        }
    }

    /// Returns the rate of the refill.
    pub const fn quota(&self) -> Quota {
        self.gcra.quota()
    }

    /// Returns how many tokens the bucket holds.
    pub const fn burst_size(&self) -> u32 {
        self.gcra.burst_size()
    }

    /// Returns the rule of a bucket that refills by interval; `None` if it refills continuously.
    fn interval_rule(self) -> Option<ByInterval> {
        self.is_by_interval.then_some(ByInterval {
            quota: self.quota(),
            burst: self.burst_size(),
        })
    }
}

/// The end of the text of a bucket that refills by interval. In the text of an `Algorithm` the name says so.
const SUFFIX: &str = "by interval";

impl Kind for TokenBucket {
    const NAME: &'static str = "token-bucket";
    const NUMBER: &'static str = "burst";

    fn of_number(quota: Quota, burst: Option<u32>) -> Result<Self, ConfigError> {
        Ok(Self::of(quota).burst(burst.unwrap_or(quota.limit())))
    }

    fn quota(&self) -> Quota {
        self.gcra.quota()
    }

    fn number(&self) -> Option<u32> {
        self.gcra.number()
    }

    fn name(&self) -> &'static str {
        if self.is_by_interval {
            Self::BY_INTERVAL
        } else {
            Self::NAME
        }
    }

    fn size(&self) -> u32 {
        self.gcra.burst_size()
    }

    fn resized(&self, quota: Quota, burst: u32) -> Result<Self, ConfigError> {
        let gcra = self.gcra.resized(quota, burst)?;
        Ok(Self { gcra, ..*self })
    }

    fn replenishment(&self) -> Replenishment {
        if self.is_by_interval {
            Replenishment::Interval
        } else {
            Replenishment::Steady
        }
    }

    fn with_rule<W: WithRule>(&self, act: W) -> W::Result {
        match self.interval_rule() {
            Some(rule) => act.packed(rule),
            None => self.gcra.with_rule(act),
        }
    }

    fn lua(&self) -> super::Lua {
        match self.interval_rule() {
            Some(rule) => rule.lua(),
            None => self.gcra.lua(),
        }
    }

    fn parse(text: &str) -> Result<Self, ConfigError> {
        let text = text.trim_end();
        match text.strip_suffix(SUFFIX) {
            Some(text) => kind::parse(text).map(Self::by_interval),
            None => kind::parse(text),
        }
    }

    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        kind::show(self, f)?;
        if self.is_by_interval {
            write!(f, " {SUFFIX}")?;
        }
        Ok(())
    }
}

/// The field `refill` in a file.
#[cfg(feature = "serde")]
#[derive(Clone, Copy, ::serde::Deserialize, ::serde::Serialize)]
#[serde(rename_all = "kebab-case")]
enum Refill {
    Continuous,
    Interval,
}

table!(
    TokenBucket {
        burst: u32,
        refill: Refill
    },
    |quota, burst, refill| {
        let bucket = TokenBucket::of_number(quota, burst)?;
        Ok(match refill {
            Some(Refill::Interval) => bucket.by_interval(),
            Some(Refill::Continuous) | None => bucket,
        })
    },
    |bucket| {
        let refill = bucket.is_by_interval.then_some(Refill::Interval);
        (Some(bucket.burst_size()), refill)
    }
);
