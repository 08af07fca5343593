//! The anchored window: a counter that lives as long as its time to live.

mod step;

use super::kind::{Kind, Replenishment};
use super::{WithRule, quota_constructors, table};
use crate::error::ConfigError;
use crate::quota::Quota;

/// A limit in a window that opens at a key's first allowed request and lasts one period; the next allowed
/// request after its end opens the next window.
///
/// ```text
///      limit 3      ● admitted   ○ denied
///
///      ●  ●   ●  ○   ○        ●●   ●   ○
///     ─┼─────────────┼────────┼─────────────┼──
///      opens      closes      opens      closes
/// ```
///
/// While a window is open, a request of cost `c` is allowed if `used + c ≤ limit`.
///
/// - **Choose it** if people expect "100 in the hour after the first", or if the window of each client
///   should end at a time of its own, so that clients do not come back all at the same time.
/// - **Keeps** the window's start and one counter for each key: 16 bytes. A decision is one
///   comparison.
/// - **Admits** at most `2·limit − 1` in a span shorter than the period: one request opens a
///   window, the rest come just before it closes, and a whole limit just after.
/// - **Tells** a wait to the end of the key's window.
///
/// Most limiters that people write themselves are this counter with an expiry, `INCR` and `EXPIRE`; it is
/// the second pattern in the Redis documentation of `INCR`.
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use tower_ratelimit::AnchoredWindow;
///
/// let hourly = AnchoredWindow::per_hour(100);
/// assert_eq!("100/hour".parse(), Ok(hourly));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AnchoredWindow {
    quota: Quota,
}

impl AnchoredWindow {
    quota_constructors!();

    /// This quota, in anchored windows.
    pub const fn of(quota: Quota) -> Self {
        Self { quota }
    }

    /// Returns the quota: the limit and its period.
    pub const fn quota(&self) -> Quota {
        self.quota
    }
}

impl Kind for AnchoredWindow {
    const NAME: &'static str = "anchored-window";

    fn of_number(quota: Quota, _: Option<u32>) -> Result<Self, ConfigError> {
        Ok(Self::of(quota))
    }

    fn quota(&self) -> Quota {
        self.quota
    }

    fn replenishment(&self) -> Replenishment {
        Replenishment::Anchored
    }

    fn with_rule<W: WithRule>(&self, act: W) -> W::Result {
        act.packed(*self)
    }

    fn lua(&self) -> super::Lua {
        super::Lua::of_window("anchored_window", include_str!("step.lua"), self.quota)
    }
}

table!(AnchoredWindow);
