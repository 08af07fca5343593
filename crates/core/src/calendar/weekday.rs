use std::fmt;
use std::str::FromStr;

use crate::error::ConfigError;

/// A day of the week. As text it is the English name, in lower case: `monday`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Weekday {
    #[default]
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

const ALL: [(Weekday, &str); 7] = [
    (Weekday::Monday, "monday"),
    (Weekday::Tuesday, "tuesday"),
    (Weekday::Wednesday, "wednesday"),
    (Weekday::Thursday, "thursday"),
    (Weekday::Friday, "friday"),
    (Weekday::Saturday, "saturday"),
    (Weekday::Sunday, "sunday"),
];

impl FromStr for Weekday {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let found = ALL.iter().find(|(_, name)| *name == text);
        found.map(|(day, _)| *day).ok_or_else(|| {
            let remedy = "write the name of a day in lower case, such as monday";
            ConfigError::quoting("first-day", text, remedy)
        })
    }
}

impl fmt::Display for Weekday {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ALL[*self as usize].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_day_is_written_and_read_by_its_name() {
        for (day, name) in ALL {
            assert_eq!(day.to_string(), name);
            assert_eq!(name.parse(), Ok(day));
        }
        for text in ["", "Monday", "mon", "1"] {
            let error = text.parse::<Weekday>().unwrap_err();
            assert_eq!(error.field(), "first-day", "{text}");
        }
    }
}
