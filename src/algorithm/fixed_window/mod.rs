//! The fixed window: a counter that starts again at each full period of the wall clock.

mod step;

use super::kind::Kind;
#[cfg(feature = "redis")]
use super::lua::Lua;
#[cfg(feature = "serde")]
use super::serde::table;
use super::{WithRule, quota_constructors};
use crate::error::ConfigError;
use crate::quota::Quota;

/// So many in each window, where windows are aligned to the Unix epoch: "100 a minute" starts
/// again at each full minute, on every machine alike. A day begins at midnight, UTC; a longer
/// period is counted from 1970, and is no calendar month.
///
/// ```text
///      limit 3      ● admitted   ○ denied
///
///      ●  ●    ● ○ ○ │ ●  ●●   ○  │      ●
///     ───────────────┼────────────┼───────────
///                  12:01        12:02
/// ```
///
/// A request of cost `c` at time `t` is allowed when `used + c ≤ limit`, where `used` is what
/// was admitted since `t` was last a multiple of the period.
///
/// - **Choose it** when a quota is "so many a day", everybody's day begins at the same time, and
///   people have to be able to compute what is left by hand.
/// - **Keeps** the window's start and one counter for each key: 16 bytes. A decision is one
///   comparison.
/// - **Admits** at most the limit in each window, and so up to twice the limit in a span shorter
///   than the period that lies across an edge. Where that is too much, take a bucket.
/// - **Tells** a wait to the end of the window: clients that obey come back at once, together.
///
/// It is the counter under a name with the minute in it, the first pattern that the Redis
/// documentation of `INCR` shows for a rate limiter.
///
/// ```
/// use tower_ratelimit::FixedWindow;
///
/// let daily = FixedWindow::per_day(10_000);
/// assert_eq!("10000/day".parse(), Ok(daily));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FixedWindow {
    quota: Quota,
}

impl FixedWindow {
    quota_constructors!();

    /// This quota, in fixed windows.
    pub const fn of(quota: Quota) -> Self {
        Self { quota }
    }

    /// How much per how long.
    pub const fn quota(&self) -> Quota {
        self.quota
    }
}

impl Kind for FixedWindow {
    const NAME: &'static str = "fixed-window";

    fn of_number(quota: Quota, _: Option<u32>) -> Result<Self, ConfigError> {
        Ok(Self::of(quota))
    }

    fn quota(&self) -> Quota {
        self.quota
    }

    fn with_rule<W: WithRule>(&self, act: W) -> W::Result {
        act.fixed(*self)
    }

    #[cfg(feature = "redis")]
    fn lua(&self) -> Lua {
        Lua::of_window("fixed_window", include_str!("step.lua"), self.quota)
    }
}

#[cfg(feature = "serde")]
table!(FixedWindow);
