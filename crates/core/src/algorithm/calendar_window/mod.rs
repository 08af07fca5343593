//! The calendar window: a counter that starts again with each day, week, month or year of a time zone.

mod packed;
#[cfg(feature = "serde")]
pub(super) mod serde;
mod step;
mod text;
#[cfg(feature = "calendar")]
mod utc;

pub(super) use self::packed::Packed;

use super::WithRule;
use super::kind::{Kind, Replenishment};
use crate::calendar::{Calendar, TimeOfDay, Unit, Windows, Zone};
use crate::error::ConfigError;
use crate::quota::Quota;

/// A limit in each day, week, month or year of a time zone: "10,000 a month, by the customer's calendar".
///
/// The constructors are those of [`FixedWindow`](super::FixedWindow), with feature `calendar`: `per_calendar_day`,
/// `per_calendar_week`, `per_calendar_month` and `per_calendar_year`.
///
/// A request of cost `c` is allowed if `used + c ≤ limit`, where `used` is what was admitted in the present window. A
/// day has 23 or 25 hours where the clocks change, and a month has 28 to 31 days: see [`calendar`](crate::calendar).
///
/// - **Choose it** if a contract or a bill says "a day" or "a month".
/// - **Keeps** one counter and the second of the last charge for each key: 8 bytes, or 24 with the window's end once a
///   policy has met another limit, and if the limit is above 268 million. A decision is a few comparisons; the present
///   window is at hand, and is computed once in each window.
/// - **Admits** at most the limit in each window, and so up to twice the limit in a shorter span that crosses the edge
///   of a window.
/// - **Tells** a wait to the end of the window, and the length of the present window: 82,800 seconds on a day of 23
///   hours.
///
/// # Another zone
///
/// The calendar is not part of a state. It may change, because a customer moves, a plan has a zone of its
/// own, or the zone data is new. Then what was counted counts until both windows have ended, that of the old
/// calendar and that of the new one. So a client that alternates between zones gains nothing.
///
/// # As text
///
/// `calendar-day 10000 zone America/Sao_Paulo`, `calendar-week 10000 zone UTC`, `calendar-month …`, `calendar-year …`:
/// the limit, and then in any order `zone` with a name, which has to be there, `start` with the time at which a day
/// begins (default: `00:00`), and for a week `first-day` (default: `monday`).
///
/// With feature `serde`, it is that text or a table with these fields:
/// `calendar-day = { limit = 10000, zone = "America/Sao_Paulo", start = "06:00" }`.
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use tower_ratelimit::calendar::{TimeOfDay, Zone};
/// use tower_ratelimit::{Algorithm, FixedWindow};
///
/// # #[cfg(feature = "calendar")] {
/// let monthly = FixedWindow::per_calendar_month(10_000).zone(Zone::named("America/Sao_Paulo")?);
/// let parsed: Algorithm = "calendar-month 10000 zone America/Sao_Paulo".parse()?;
/// assert_eq!(parsed, monthly.into());
///
/// let from_six = monthly.starting_at(TimeOfDay::new(6, 0)?);
/// let parsed: Algorithm = "calendar-month 10000 zone America/Sao_Paulo start 06:00".parse()?;
/// assert_eq!(parsed, from_six.into());
/// # }
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CalendarWindow {
    limit: u32,
    calendar: Calendar,
}

impl CalendarWindow {
    /// This many requests in each day of this zone.
    pub(super) fn per_day_in(zone: Zone, limit: u32) -> Self {
        let windows = Windows {
            unit: Unit::Day,
            zone,
            start: TimeOfDay::MIDNIGHT,
        };
        Self::in_windows(limit, windows)
    }

    fn in_windows(limit: u32, windows: Windows) -> Self {
        Self {
            limit,
            calendar: Calendar::new(windows),
        }
    }

    /// Sets the time zone. The default is UTC.
    pub fn zone(self, zone: Zone) -> Self {
        Self::in_windows(
            self.limit,
            Windows {
                zone,
                ..self.windows()
            },
        )
    }

    /// Sets the time at which each day begins, and with it each week, month and year. The default is midnight.
    pub fn starting_at(self, start: TimeOfDay) -> Self {
        Self::in_windows(
            self.limit,
            Windows {
                start,
                ..self.windows()
            },
        )
    }

    /// Returns how many units each window has.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    pub(super) fn calendar(self) -> Calendar {
        self.calendar
    }

    pub(super) fn with_calendar(self, calendar: Calendar) -> Self {
        Self { calendar, ..self }
    }

    fn windows(self) -> Windows {
        *self.calendar.windows()
    }

    pub(super) fn unit(self) -> Unit {
        self.windows().unit
    }
}

impl Kind for CalendarWindow {
    const NAME: &'static str = "calendar-day";

    /// A quota has no zone.
    fn of_number(quota: Quota, _: Option<u32>) -> Result<Self, ConfigError> {
        Err(text::missing_zone(quota))
    }

    /// Returns the limit, and the usual length of a window: the largest, for a month and a year.
    fn quota(&self) -> Quota {
        Quota::of_micros(self.limit, self.unit().usual())
    }

    fn name(&self) -> &'static str {
        text::name(self.unit())
    }

    fn size(&self) -> u32 {
        self.limit
    }

    fn resized(&self, quota: Quota, _: u32) -> Result<Self, ConfigError> {
        Ok(Self {
            limit: quota.limit(),
            ..*self
        })
    }

    fn replenishment(&self) -> Replenishment {
        Replenishment::Calendar
    }

    fn with_rule<W: WithRule>(&self, act: W) -> W::Result {
        act.in_two_forms(*self, || Packed::of(*self))
    }

    fn lua(&self) -> super::Lua {
        super::Lua {
            calendar: Some(self.calendar),
            ..super::Lua::of_numbers(
                "calendar_window",
                include_str!("step.lua"),
                [self.limit.into(), 0, 0, 0],
            )
        }
    }

    fn parse(text: &str) -> Result<Self, ConfigError> {
        text::parse(text)
    }

    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ", self.name())?;
        self.show(f)
    }

    fn show(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        text::show(*self, f)
    }
}
