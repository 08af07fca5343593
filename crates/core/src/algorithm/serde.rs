//! Algorithms in a file.
//!
//! A table goes through the same constructors as code does, so that both are refused for the same
//! reasons.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::kind::each_kind_of_a_quota;
use super::{Algorithm, Gcra, TokenBucket};
use super::{CalendarWindow, calendar_window::serde as calendar_window};
use crate::calendar::Unit;

/// Reads and writes a kind of algorithm as a table: `limit`, `per` and optional fields of its own.
///
/// `table!(FixedWindow)` has no field, and `table!(Gcra { burst })` has one for the number of the kind. A
/// kind with more fields gives their types, and two functions that read and write them.
macro_rules! table {
    ($kind:ident) => {
        impl<'de> ::serde::Deserialize<'de> for $kind {
            fn deserialize<D: ::serde::Deserializer<'de>>(
                deserializer: D,
            ) -> Result<Self, D::Error> {
                $crate::quota::Quota::deserialize(deserializer).map(Self::of)
            }
        }

        impl ::serde::Serialize for $kind {
            fn serialize<S: ::serde::Serializer>(
                &self,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                self.quota().serialize(serializer)
            }
        }
    };
    ($kind:ident { $number:ident }) => {
        $crate::algorithm::serde::table!(
            $kind { $number: u32 },
            $crate::algorithm::kind::Kind::of_number,
            |kind| ($crate::algorithm::kind::Kind::number(kind),)
        );
    };
    ($kind:ident { $($field:ident: $type:ty),+ }, $read:expr, $write:expr) => {
        const _: () = {
            use ::serde::{Deserialize, Deserializer, Serialize, Serializer};

            #[derive(Deserialize, Serialize)]
            #[serde(deny_unknown_fields, rename_all = "kebab-case")]
            struct Table {
                limit: u32,
                per: $crate::quota::Period,
                $(
                    #[serde(default, skip_serializing_if = "Option::is_none")]
                    $field: Option<$type>,
                )+
            }

            impl<'de> Deserialize<'de> for $kind {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    let Table { limit, per, $($field),+ } = Table::deserialize(deserializer)?;
                    per.quota(limit)
                        .and_then(|quota| $read(quota, $($field),+))
                        .map_err(::serde::de::Error::custom)
                }
            }

            impl Serialize for $kind {
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    let write: fn(&Self) -> ($(Option<$type>,)+) = $write;
                    let ($($field,)+) = write(self);
                    let $crate::quota::RawQuota { limit, per } = self.quota().into();
                    Table { limit, per, $($field),+ }.serialize(serializer)
                }
            }
        };
    };
}
pub(super) use table;

/// An algorithm as a table under its name.
macro_rules! named {
    ([$($kind:ident)+]) => {
        #[derive(Deserialize, Serialize)]
        #[serde(rename_all = "kebab-case")]
        enum Named {
            $($kind(super::$kind),)+
            /// The name says how it is refilled, and so it has no field `refill`.
            TokenBucketInterval(Gcra),
            #[serde(deserialize_with = "calendar_window::day", serialize_with = "calendar_window::write")]
            CalendarDay(CalendarWindow),
            #[serde(deserialize_with = "calendar_window::week", serialize_with = "calendar_window::write")]
            CalendarWeek(CalendarWindow),
            #[serde(deserialize_with = "calendar_window::month", serialize_with = "calendar_window::write")]
            CalendarMonth(CalendarWindow),
            #[serde(deserialize_with = "calendar_window::year", serialize_with = "calendar_window::write")]
            CalendarYear(CalendarWindow),
        }

        impl From<Named> for Algorithm {
            fn from(named: Named) -> Self {
                match named {
                    $(Named::$kind(kind) => kind.into(),)+
                    Named::TokenBucketInterval(bucket) => TokenBucket::of(bucket.quota())
                        .burst(bucket.burst_size())
                        .by_interval()
                        .into(),
                    Named::CalendarDay(window)
                    | Named::CalendarWeek(window)
                    | Named::CalendarMonth(window)
                    | Named::CalendarYear(window) => window.into(),
                }
            }
        }

        impl Serialize for Algorithm {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let named = match *self {
                    $(Self::$kind(kind) => Named::$kind(kind),)+
                    Self::CalendarWindow(window) => named_by_unit(window),
                    // Hours are not part of an algorithm in a file.
                    Self::ByHours(hours) => return hours.plain().serialize(serializer),
                    Self::Unlimited => return serializer.serialize_str(self.name()),
                };
                named.serialize(serializer)
            }
        }
    };
}
each_kind_of_a_quota!(named);

fn named_by_unit(window: CalendarWindow) -> Named {
    match window.unit() {
        Unit::Day => Named::CalendarDay(window),
        Unit::Week(_) => Named::CalendarWeek(window),
        Unit::Month => Named::CalendarMonth(window),
        Unit::Year => Named::CalendarYear(window),
    }
}

impl<'de> Deserialize<'de> for Algorithm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrTable)
    }
}

struct TextOrTable;

impl<'de> Visitor<'de> for TextOrTable {
    type Value = Algorithm;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "text such as \"token-bucket 5/second burst 10\", or a table under the algorithm's \
             name such as token-bucket = { limit = 5, per = \"1s\", burst = 10 }",
        )
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Algorithm, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Algorithm, A::Error> {
        Named::deserialize(MapAccessDeserializer::new(map)).map(Algorithm::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::SlidingLog;
    use crate::quota::Quota;

    #[derive(Debug, Deserialize, PartialEq, Serialize)]
    struct File {
        algorithm: Algorithm,
    }

    fn parse(text: &str) -> Result<Algorithm, toml::de::Error> {
        toml::from_str(text).map(|file: File| file.algorithm)
    }

    #[test]
    fn a_table_is_what_the_constructor_makes() {
        for (table, text) in [
            (
                r#"fixed-window = { limit = 100, per = "minute" }"#,
                "fixed-window 100/minute",
            ),
            (
                r#"anchored-window = { limit = 100, per = "1h" }"#,
                "anchored-window 100/hour",
            ),
            (
                r#"sliding-log = { limit = 100, per = "10s" }"#,
                "sliding-log 100/10s",
            ),
            (
                r#"sliding-window = { limit = 100, per = "250ms" }"#,
                "sliding-window 100/250ms",
            ),
            (
                r#"sliding-slots = { limit = 100, per = "day" }"#,
                "sliding-slots 100/day",
            ),
            (
                r#"sliding-slots = { limit = 100, per = "1min", slots = 60 }"#,
                "sliding-slots 100/minute slots 60",
            ),
            (
                r#"token-bucket = { limit = 5, per = "1s", burst = 10 }"#,
                "token-bucket 5/second burst 10",
            ),
            (
                r#"token-bucket = { limit = 5, per = "1s", refill = "interval" }"#,
                "token-bucket-interval 5/second",
            ),
            (
                r#"token-bucket-interval = { limit = 5, per = "1s" }"#,
                "token-bucket-interval 5/second",
            ),
            (
                r#"leaky-bucket = { limit = 5, per = "1s", capacity = 10 }"#,
                "leaky-bucket 5/second capacity 10",
            ),
            (r#"gcra = { limit = 5, per = "1s" }"#, "gcra 5/second"),
            (
                r#"leaky-queue = { limit = 5, per = "1s", places = 10 }"#,
                "leaky-queue 5/second places 10",
            ),
            (
                r#"leaky-queue = { limit = 5, per = "1s", longest-wait = "2s" }"#,
                "leaky-queue 5/second places 10",
            ),
        ] {
            let algorithm = parse(&format!("algorithm.{table}")).unwrap();
            assert_eq!(algorithm, text.parse().unwrap(), "{table}");
            let written = toml::to_string(&File { algorithm }).unwrap();
            assert_eq!(parse(&written).unwrap(), algorithm, "{written}");
        }
        let text = "token-bucket 5/second burst 10";
        let as_text = parse(&format!(r#"algorithm = "{text}""#)).unwrap();
        assert_eq!(as_text, text.parse().unwrap());
        assert_eq!(
            parse(r#"algorithm = "unlimited""#).unwrap(),
            Algorithm::Unlimited
        );
    }

    #[test]
    fn a_log_with_a_raised_bound_survives_being_written() {
        let quota = Quota::per_day(1_000_000);
        let algorithm = SlidingLog::up_to(u32::MAX, quota).unwrap().into();
        let written = toml::to_string(&File { algorithm }).unwrap();
        assert_eq!(parse(&written).unwrap(), algorithm, "{written}");
    }

    #[test]
    fn an_error_names_the_line_the_column_and_what_would_be_right() {
        for (text, at, says) in [
            (
                r#"algorithm.token-bucket = { limit = 5, per = "1s", brust = 10 }"#,
                "line 1, column 51",
                "unknown field `brust`",
            ),
            (
                r#"algorithm.fixed-window = { limit = 5, per = "1m" }"#,
                "line 1, column 45",
                "use one of the units us, ms, s, min, h, d",
            ),
            (
                r#"algorithm.fixed-window = { limit = 5, per = "400d" }"#,
                "line 1, column 45",
                "give a length from 1 ms to 366 days",
            ),
            (
                r#"algorithm.fixed-window = { limit = -5, per = "1d" }"#,
                "line 1, column 36",
                "expected u32",
            ),
            (
                r#"algorithm.sliding-log = { limit = 65537, per = "1d" }"#,
                "line 1",
                "give at most 65536",
            ),
            (
                r#"algorithm.fixed-widow = { limit = 5, per = "1d" }"#,
                "line 1",
                "unknown variant",
            ),
            (
                r#"algorithm = "fixed-window 5/fortnight""#,
                "line 1, column 13",
                "use one of the units",
            ),
            (
                r#"algorithm.token-bucket-interval = { limit = 5, per = "1s", refill = "continuous" }"#,
                "line 1, column 60",
                "unknown field `refill`",
            ),
            (
                r#"algorithm.leaky-queue = { limit = 5, per = "1s" }"#,
                "line 1",
                "say how many may wait as `places`",
            ),
            (
                r#"algorithm.leaky-queue = { limit = 5, per = "1s", places = 1, longest-wait = "2s" }"#,
                "line 1",
                "leave `longest-wait` out",
            ),
            (
                r"algorithm = 5",
                "line 1, column 13",
                "or a table under the algorithm's name",
            ),
            (
                r"algorithm.fixed-window = { limit = 5 }",
                "line 1",
                "missing field `per`",
            ),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(at) && error.contains(says), "{error}");
        }
    }
}
