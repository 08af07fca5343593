//! The fixed window: a counter that starts again at each full period of the wall clock.

mod step;

use super::kind::{Kind, Replenishment};
use super::{WithRule, quota_constructors, table};
use crate::error::ConfigError;
use crate::quota::Quota;

/// A limit in each window, where windows are aligned to the Unix epoch: "100 a minute" starts again at
/// each full minute, on every machine alike. A day begins at midnight, UTC; longer periods are counted from
/// 1970, and are no calendar months.
///
/// ```text
///      limit 3      ● admitted   ○ denied
///
///      ●  ●    ● ○ ○ │ ●  ●●   ○  │      ●
///     ───────────────┼────────────┼───────────
///                  12:01        12:02
/// ```
///
/// A request of cost `c` at time `t` is allowed if `used + c ≤ limit`, where `used` is what was admitted
/// since the latest multiple of the period.
///
/// - **Choose it** if a quota is "10,000 a day", the day begins at the same time for all clients, and people
///   have to be able to compute by hand what is left.
/// - **Keeps** the window's start and one counter for each key: 16 bytes. A decision is one
///   comparison.
/// - **Admits** at most the limit in each window, and so up to twice the limit in a shorter span that
///   crosses the edge of a window. If that is too much, take a bucket.
/// - **Tells** a wait to the end of the window: clients that obey come back all at the same time.
///
/// It is the first pattern for a rate limiter in the Redis documentation of `INCR`: a counter whose name
/// contains the minute.
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
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

    /// Returns the quota: the limit and its period.
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

    fn replenishment(&self) -> Replenishment {
        Replenishment::Aligned
    }

    fn with_rule<W: WithRule>(&self, act: W) -> W::Result {
        act.packed(*self)
    }

    fn lua(&self) -> super::Lua {
        super::Lua::of_window("fixed_window", include_str!("step.lua"), self.quota)
    }
}

table!(FixedWindow);
