use std::fmt;
use std::str::FromStr;

use crate::error::ConfigError;

/// A time on the clock of a zone, in hours and minutes: `06:00`.
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use tower_ratelimit::calendar::TimeOfDay;
///
/// let morning = TimeOfDay::new(6, 0)?;
/// assert_eq!("06:00".parse(), Ok(morning));
/// assert_eq!(TimeOfDay::MIDNIGHT.to_string(), "00:00");
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeOfDay {
    hour: u8,
    minute: u8,
}

const REMEDY: &str = "write hours from 00 to 23 and minutes from 00 to 59, such as 06:00";

impl TimeOfDay {
    /// `00:00`.
    pub const MIDNIGHT: Self = Self { hour: 0, minute: 0 };

    /// This hour, from 0 to 23, and this minute, from 0 to 59.
    ///
    /// # Errors
    ///
    /// If the hour or the minute is larger.
    pub fn new(hour: u8, minute: u8) -> Result<Self, ConfigError> {
        if hour > 23 || minute > 59 {
            let value = format_args!("{hour:02}:{minute:02}");
            return Err(ConfigError::new("time", value, REMEDY));
        }
        Ok(Self { hour, minute })
    }

    /// Returns the hour, from 0 to 23.
    pub fn hour(self) -> u8 {
        self.hour
    }

    /// Returns the minute, from 0 to 59.
    pub fn minute(self) -> u8 {
        self.minute
    }
}

/// Two digits each, so that `6:00` and `06:0` are no times.
impl FromStr for TimeOfDay {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let two_digits = |text: &str| {
            let are_two = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
            are_two.then(|| text.parse().ok()).flatten()
        };
        let parts = text.split_once(':');
        parts
            .and_then(|(hour, minute)| Self::new(two_digits(hour)?, two_digits(minute)?).ok())
            .ok_or_else(|| ConfigError::quoting("time", text, REMEDY))
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.hour, self.minute)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_two_digits_twice() {
        for text in ["00:00", "06:00", "23:59"] {
            assert_eq!(text.parse::<TimeOfDay>().unwrap().to_string(), text);
        }
        for text in [
            "", "6", "6:00", "06:0", "24:00", "06:60", "+6:00", "06:00:00", "06.00",
        ] {
            let error = text.parse::<TimeOfDay>().unwrap_err();
            assert_eq!(error.field(), "time", "{text}");
        }
        assert_eq!(TimeOfDay::new(24, 0).unwrap_err().value(), "24:00");
        assert!(TimeOfDay::new(0, 60).is_err());
    }
}
