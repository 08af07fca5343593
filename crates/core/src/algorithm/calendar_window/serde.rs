//! Calendar windows in a file.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::CalendarWindow;
use super::text::{CalendarFields, DAY, MONTH, WEEK, YEAR};
use crate::algorithm::Algorithm;
use crate::calendar::{TimeOfDay, Unit, Weekday, Windows};

/// The table under the name of a calendar window.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Table {
    limit: u32,
    zone: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_day: Option<String>,
}

macro_rules! read {
    ($($function:ident: $name:expr;)+) => {$(
        pub(in crate::algorithm) fn $function<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<CalendarWindow, D::Error> {
            let table = Table::deserialize(deserializer)?;
            table.window($name).map_err(D::Error::custom)
        }
    )+};
}
read! {
    day: DAY;
    week: WEEK;
    month: MONTH;
    year: YEAR;
}

pub(in crate::algorithm) fn write<S: Serializer>(
    window: &CalendarWindow,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    Table::of(*window).serialize(serializer)
}

impl Table {
    fn of(window: CalendarWindow) -> Self {
        let Windows { unit, zone, start } = window.windows();
        Self {
            limit: window.limit,
            zone: zone.to_string(),
            start: (start != TimeOfDay::MIDNIGHT).then(|| start.to_string()),
            first_day: match unit {
                Unit::Week(day) if day != Weekday::default() => Some(day.to_string()),
                _ => None,
            },
        }
    }

    fn window(&self, name: &str) -> Result<CalendarWindow, crate::error::ConfigError> {
        let said = CalendarFields {
            zone: Some(&self.zone),
            start: self.start.as_deref(),
            first_day: self.first_day.as_deref(),
        };
        said.window(name, self.limit)
    }
}

/// Parsed as an algorithm, whose name has the unit.
impl<'de> Deserialize<'de> for CalendarWindow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Algorithm::deserialize(deserializer)? {
            Algorithm::CalendarWindow(window) => Ok(window),
            other => {
                let expected =
                    "expected calendar-day, calendar-week, calendar-month or calendar-year";
                Err(D::Error::custom(format_args!("{expected}, found {other}")))
            }
        }
    }
}

impl Serialize for CalendarWindow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Algorithm::from(*self).serialize(serializer)
    }
}

#[cfg(all(test, feature = "calendar"))]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, PartialEq, Serialize)]
    struct File<A> {
        algorithm: A,
    }

    #[test]
    fn a_table_is_what_the_text_says() {
        for (table, text) in [
            (
                r#"calendar-day = { limit = 5, zone = "America/Sao_Paulo" }"#,
                "calendar-day 5 zone America/Sao_Paulo",
            ),
            (
                r#"calendar-week = { limit = 5, zone = "UTC", start = "06:00", first-day = "sunday" }"#,
                "calendar-week 5 zone UTC start 06:00 first-day sunday",
            ),
            (
                r#"calendar-month = { limit = 5, zone = "UTC" }"#,
                "calendar-month 5 zone UTC",
            ),
            (
                r#"calendar-year = { limit = 5, zone = "utc", start = "00:00" }"#,
                "calendar-year 5 zone UTC",
            ),
        ] {
            for table in [
                format!("algorithm.{table}"),
                format!("algorithm = {text:?}"),
            ] {
                let read: File<Algorithm> = toml::from_str(&table).unwrap();
                assert_eq!(read.algorithm.to_string(), text, "{table}");
                let written = toml::to_string(&read).unwrap();
                assert_eq!(toml::from_str(&written), Ok(read), "{written}");
                let window: File<CalendarWindow> = toml::from_str(&table).unwrap();
                let written = toml::to_string(&window).unwrap();
                assert_eq!(toml::from_str(&written), Ok(window), "{written}");
            }
        }
    }

    #[test]
    fn an_error_names_the_line_and_what_would_be_right() {
        for (text, says) in [
            (
                "algorithm.calendar-day = { limit = 5 }",
                "missing field `zone`",
            ),
            (
                r#"algorithm.calendar-day = { limit = 5, zone = "Mars" }"#,
                "IANA database",
            ),
            (
                r#"algorithm.calendar-day = { limit = 5, per = "day", zone = "UTC" }"#,
                "unknown field `per`",
            ),
            (
                r#"algorithm.calendar-month = { limit = 5, zone = "UTC", first-day = "monday" }"#,
                "a week alone has a first day",
            ),
        ] {
            let error = toml::from_str::<File<Algorithm>>(text)
                .unwrap_err()
                .to_string();
            assert!(error.contains("line 1") && error.contains(says), "{error}");
        }
        let other = toml::from_str::<File<CalendarWindow>>(r#"algorithm = "gcra 5/second""#);
        let error = other.unwrap_err().to_string();
        assert!(error.contains("expected calendar-day"), "{error}");
    }
}
