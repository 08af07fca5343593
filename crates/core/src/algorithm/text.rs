//! Algorithms as text: a name, and the [shape](super::shape) of the kind.

use std::fmt::{self, Display};
use std::str::FromStr;

use super::CalendarWindow;
use super::kind::{Kind, each_kind_of_a_quota, match_kind};
use super::{Algorithm, TokenBucket};
use crate::error::ConfigError;

macro_rules! texts {
    ([$($kind:ident)+]) => {
        /// Parses the text after a name. Returns `None` if no algorithm has this name.
        fn named(name: &str, rest: &str) -> Option<Result<Algorithm, ConfigError>> {
            $(if name == super::$kind::NAME {
                return Some(rest.parse::<super::$kind>().map(Algorithm::from));
            })+
            if CalendarWindow::NAMES.contains(&name) {
                return Some(CalendarWindow::parse_named(name, rest).map(Algorithm::from));
            }
            (name == TokenBucket::BY_INTERVAL)
                .then(|| Ok(rest.parse::<TokenBucket>()?.by_interval().into()))
        }

        /// The names, and the word before the number of each; empty if it has none.
        const NAMES: &[(&str, &str)] = &[
            $((super::$kind::NAME, super::$kind::NUMBER),)+
            (TokenBucket::BY_INTERVAL, TokenBucket::NUMBER),
        ];

        $(
            impl FromStr for super::$kind {
                type Err = ConfigError;

                fn from_str(text: &str) -> Result<Self, ConfigError> {
                    Kind::parse(text)
                }
            }

            impl Display for super::$kind {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    Kind::fmt(self, f)
                }
            }
        )+
    };
}
each_kind_of_a_quota!(texts);

fn names() -> Vec<&'static str> {
    let mut names: Vec<_> = NAMES.iter().map(|(name, _)| *name).collect();
    names.extend(CalendarWindow::NAMES);
    names.push(UNLIMITED);
    names
}

impl FromStr for CalendarWindow {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        Kind::parse(text)
    }
}

impl Display for CalendarWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Kind::fmt(self, f)
    }
}

const UNLIMITED: &str = "unlimited";

impl FromStr for Algorithm {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let text = text.trim();
        if text == UNLIMITED {
            return Ok(Self::Unlimited);
        }
        let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        named(name, rest).unwrap_or_else(|| {
            let names = names().join(", ");
            let remedy = format!("use one of {names}, such as fixed-window 100/minute");
            Err(ConfigError::quoting("algorithm", text, remedy))
        })
    }
}

impl Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match_kind!(self, kind => {
            f.write_str(" ")?;
            Kind::show(kind, f)
        }, Ok(()))
    }
}

impl Algorithm {
    /// Returns the names of the algorithms that limit a rate, and the word before the number of each, if it
    /// has one.
    // For `tower-ratelimit-config`.
    #[doc(hidden)]
    pub fn names() -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
        let of_quotas = NAMES.iter().map(|(name, number)| {
            let number = (!number.is_empty()).then_some(*number);
            (*name, number)
        });
        let of_calendars = CalendarWindow::NAMES.iter().map(|name| (*name, None));
        of_quotas
            .chain(of_calendars)
            .filter(|(name, _)| *name != super::Concurrency::NAME)
    }

    /// Returns its name in text: `fixed-window`, `token-bucket-interval`.
    pub fn name(&self) -> &'static str {
        match_kind!(self, kind => kind.name(), UNLIMITED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::SlidingLog;
    use crate::quota::Quota;

    #[test]
    fn displayed_text_parses_to_the_same_value() {
        for text in [
            "fixed-window 100/minute",
            "anchored-window 100/minute",
            "sliding-log 65536/minute",
            "sliding-log 65537/minute up-to 65537",
            "sliding-window 100/90s",
            "sliding-slots 100/minute",
            "sliding-slots 100/minute slots 60",
            "token-bucket-interval 100/minute burst 5",
            "token-bucket-interval 100/minute",
            "token-bucket 5/second burst 10",
            "token-bucket 5/second",
            "leaky-bucket 5/second capacity 10",
            "gcra 7/250ms burst 0",
            "leaky-queue 5/second places 0",
            "leaky-queue 5/second places 10",
            "unlimited",
        ] {
            let algorithm: Algorithm = text.parse().unwrap();
            assert_eq!(algorithm.to_string(), text);
        }
    }

    #[test]
    fn a_shape_that_is_shown_parses_to_the_same() {
        let interval = TokenBucket::per_second(5).burst(7).by_interval();
        assert_eq!(interval.to_string(), "5/second burst 7 by interval");
        assert_eq!(interval.to_string().parse(), Ok(interval));
        assert_eq!(
            "5/second by interval".parse(),
            Ok(TokenBucket::per_second(5).by_interval())
        );
        let log = SlidingLog::up_to(u32::MAX, Quota::per_day(1_000_000)).unwrap();
        assert_eq!(log.to_string().parse(), Ok(log));
    }

    #[test]
    fn text_that_is_no_algorithm_is_refused_by_the_name_of_its_field() {
        for (text, field) in [
            ("", "algorithm"),
            ("fixed", "algorithm"),
            ("unlimited 5/second", "algorithm"),
            ("fixed-window", "quota"),
            ("fixed-window 5/second burst 10", "period"),
            ("token-bucket 5/second burst", "burst"),
            ("token-bucket 5/second burst +1", "burst"),
            ("token-bucket 5/secondburst10", "period"),
            ("token-bucket 5/second burst10", "period"),
            ("token-bucket 5/second burst -1", "burst"),
            ("token-bucket x/second burst 1", "limit"),
            ("token-bucket 5/second capacity 10", "period"),
            ("sliding-log 65537/second", "limit"),
            ("sliding-slots 5/second slots 7", "slots"),
            ("sliding-slots 5/second slots", "slots"),
            ("leaky-bucket 5/second capacity 4294967296", "capacity"),
            ("leaky-queue 5/second", "places"),
            ("leaky-queue 5/second places -1", "places"),
        ] {
            let error = text.parse::<Algorithm>().unwrap_err();
            assert_eq!(error.field(), field, "{text}");
        }
    }
}
