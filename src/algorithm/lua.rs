//! The rule of an algorithm in Lua, for stores that run it where the state is.

use super::kind::{Kind, match_kind};
use super::{Algorithm, Limit};
#[cfg(feature = "calendar")]
use crate::calendar::Calendar;
use crate::clock::Micros;
use crate::quota::Quota;

/// A rule in Lua.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lua {
    /// The name of the rule, and of the table that the text declares.
    pub(crate) name: &'static str,
    /// The text, which stands beside the same rule in Rust.
    pub(crate) text: &'static str,
    /// The arguments of its functions: the most at one instant, two numbers that differ between the
    /// rules, and the quota's limit.
    pub(crate) numbers: [u64; 4],
    /// The calendar whose windows the numbers tell: see [`numbers_at`](Self::numbers_at).
    #[cfg(feature = "calendar")]
    pub(crate) calendar: Option<Calendar>,
}

impl Lua {
    /// The rule of a window, whose functions take the limit and the period.
    pub(super) fn of_window(name: &'static str, text: &'static str, quota: Quota) -> Self {
        let limit = quota.limit().into();
        Self::of_numbers(name, text, [limit, quota.period_micros().get(), 0, limit])
    }

    pub(super) fn of_numbers(name: &'static str, text: &'static str, numbers: [u64; 4]) -> Self {
        Self {
            name,
            text,
            numbers,
            #[cfg(feature = "calendar")]
            calendar: None,
        }
    }

    /// The numbers for a call at this moment, by the clock of this node.
    ///
    /// A server knows no zone. Of a calendar it is told where three boundaries lie: those of the present window, and of
    /// the window beside it that is nearer. So the clock of the server may differ by half a window.
    pub(crate) fn numbers_at(&self, now: impl FnOnce() -> Micros) -> [u64; 4] {
        #[cfg(feature = "calendar")]
        if let Some(calendar) = self.calendar {
            let now = now();
            let (present, beside) = (calendar.at(now), calendar.beside(now));
            let [from, until] = [
                present.from.min(beside.from),
                present.until.max(beside.until),
            ];
            let between = present.from.max(beside.from);
            let [limit, ..] = self.numbers;
            return [limit, from.get(), between.get(), until.get()];
        }
        let _ = now;
        self.numbers
    }
}

impl Algorithm {
    /// The rule in Lua; `None` if unlimited.
    pub(crate) fn lua(&self) -> Option<Lua> {
        match_kind!(self, kind => Some(kind.lua()), None)
    }

    /// The same with other [numbers](Lua::numbers); `None` if it cannot have them.
    pub(crate) fn with_numbers(&self, [size, _, _, limit]: [u64; 4]) -> Option<Self> {
        let size = size.try_into().ok()?;
        #[cfg(feature = "calendar")]
        if let Self::CalendarWindow(_) = self {
            // The others are boundaries.
            return self.under(Limit::new(size, size));
        }
        self.under(Limit::new(limit.try_into().ok()?, size))
    }
}
