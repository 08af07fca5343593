//! The sliding log: the time of every admitted request, kept for one period.

mod step;

use std::time::Duration;

use super::kind::{Kind, Replenishment};
use super::{WithRule, paved_constructors, table};
use crate::error::ConfigError;
use crate::quota::Quota;

/// A limit in the last period, exactly: the log keeps the time of each admitted request.
///
/// ```text
///      limit 3      ● admitted   ○ denied
///
///      ●    ●   ●  ○   ○ ●  ○   ●   ●
///     ─┼────┼───┼────────┼──────┼───┼────────
///      ├── one period ───┤
///           ├── one period ─────┤
/// ```
///
/// A request of cost `c` at time `t` is allowed if `count + c ≤ limit`, where `count` is what
/// was admitted in `(t − period, t]`.
///
/// - **Choose it** if the limit must hold in every span of a period, to the request: for a contract about an
///   API, for payments, for text messages.
/// - **Keeps** 16 bytes for each instant at which requests were admitted: up to `16 · limit` bytes for each
///   key, and up to twice as much until old entries are removed, which happens in batches. A decision is a
///   binary search. The limit is at most [65,536](Self::MOST) unless this bound is [raised](Self::up_to).
/// - **Admits** never more than the limit in a span shorter than the period, and denies nothing that could
///   pass.
/// - **Tells** a wait until enough of the oldest requests are a period old.
///
/// In a sorted set of Redis it is known as the rolling window log; "An alternative approach to rate limiting"
/// by Figma (2017) compares it with counters.
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use tower_ratelimit::SlidingLog;
///
/// let log = SlidingLog::per_minute(100);
/// assert_eq!("100/minute".parse(), Ok(log));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlidingLog {
    quota: Quota,
}

impl SlidingLog {
    /// The largest limit, unless [`up_to`](Self::up_to) raises it. A key then takes up to 2 MiB.
    pub const MOST: u32 = 65_536;

    paved_constructors!(
        u16,
        Self::exactly,
        "The type of `limit` keeps it within [`MOST`](Self::MOST); for more see [`up_to`](Self::up_to)."
    );

    const fn exactly(quota: Quota) -> Self {
        Self { quota }
    }

    /// This many requests in any span of this period.
    ///
    /// # Errors
    ///
    /// If the limit is above [`MOST`](Self::MOST), and if the period is shorter than 1 ms, longer than 366
    /// days, or not a whole number of microseconds.
    pub fn new(limit: u32, period: Duration) -> Result<Self, ConfigError> {
        Self::of(Quota::new(limit, period)?)
    }

    /// This quota, kept by a log.
    ///
    /// # Errors
    ///
    /// If the limit is above [`MOST`](Self::MOST).
    pub fn of(quota: Quota) -> Result<Self, ConfigError> {
        Self::up_to(Self::MOST, quota)
    }

    /// This quota, with another bound on its limit. A key takes up to 16 bytes of memory for each unit of
    /// the limit, and up to twice as much between two removals of old entries.
    ///
    /// # Errors
    ///
    /// If the limit is above `most`.
    pub fn up_to(most: u32, quota: Quota) -> Result<Self, ConfigError> {
        if quota.limit() <= most {
            return Ok(Self::exactly(quota));
        }
        let remedy = format!(
            "a log keeps every request: give at most {most}, or raise the bound with \
             `SlidingLog::up_to`, or take a sliding window"
        );
        Err(ConfigError::new("limit", quota.limit(), remedy))
    }

    /// Returns the quota: the limit and its period.
    pub const fn quota(&self) -> Quota {
        self.quota
    }
}

impl Kind for SlidingLog {
    const NAME: &'static str = "sliding-log";
    const NUMBER: &'static str = "up-to";

    fn of_number(quota: Quota, most: Option<u32>) -> Result<Self, ConfigError> {
        Self::up_to(most.unwrap_or(Self::MOST), quota)
    }

    fn quota(&self) -> Quota {
        self.quota
    }

    /// Returns the bound, if it was raised.
    fn number(&self) -> Option<u32> {
        Some(self.quota.limit()).filter(|limit| *limit > Self::MOST)
    }

    fn resized(&self, quota: Quota, _: u32) -> Result<Self, ConfigError> {
        Ok(Self::exactly(quota))
    }

    fn replenishment(&self) -> Replenishment {
        Replenishment::Log
    }

    fn with_rule<W: WithRule>(&self, act: W) -> W::Result {
        act.long(*self)
    }

    fn lua(&self) -> super::Lua {
        super::Lua::of_window("sliding_log", include_str!("step.lua"), self.quota)
    }
}

table!(SlidingLog { up_to });
