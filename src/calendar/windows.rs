use jiff::civil::Date;
use jiff::{Timestamp, ToSpan};

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

    /// Returns the first date of the day, week, month or year of this date.
    fn first(self, date: Date) -> Option<Date> {
        match self {
            Self::Day => Some(date),
            Self::Week(first) => {
                let days = date.weekday().since(first.civil());
                date.checked_sub(i64::from(days).days()).ok()
            }
            Self::Month => Some(date.first_of_month()),
            Self::Year => Some(date.first_of_year()),
        }
    }

    /// Returns the first date of the unit that comes `count` units after `first`.
    fn later(self, first: Date, count: i64) -> Option<Date> {
        let span = match self {
            Self::Day => count.days(),
            Self::Week(_) => count.weeks(),
            Self::Month => count.months(),
            Self::Year => count.years(),
        };
        first.checked_add(span).ok()
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

/// A half-open interval of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: Micros,
    pub(crate) until: Micros,
}

impl Span {
    pub(crate) fn contains(self, now: Micros) -> bool {
        (self.from..self.until).contains(&now)
    }

    pub(crate) fn length(self) -> Micros {
        self.until.saturating_sub(self.from)
    }
}

/// The year 9000. All windows from then on have the usual length, because civil arithmetic ends with the year
/// 9999.
const END: Micros = Micros::from_secs(221_845_392_000);

impl Windows {
    /// Returns the window that contains this moment.
    pub(crate) fn at(&self, now: Micros) -> Span {
        if let Some(since) = now.get().checked_sub(END.get()) {
            let length = self.unit.usual();
            let from = Micros::new(now.get() - since % length.get());
            let until = from.saturating_add(length);
            return Span { from, until };
        }
        self.find(now).unwrap_or(Span {
            from: Micros::ZERO,
            until: END,
        })
    }

    fn find(&self, now: Micros) -> Option<Span> {
        let now = i64::try_from(now.get()).ok()?;
        let date = self
            .zone
            .civil(Timestamp::from_microsecond(now).ok()?)
            .date();
        let first = self.unit.first(date)?;
        let begins = |count| self.begins(self.unit.later(first, count)?);
        // The date alone does not decide: a day may begin at six, or for the first time before the clocks are
        // set back to the previous date.
        let mut count = 0;
        while begins(count)? > now {
            count -= 1;
        }
        while begins(count + 1)? <= now {
            count += 1;
        }
        Some(Span {
            from: micros(begins(count)?),
            until: micros(begins(count + 1)?).min(END),
        })
    }

    /// Returns when the window that begins on this date begins, in microseconds since the epoch.
    fn begins(&self, date: Date) -> Option<i64> {
        let moment = self.zone.first_moment(self.start.on(date))?;
        Some(moment.as_microsecond())
    }
}

/// Returns the moment, or the epoch for a moment before it.
fn micros(since_the_epoch: i64) -> Micros {
    Micros::new(u64::try_from(since_the_epoch).unwrap_or(0))
}

#[cfg(test)]
mod tests;
