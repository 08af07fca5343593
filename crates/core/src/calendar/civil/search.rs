//! The search for the window of a moment, through civil time.

use jiff::civil::{Date, DateTime};
use jiff::{Timestamp, ToSpan, civil};

use crate::calendar::{Span, TimeOfDay, Unit, Weekday, Windows};
use crate::clock::Micros;

impl TimeOfDay {
    fn on(self, date: Date) -> DateTime {
        // Both numbers are in range, so that neither is cut.
        let [hour, minute] = [self.hour(), self.minute()].map(u8::cast_signed);
        date.at(hour, minute, 0, 0)
    }
}

impl Weekday {
    fn civil(self) -> civil::Weekday {
        match self {
            Self::Monday => civil::Weekday::Monday,
            Self::Tuesday => civil::Weekday::Tuesday,
            Self::Wednesday => civil::Weekday::Wednesday,
            Self::Thursday => civil::Weekday::Thursday,
            Self::Friday => civil::Weekday::Friday,
            Self::Saturday => civil::Weekday::Saturday,
            Self::Sunday => civil::Weekday::Sunday,
        }
    }
}

impl Unit {
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
