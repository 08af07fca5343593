//! The sliding window counter: an estimate of the last period, made of two fixed windows.

mod step;

use super::kind::{Kind, Replenishment};
use super::{WithRule, quota_constructors, table};
use crate::clock::Micros;
use crate::error::ConfigError;
use crate::quota::Quota;

/// A limit in the last period, by an estimate: the count of the current fixed window, and of the window
/// before it the part that still overlaps the last period, as if its requests had come evenly spaced.
///
/// ```text
///      limit 4          previous: 4        current: 1
///                  ├──────────────────┼──────────────────┤
///                           ├── the last period ─┤
///                            half of 4      + 1   = 3, one more is allowed
/// ```
///
/// With the counts `p` of the previous and `q` of the current window, and `e` the time since the
/// current one began, a request of cost `c` is allowed if
/// `p·(period − e) + (q + c)·period ≤ limit·period`. The estimate is not rounded.
///
/// - **Choose it** as the default for "100 in the last minute": nearly a sliding log, at the price of a
///   fixed window.
/// - **Keeps** the window's start and two counters for each key: 24 bytes. A decision is two
///   multiplications and a comparison.
/// - **Admits** at most `2·limit − 1` in a span just under the period, and so much only to a client that
///   knows the windows and plans for them.
/// - **Tells** a wait until enough of the previous window has slid out: up to two periods.
///
/// Cloudflare described it in "How we built rate limiting capable of scaling to millions of
/// domains" (2017).
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use tower_ratelimit::SlidingWindow;
///
/// let window = SlidingWindow::per_minute(100);
/// assert_eq!("100/minute".parse(), Ok(window));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlidingWindow {
    quota: Quota,
}

impl SlidingWindow {
    quota_constructors!();

    /// This quota, in a sliding window.
    pub const fn of(quota: Quota) -> Self {
        Self { quota }
    }

    /// Returns the quota: the limit and its period.
    pub const fn quota(&self) -> Quota {
        self.quota
    }
}

impl Kind for SlidingWindow {
    const NAME: &'static str = "sliding-window";

    fn of_number(quota: Quota, _: Option<u32>) -> Result<Self, ConfigError> {
        Ok(Self::of(quota))
    }

    fn quota(&self) -> Quota {
        self.quota
    }

    fn refunds_newest(&self) -> Option<Micros> {
        Some(self.quota.period_micros())
    }

    fn replenishment(&self) -> Replenishment {
        Replenishment::Sliding
    }

    fn with_rule<W: WithRule>(&self, act: W) -> W::Result {
        act.packed(*self)
    }

    fn lua(&self) -> super::Lua {
        super::Lua::of_window("sliding_window", include_str!("step.lua"), self.quota)
    }
}

table!(SlidingWindow);
