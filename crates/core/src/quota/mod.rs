//! A quota: a limit and a period.
//!
//! The bounds are those within which the arithmetic of every algorithm is exact. The text is what people write in
//! configuration files; it therefore refuses what can be read in two ways.

#[cfg(feature = "serde")]
mod serde;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::clock::Micros;
use crate::error::ConfigError;

#[cfg(feature = "serde")]
pub(crate) use self::serde::{Period, RawQuota};

/// A limit and the period to which it applies: 100 a minute, 5 a second.
///
/// The limit is from 0 (which denies every request) to `u32::MAX`; the period is from 1 ms to 366 days, in
/// whole microseconds.
///
/// As text a quota is `limit/period`, where the period is a unit or a number with a unit: `us` (`µs`), `ms`,
/// `s` (`sec`, `second`), `min` (`minute`), `h` (`hour`), `d` (`day`), and after a number the words also in
/// the plural, as in `10 minutes`. A bare `m` is rejected, since it could be a minute or a month, and so is a
/// bare `minutes`, which lacks its number.
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use std::time::Duration;
/// use tower_ratelimit::Quota;
///
/// let quota: Quota = "100/minute".parse()?;
/// assert_eq!(quota, Quota::per_minute(100));
/// assert_eq!("1000/30d".parse::<Quota>()?.period(), Duration::from_secs(30 * 86_400));
/// assert_eq!(quota.to_string(), "100/minute");
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
///
/// With feature `serde` a file may hold either form: `"100/minute"`, or the table
/// `{ limit = 100, per = "minute" }`, which is what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    limit: u32,
    period: Micros,
}

const SHORTEST: Micros = Micros::new(1_000);
pub(crate) const LONGEST: Micros = Micros::from_secs(366 * 86_400);
const PERIOD_REMEDY: &str = "give a length from 1 ms to 366 days";
const TEXT_REMEDY: &str = "write a limit and a period, such as 100/minute or 5/10s";

impl Quota {
    /// This many requests in a second.
    pub const fn per_second(limit: u32) -> Self {
        Self::every(limit, 1)
    }

    /// This many requests in a minute.
    pub const fn per_minute(limit: u32) -> Self {
        Self::every(limit, 60)
    }

    /// This many requests in an hour.
    pub const fn per_hour(limit: u32) -> Self {
        Self::every(limit, 3_600)
    }

    /// This many requests in a day of 24 hours.
    pub const fn per_day(limit: u32) -> Self {
        Self::every(limit, 86_400)
    }

    const fn every(limit: u32, secs: u64) -> Self {
        Self {
            limit,
            period: Micros::from_secs(secs),
        }
    }

    /// This many requests in this period.
    ///
    /// # Errors
    ///
    /// If the period is shorter than 1 ms, longer than 366 days, or not a whole number of
    /// microseconds.
    pub fn new(limit: u32, period: Duration) -> Result<Self, ConfigError> {
        let refuse = |remedy| {
            Err(ConfigError::new(
                "period",
                format_args!("{period:?}"),
                remedy,
            ))
        };
        let micros = Micros::from(period);
        if micros < SHORTEST || micros > LONGEST {
            return refuse(PERIOD_REMEDY);
        }
        if micros.to_duration() != period {
            return refuse("give a whole number of microseconds");
        }
        Ok(Self {
            limit,
            period: micros,
        })
    }

    /// For a period in range.
    pub(crate) const fn of_micros(limit: u32, period: Micros) -> Self {
        Self { limit, period }
    }

    /// Returns the limit: how many units each period has.
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns the period.
    pub const fn period(&self) -> Duration {
        self.period.to_duration()
    }

    pub(crate) const fn period_micros(&self) -> Micros {
        self.period
    }
}

impl FromStr for Quota {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let (limit, period) = text
            .split_once('/')
            .ok_or_else(|| ConfigError::quoting("quota", text, TEXT_REMEDY))?;
        let limit = limit.trim();
        let limit = whole_number(limit).ok_or_else(|| not_a_number("limit", limit))?;
        Self::new(limit, parse_period(period.trim())?)
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.limit, show_period(self.period))
    }
}

/// Returns the number, if the text has only digits and no sign.
pub(crate) fn whole_number(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

pub(crate) fn not_a_number(field: &'static str, text: &str) -> ConfigError {
    ConfigError::quoting(field, text, "give a whole number from 0 to 4294967295")
}

struct Unit {
    short: &'static str,
    long: Option<&'static str>,
    spellings: &'static [&'static str],
    plurals: &'static [&'static str],
    micros: u64,
}

const UNITS: [Unit; 6] = [
    unit("d", Some("day"), &["d", "day"], &["days"], 86_400_000_000),
    unit("h", Some("hour"), &["h", "hour"], &["hours"], 3_600_000_000),
    unit(
        "min",
        Some("minute"),
        &["min", "minute"],
        &["mins", "minutes"],
        60_000_000,
    ),
    unit(
        "s",
        Some("second"),
        &["s", "sec", "second"],
        &["secs", "seconds"],
        1_000_000,
    ),
    unit("ms", None, &["ms"], &[], 1_000),
    unit("us", None, &["us", "\u{b5}s", "\u{3bc}s"], &[], 1),
];

const fn unit(
    short: &'static str,
    long: Option<&'static str>,
    spellings: &'static [&'static str],
    plurals: &'static [&'static str],
    micros: u64,
) -> Unit {
    Unit {
        short,
        long,
        spellings,
        plurals,
        micros,
    }
}

/// Returns the period as a whole number of the largest unit that divides it.
pub(crate) fn show_period(period: Micros) -> String {
    let [.., smallest] = &UNITS;
    let holds_it = |unit: &&Unit| period.get().is_multiple_of(unit.micros);
    let unit = UNITS.iter().find(holds_it).unwrap_or(smallest);
    match (period.get() / unit.micros, unit.long) {
        (1, Some(long)) => long.to_owned(),
        (count, _) => format!("{count}{}", unit.short),
    }
}

fn parse_period(text: &str) -> Result<Duration, ConfigError> {
    let refuse = |remedy| ConfigError::quoting("period", text, remedy);
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (count, name) = text.split_at(digits);
    let name = name.trim_start();
    let unit = UNITS
        .iter()
        .find(|unit| unit.spellings.contains(&name) || unit.plurals.contains(&name))
        .ok_or_else(|| {
            refuse("use one of the units us, ms, s, min, h, d, such as 10s or minute, and nothing after it")
        })?;
    let count = match count {
        "" if unit.plurals.contains(&name) => {
            return Err(refuse(
                "say how many, such as 10 minutes, or minute for one",
            ));
        }
        "" => 1,
        count => count.parse().map_err(|_| refuse(PERIOD_REMEDY))?,
    };
    unit.micros
        .checked_mul(count)
        .map(Duration::from_micros)
        .ok_or_else(|| refuse(PERIOD_REMEDY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constructors_say_what_they_take() {
        let second = Duration::from_secs(1);
        assert_eq!(Quota::per_second(5), Quota::new(5, second).unwrap());
        assert_eq!(Quota::per_minute(5), Quota::new(5, 60 * second).unwrap());
        assert_eq!(Quota::per_hour(5), Quota::new(5, 3_600 * second).unwrap());
        assert_eq!(Quota::per_day(5), Quota::new(5, 86_400 * second).unwrap());
    }

    #[test]
    fn the_period_is_from_one_millisecond_to_366_days() {
        let day = Duration::from_secs(86_400);
        assert!(Quota::new(1, Duration::from_millis(1)).is_ok());
        assert!(Quota::new(1, 366 * day).is_ok());
        for period in [
            Duration::ZERO,
            Duration::from_micros(999),
            366 * day + Duration::from_micros(1),
            Duration::MAX,
        ] {
            let error = Quota::new(1, period).unwrap_err();
            assert_eq!(error.field(), "period");
            assert_eq!(error.value(), format!("{period:?}"));
            assert_eq!(error.remedy(), PERIOD_REMEDY);
        }
        let error = Quota::new(1, Duration::from_nanos(1_000_001)).unwrap_err();
        assert_eq!(error.remedy(), "give a whole number of microseconds");
    }

    #[test]
    fn text_is_a_limit_and_a_period() {
        let quota = |limit, millis| Quota::new(limit, Duration::from_millis(millis)).unwrap();
        for (text, expected) in [
            ("100/minute", quota(100, 60_000)),
            ("100/min", quota(100, 60_000)),
            (" 5 / 10 s ", quota(5, 10_000)),
            ("5/10s", quota(5, 10_000)),
            ("5/10secs", quota(5, 10_000)),
            ("5/2mins", quota(5, 120_000)),
            ("5/2 minutes", quota(5, 120_000)),
            ("5/1 days", quota(5, 86_400_000)),
            ("5/2 hour", quota(5, 7_200_000)),
            ("5/2000\u{b5}s", quota(5, 2)),
            ("5/2000\u{3bc}s", quota(5, 2)),
            ("0/day", quota(0, 86_400_000)),
            ("7/250ms", quota(7, 250)),
            (
                "7/2500us",
                Quota::new(7, Duration::from_micros(2_500)).unwrap(),
            ),
            ("4294967295/366d", quota(u32::MAX, 366 * 86_400_000)),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_quota_is_refused_by_the_name_of_its_field() {
        for (text, field) in [
            ("", "quota"),
            ("100", "quota"),
            ("/minute", "limit"),
            ("-1/minute", "limit"),
            ("+1/minute", "limit"),
            ("1.5/minute", "limit"),
            ("4294967296/minute", "limit"),
            ("100/", "period"),
            ("100/m", "period"),
            ("2/minutes", "period"),
            ("2/secs", "period"),
            ("100/month", "period"),
            ("100/10", "period"),
            ("100/0s", "period"),
            ("100/999us", "period"),
            ("100/367d", "period"),
            ("100/99999999999999999999s", "period"),
            ("100/18446744073709551615s", "period"),
            ("100/minute/second", "period"),
        ] {
            let error = text.parse::<Quota>().unwrap_err();
            assert_eq!(error.field(), field, "{text}");
            assert!(!error.remedy().is_empty(), "{text}");
        }
    }

    #[test]
    fn an_error_shows_long_text_in_part() {
        let error = "x".repeat(10_000).parse::<Quota>().unwrap_err();
        assert!(error.value().len() < 60, "{}", error.value());
    }

    #[test]
    fn displayed_text_parses_to_the_same_value() {
        for text in [
            "1/second", "2/90s", "3/minute", "4/36h", "5/30d", "6/1500us", "7/1ms",
        ] {
            let quota: Quota = text.parse().unwrap();
            assert_eq!(quota.to_string(), text);
        }
    }
}
