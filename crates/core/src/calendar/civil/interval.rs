//! Intervals of civil time: how their text is parsed, and whether two of them overlap.
//!
//! An interval knows no zone: a timetable places it on the time line.

use std::fmt;

use jiff::ToSpan;
use jiff::civil::{Date, DateTime};

use crate::calendar::{TimeOfDay, Weekday};
use crate::error::ConfigError;

/// A stretch of civil time, recurring or not: `22:00-06:00`, `saturday,sunday`, `monday-friday 08:00-18:00`,
/// `2026-12-24 06:00-24:00`.
///
/// It belongs to the day on which it begins, and does not include its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    text: String,
    days: Days,
    /// In minutes since midnight.
    from: u16,
    /// In minutes, up to a day.
    length: u16,
}

/// The days on which an interval begins.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Days {
    Every,
    /// A bit for each day of the week, the lowest for Monday.
    Weekdays(u8),
    Dates(Vec<Date>),
}

const DAY: u16 = 24 * 60;
const REMEDY: &str = "write days, times or both: 22:00-06:00, saturday,sunday, monday-friday 08:00-18:00, or \
                      2026-12-24 06:00-24:00";

impl Interval {
    /// # Errors
    ///
    /// If the text is not an interval.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let read = || {
            let (days, times) = match *words {
                [times] if times.contains(':') => (None, Some(times)),
                [days] => (Some(days), None),
                [days, times] => (Some(days), Some(times)),
                _ => return None,
            };
            let days = days.map_or(Some(Days::Every), days_of)?;
            let (from, length) = times.map_or(Some((0, DAY)), times_of)?;
            Some(Self {
                text: words.join(" "),
                days,
                from,
                length,
            })
        };
        read().ok_or_else(|| ConfigError::quoting("interval", text, REMEDY))
    }

    /// Returns the text as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether any moment is in both, on the clock of a zone without changes.
    pub fn overlaps(&self, other: &Self) -> bool {
        match (&self.days, &other.days) {
            (Days::Dates(dates), _) => self.overlaps_on(dates, other),
            (_, Days::Dates(dates)) => other.overlaps_on(dates, self),
            _ => self.overlaps_on(&a_week(), other),
        }
    }

    /// Returns whether this interval, beginning on one of these dates, has a moment in common with the other.
    fn overlaps_on(&self, dates: &[Date], other: &Self) -> bool {
        let minutes = |interval: &Self, day: i64| {
            let from = day * i64::from(DAY) + i64::from(interval.from);
            from..from + i64::from(interval.length)
        };
        let mine = minutes(self, 0);
        let begun = dates.iter().filter(|date| self.begins_on(**date));
        begun.into_iter().any(|date| {
            // An interval is a day long at most.
            (-1..=1).any(|day| {
                let its = minutes(other, day);
                let begins = date.checked_add(day.days());
                begins.is_ok_and(|date| other.begins_on(date))
                    && mine.start < its.end
                    && its.start < mine.end
            })
        })
    }

    pub(super) fn begins_on(&self, date: Date) -> bool {
        match &self.days {
            Days::Every => true,
            Days::Weekdays(days) => days >> date.weekday().to_monday_zero_offset() & 1 == 1,
            Days::Dates(dates) => dates.binary_search(&date).is_ok(),
        }
    }

    /// Returns whether it begins on no date after this one.
    pub(crate) fn is_over_after(&self, date: Date) -> bool {
        match &self.days {
            Days::Dates(dates) => dates.iter().all(|its| *its <= date),
            _ => false,
        }
    }

    /// Returns its beginning and end on the clock, if it begins on this date.
    pub(super) fn on(&self, date: Date) -> Option<[DateTime; 2]> {
        let at = |minutes: u16| {
            let date = match minutes / DAY {
                0 => date,
                days => date.checked_add(i64::from(days).days()).ok()?,
            };
            let [hour, minute] = [minutes % DAY / 60, minutes % 60];
            let [hour, minute] = [i8::try_from(hour).ok()?, i8::try_from(minute).ok()?];
            Some(date.at(hour, minute, 0, 0))
        };
        Some([at(self.from)?, at(self.from + self.length)?])
    }
}

/// Returns a week of dates, beginning on a Monday.
fn a_week() -> [Date; 7] {
    let monday = Date::constant(2024, 1, 1);
    std::array::from_fn(|day| {
        let days = i64::try_from(day).unwrap_or(0);
        monday.saturating_add(days.days())
    })
}

/// Parses names of days, ranges of them, or dates. Returns `None` if the text is neither.
fn days_of(text: &str) -> Option<Days> {
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        let dates: Option<Vec<Date>> = text.split(',').map(date_of).collect();
        let mut dates = dates?;
        dates.sort_unstable();
        return Some(Days::Dates(dates));
    }
    let mut days = 0;
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let [first, last] = [first, last].map(|day| day.parse::<Weekday>().ok());
        let (mut day, last) = (first? as u8, last? as u8);
        days |= 1 << day;
        while day != last {
            day = (day + 1) % 7;
            days |= 1 << day;
        }
    }
    Some(Days::Weekdays(days))
}

/// Parses ten characters: jiff accepts other forms too.
fn date_of(text: &str) -> Option<Date> {
    (text.len() == 10).then(|| text.parse().ok()).flatten()
}

/// Parses the beginning and the length, in minutes. An end that is not later is on the next day.
fn times_of(text: &str) -> Option<(u16, u16)> {
    let (from, until) = text.split_once('-')?;
    let from = minutes(from.parse().ok()?);
    let until = match until {
        "24:00" => DAY,
        until => minutes(until.parse().ok()?),
    };
    let length = match until.checked_sub(from) {
        Some(length) => length,
        None => until + DAY - from,
    };
    (length > 0).then_some((from, length))
}

fn minutes(time: TimeOfDay) -> u16 {
    u16::from(time.hour()) * 60 + u16::from(time.minute())
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(text: &str) -> Interval {
        Interval::parse(text).unwrap()
    }

    #[test]
    fn an_interval_is_days_or_times_or_both() {
        for (text, days, from, length) in [
            ("22:00-06:00", Days::Every, 22 * 60, 8 * 60),
            ("00:00-24:00", Days::Every, 0, DAY),
            ("06:00-24:00", Days::Every, 6 * 60, 18 * 60),
            ("saturday", Days::Weekdays(0b010_0000), 0, DAY),
            ("saturday,sunday", Days::Weekdays(0b110_0000), 0, DAY),
            ("friday-monday", Days::Weekdays(0b111_0001), 0, DAY),
            (
                "monday-wednesday,saturday  08:30-18:00",
                Days::Weekdays(0b010_0111),
                510,
                570,
            ),
            (
                "2026-12-24,2026-12-31 20:00-02:00",
                Days::Dates(vec![
                    Date::constant(2026, 12, 24),
                    Date::constant(2026, 12, 31),
                ]),
                20 * 60,
                6 * 60,
            ),
        ] {
            let read = interval(text);
            assert_eq!(
                (&read.days, read.from, read.length),
                (&days, from, length),
                "{text}"
            );
        }
    }

    #[test]
    fn text_that_is_no_interval_is_refused() {
        for text in [
            "",
            "22:00",
            "22-06",
            "22:00-22:00",
            "24:00-06:00",
            "22:00-24:01",
            "22:00-06:00 saturday",
            "Saturday",
            "saturday, sunday",
            "weekend",
            "2026-13-01",
            "2026-12-24,saturday",
            "2026-12-24T00:00",
            "saturday 22:00-06:00 berlin",
        ] {
            let error = Interval::parse(text).unwrap_err();
            assert_eq!(error.field(), "interval");
            assert_eq!(error.value(), format!("{text:?}"));
        }
    }

    #[test]
    fn intervals_overlap_if_a_moment_is_in_both() {
        for (one, other, overlap) in [
            ("22:00-06:00", "06:00-22:00", false),
            ("22:00-06:00", "05:59-07:00", true),
            ("22:00-06:00", "21:00-22:01", true),
            ("22:00-06:00", "saturday", true),
            ("22:00-06:00", "saturday 06:00-22:00", false),
            ("saturday,sunday", "monday-friday", false),
            ("sunday 22:00-06:00", "monday 05:00-07:00", true),
            ("sunday 22:00-06:00", "sunday 05:00-07:00", false),
            // 2026-12-24 is a Thursday.
            ("2026-12-24", "thursday 08:00-09:00", true),
            ("2026-12-24", "friday", false),
            ("2026-12-24", "wednesday 22:00-06:00", true),
            ("2026-12-24 06:00-24:00", "wednesday 22:00-06:00", false),
            ("2026-12-24", "2026-12-25", false),
            ("2026-12-24 22:00-06:00", "2026-12-25", true),
            ("22:00-06:00", "22:00-06:00", true),
        ] {
            let (a, b) = (interval(one), interval(other));
            assert_eq!(a.overlaps(&b), overlap, "{one} and {other}");
            assert_eq!(b.overlaps(&a), overlap, "{other} and {one}");
        }
    }
}
