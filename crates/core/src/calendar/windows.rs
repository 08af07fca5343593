use super::{TimeOfDay, Weekday, Zone};
use crate::clock::Micros;

/// The length of a window on the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Unit {
    Day,
    /// A week that begins on this day.
    Week(Weekday),
    Month,
    Year,
}

impl Unit {
    const DAY: u64 = 86_400;

    /// Returns the length in seconds of a usual day or week, and of the longest month and year.
    pub(crate) const fn usual(self) -> Micros {
        Micros::from_secs(match self {
            Self::Day => Self::DAY,
            Self::Week(_) => 7 * Self::DAY,
            Self::Month => 31 * Self::DAY,
            Self::Year => 366 * Self::DAY,
        })
    }

    /// Returns the length of the longest window. No zone has been set back by more than seven hours in a year
    /// since 1970 (the station Vostok, in 1994), except for changes of the date, which leave days out.
    pub(crate) const fn longest(self) -> Micros {
        self.usual().saturating_add(Micros::from_secs(7 * 3_600))
    }
}

/// The windows of a calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Windows {
    pub(crate) unit: Unit,
    pub(crate) zone: Zone,
    /// When a day begins.
    pub(crate) start: TimeOfDay,
}
