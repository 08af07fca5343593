//! Calendar windows as text: a limit, and words with values.

use std::fmt;

use super::CalendarWindow;
use crate::calendar::{TimeOfDay, Unit, Weekday, Windows, Zone};
use crate::error::ConfigError;
use crate::quota::{not_a_number, whole_number};

pub(super) const DAY: &str = "calendar-day";
pub(super) const WEEK: &str = "calendar-week";
pub(super) const MONTH: &str = "calendar-month";
pub(super) const YEAR: &str = "calendar-year";

pub(super) fn name(unit: Unit) -> &'static str {
    match unit {
        Unit::Day => DAY,
        Unit::Week(_) => WEEK,
        Unit::Month => MONTH,
        Unit::Year => YEAR,
    }
}

/// The fields of a text or a table about a calendar.
#[derive(Debug, Default)]
pub(super) struct CalendarFields<'a> {
    pub(super) zone: Option<&'a str>,
    pub(super) start: Option<&'a str>,
    pub(super) first_day: Option<&'a str>,
}

impl CalendarFields<'_> {
    /// Returns the windows of the kind with this name.
    pub(super) fn window(&self, name: &str, limit: u32) -> Result<CalendarWindow, ConfigError> {
        let first_day = self.first_day.map(str::parse::<Weekday>).transpose()?;
        let unit = match (name, first_day) {
            (WEEK, first_day) => Unit::Week(first_day.unwrap_or_default()),
            (_, Some(day)) => {
                let remedy = "leave it out: a week alone has a first day";
                return Err(ConfigError::new("first-day", day, remedy));
            }
            (MONTH, None) => Unit::Month,
            (YEAR, None) => Unit::Year,
            _ => Unit::Day,
        };
        let zone = self.zone.ok_or_else(|| missing_zone(limit))?;
        let start = self.start.map(str::parse::<TimeOfDay>).transpose()?;
        let windows = Windows {
            unit,
            zone: Zone::named(zone)?,
            start: start.unwrap_or_default(),
        };
        Ok(CalendarWindow::in_windows(limit, windows))
    }
}

pub(super) fn missing_zone(said: impl fmt::Display) -> ConfigError {
    let remedy = "name the time zone of the calendar, such as zone UTC or zone Europe/London";
    ConfigError::new("calendar", said, remedy)
}

impl CalendarWindow {
    pub(in crate::algorithm) const NAMES: [&str; 4] = [DAY, WEEK, MONTH, YEAR];

    /// Parses the text after a name.
    pub(in crate::algorithm) fn parse_named(name: &str, rest: &str) -> Result<Self, ConfigError> {
        let refuse = |remedy| Err(ConfigError::quoting("calendar", rest, remedy));
        let mut words = rest.split_whitespace();
        let limit = words.next().unwrap_or_default();
        let limit = whole_number(limit)
            .filter(|_| !limit.is_empty())
            .ok_or_else(|| not_a_number("limit", limit))?;
        let mut said = CalendarFields::default();
        while let Some(word) = words.next() {
            let its = match word {
                "zone" => &mut said.zone,
                "start" => &mut said.start,
                "first-day" => &mut said.first_day,
                _ => {
                    return refuse(
                        "write zone, start or first-day, and its value, behind the limit",
                    );
                }
            };
            match (words.next(), its.is_some()) {
                (Some(value), false) => *its = Some(value),
                (Some(_), true) => return refuse("say each of zone, start and first-day once"),
                (None, _) => return refuse("write a value behind the last word"),
            }
        }
        said.window(name, limit)
    }
}

/// Parses a name and the text after it.
pub(super) fn parse(text: &str) -> Result<CalendarWindow, ConfigError> {
    let text = text.trim();
    let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    if !CalendarWindow::NAMES.contains(&name) {
        let remedy = "begin with calendar-day, calendar-week, calendar-month or calendar-year";
        return Err(ConfigError::quoting("calendar", text, remedy));
    }
    CalendarWindow::parse_named(name, rest)
}

/// Writes the text after the name.
pub(super) fn show(window: CalendarWindow, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Windows { unit, zone, start } = window.windows();
    write!(f, "{} zone {zone}", window.limit)?;
    if start != TimeOfDay::MIDNIGHT {
        write!(f, " start {start}")?;
    }
    match unit {
        Unit::Week(first_day) if first_day != Weekday::default() => {
            write!(f, " first-day {first_day}")
        }
        _ => Ok(()),
    }
}

#[cfg(all(test, feature = "calendar"))]
mod tests {
    use crate::algorithm::{Algorithm, CalendarWindow};

    #[test]
    fn displayed_text_parses_to_the_same_value() {
        for text in [
            "calendar-day 10000 zone America/Sao_Paulo",
            "calendar-day 0 zone UTC start 06:00",
            "calendar-week 7 zone Europe/London",
            "calendar-week 7 zone Europe/London start 23:59 first-day sunday",
            "calendar-month 4294967295 zone Asia/Tehran",
            "calendar-year 1 zone Pacific/Apia",
        ] {
            let algorithm: Algorithm = text.parse().unwrap();
            assert_eq!(algorithm.to_string(), text);
            let window: CalendarWindow = text.parse().unwrap();
            assert_eq!(window.to_string(), text);
            assert_eq!(algorithm, window.into());
        }
    }

    #[test]
    fn words_stand_in_any_order_and_the_usual_ones_may_be_left_out() {
        for (text, shown) in [
            (
                "calendar-week  5 first-day monday start 00:00 zone utc",
                "calendar-week 5 zone UTC",
            ),
            (
                "calendar-day 5 start 06:00 zone europe/london",
                "calendar-day 5 zone Europe/London start 06:00",
            ),
        ] {
            let algorithm: Algorithm = text.parse().unwrap();
            assert_eq!(algorithm.to_string(), shown);
        }
    }

    #[test]
    fn text_that_is_no_calendar_window_is_refused_by_the_name_of_its_field() {
        for (text, field, says) in [
            ("calendar-day", "limit", "whole number"),
            ("calendar-day -1 zone UTC", "limit", "whole number"),
            ("calendar-day 5", "calendar", "zone UTC"),
            ("calendar-day 5/day", "limit", "whole number"),
            ("calendar-day 5 zone Mars/Olympus", "zone", "IANA"),
            ("calendar-day 5 zone", "calendar", "value"),
            ("calendar-day 5 zone UTC zone UTC", "calendar", "once"),
            ("calendar-day 5 zone UTC start 24:00", "time", "06:00"),
            ("calendar-day 5 zone UTC burst 5", "calendar", "first-day"),
            (
                "calendar-day 5 zone UTC first-day monday",
                "first-day",
                "leave",
            ),
            (
                "calendar-week 5 zone UTC first-day mon",
                "first-day",
                "monday",
            ),
            (
                "calendar-fortnight 5 zone UTC",
                "algorithm",
                "calendar-month",
            ),
        ] {
            let error = text.parse::<Algorithm>().unwrap_err();
            assert_eq!(error.field(), field, "{text}");
            assert!(error.remedy().contains(says), "{text}: {error}");
        }
    }
}
