//! The rule of an algorithm in Lua, for stores that run it where the state is.

use super::ByHours;
use super::kind::{Kind, match_kind};
use super::{Algorithm, Limit};
use crate::calendar::Calendar;
use crate::clock::Micros;
use crate::quota::Quota;

/// A rule in Lua.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lua {
    /// The name of the rule, and of the table that the text declares.
    pub name: &'static str,
    /// The text, which is beside the same rule in Rust.
    pub text: &'static str,
    /// The arguments of its functions: the most at one instant, two numbers that differ between the
    /// rules, and the quota's limit.
    pub numbers: [u64; 4],
    /// The calendar whose windows are in the numbers: see [`numbers_at`](Self::numbers_at).
    pub(crate) calendar: Option<Calendar>,
    /// The hours on which the limit depends: see [`hours_at`](Self::hours_at).
    pub hours: Option<ByHours>,
}

impl Lua {
    /// Returns the rule of a window, whose functions take the limit and the period.
    pub(super) fn of_window(name: &'static str, text: &'static str, quota: Quota) -> Self {
        let limit = quota.limit().into();
        Self::of_numbers(name, text, [limit, quota.period_micros().get(), 0, limit])
    }

    pub(super) fn of_numbers(name: &'static str, text: &'static str, numbers: [u64; 4]) -> Self {
        Self {
            name,
            text,
            numbers,
            calendar: None,
            hours: None,
        }
    }

    /// Returns the numbers for a call at this moment, by the clock of this node.
    ///
    /// A server knows no zone. For a calendar, the numbers are three boundaries: those of the present window,
    /// and of the nearer one beside it. So the clock of the server may differ by half a window.
    pub fn numbers_at(&self, now: impl FnOnce() -> Micros) -> [u64; 4] {
        if self.calendar.is_some() || self.hours.is_some() {
            return self.numbers_by(now());
        }
        self.numbers
    }

    fn numbers_by(&self, now: Micros) -> [u64; 4] {
        if let Some(hours) = self.hours {
            let alone = hours.alone_at(now).and_then(|algorithm| algorithm.lua());
            let lua = alone.unwrap_or(Self {
                hours: None,
                ..*self
            });
            return lua.numbers_by(now);
        }
        let Some(calendar) = self.calendar else {
            return self.numbers;
        };
        let (present, beside) = (calendar.at(now), calendar.beside(now));
        let [from, until] = [
            present.from.min(beside.from),
            present.until.max(beside.until),
        ];
        let between = present.from.max(beside.from);
        let [limit, ..] = self.numbers;
        // Boundaries are whole seconds. The last number has room for the longest window too, in hours.
        let [from, between, until] = [from, between, until].map(|at| at.get() / 1_000_000);
        let hours = calendar.windows().unit.longest().ceil_secs() / 3_600;
        [limit, from, between, until * 16_384 + hours]
    }
}

impl Lua {
    /// Returns when which numbers hold, if the limit depends on the hour and changes around this moment;
    /// otherwise nothing. The [numbers](Self::numbers_at) then bound how long a state lasts.
    pub fn hours_at(&self, now: impl FnOnce() -> Micros) -> String {
        if let Some(hours) = self.hours {
            let now = now();
            if hours.alone_at(now).is_none() {
                return hours.lua_text_at(now);
            }
        }
        String::new()
    }
}

impl Algorithm {
    /// Returns the rule in Lua, or `None` if unlimited.
    // For `tower-ratelimit-redis`.
    #[doc(hidden)]
    pub fn lua(&self) -> Option<Lua> {
        match_kind!(self, kind => Some(kind.lua()), None)
    }

    /// Returns the algorithm with other [numbers](Lua::numbers), or `None` if it cannot have them.
    // For `tower-ratelimit-redis`.
    #[doc(hidden)]
    pub fn with_numbers(&self, [size, _, _, limit]: [u64; 4]) -> Option<Self> {
        let size = size.try_into().ok()?;
        if let Self::CalendarWindow(_) = self.without_hours() {
            // The other numbers are boundaries.
            return self.without_hours().under(Limit::new(size, size));
        }
        self.without_hours()
            .under(Limit::new(limit.try_into().ok()?, size))
    }
}
