//! Algorithms in a file.
//!
//! What a table says goes through the same constructors as code does, so that both are refused
//! for the same reasons.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    Algorithm, AnchoredWindow, FixedWindow, Gcra, LeakyBucket, LeakyQueue, SlidingLog,
    SlidingSlots, SlidingWindow, TokenBucket,
};
use crate::error::ConfigError;
use crate::quota::{Period, Quota, RawQuota};

/// Reads and writes a shape by way of a table.
macro_rules! by_table {
    ($shape:ident, $table:ty) => {
        impl<'de> Deserialize<'de> for $shape {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let table = <$table>::deserialize(deserializer)?;
                table.shape().map_err(Error::custom)
            }
        }

        impl Serialize for $shape {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                <$table>::of(self).serialize(serializer)
            }
        }
    };
}

/// A shape that is a quota and nothing more.
macro_rules! by_quota {
    ($($shape:ident)+) => {$(
        impl<'de> Deserialize<'de> for $shape {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Quota::deserialize(deserializer).map(Self::of)
            }
        }

        impl Serialize for $shape {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.quota().serialize(serializer)
            }
        }
    )+};
}
by_quota!(FixedWindow AnchoredWindow SlidingWindow);

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct LogTable {
    limit: u32,
    per: Period,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    up_to: Option<u32>,
}

impl LogTable {
    fn shape(self) -> Result<SlidingLog, ConfigError> {
        SlidingLog::up_to(
            self.up_to.unwrap_or(SlidingLog::MOST),
            self.per.quota(self.limit)?,
        )
    }

    fn of(log: &SlidingLog) -> Self {
        let RawQuota { limit, per } = log.quota().into();
        Self {
            limit,
            per,
            up_to: (limit > SlidingLog::MOST).then_some(limit),
        }
    }
}
by_table!(SlidingLog, LogTable);

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct SlotsTable {
    limit: u32,
    per: Period,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slots: Option<u32>,
}

impl SlotsTable {
    fn shape(self) -> Result<SlidingSlots, ConfigError> {
        let quota = self.per.quota(self.limit)?;
        match self.slots {
            Some(slots) => SlidingSlots::cut(quota, slots),
            None => SlidingSlots::of(quota),
        }
    }

    fn of(slots: &SlidingSlots) -> Self {
        let RawQuota { limit, per } = slots.quota().into();
        Self {
            limit,
            per,
            slots: Some(slots.count()),
        }
    }
}
by_table!(SlidingSlots, SlotsTable);

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct TokenTable {
    limit: u32,
    per: Period,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    burst: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refill: Option<Refill>,
}

#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Refill {
    Continuous,
    Interval,
}

impl TokenTable {
    fn shape(self) -> Result<TokenBucket, ConfigError> {
        let bucket = TokenBucket::of(self.per.quota(self.limit)?);
        let bucket = bucket.burst(self.burst.unwrap_or(self.limit));
        Ok(match self.refill {
            None | Some(Refill::Continuous) => bucket,
            Some(Refill::Interval) => bucket.by_interval(),
        })
    }

    fn of(bucket: &TokenBucket) -> Self {
        let RawQuota { limit, per } = bucket.quota().into();
        Self {
            limit,
            per,
            burst: Some(bucket.size()),
            refill: bucket.is_by_interval().then_some(Refill::Interval),
        }
    }
}
by_table!(TokenBucket, TokenTable);

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct LeakyTable {
    limit: u32,
    per: Period,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    capacity: Option<u32>,
}

impl LeakyTable {
    fn shape(self) -> Result<LeakyBucket, ConfigError> {
        let bucket = LeakyBucket::of(self.per.quota(self.limit)?);
        Ok(bucket.capacity(self.capacity.unwrap_or(self.limit)))
    }

    fn of(bucket: &LeakyBucket) -> Self {
        let RawQuota { limit, per } = bucket.quota().into();
        Self {
            limit,
            per,
            capacity: Some(bucket.size()),
        }
    }
}
by_table!(LeakyBucket, LeakyTable);

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct BurstTable {
    limit: u32,
    per: Period,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    burst: Option<u32>,
}

impl BurstTable {
    fn shape(self) -> Result<Gcra, ConfigError> {
        let gcra = Gcra::of(self.per.quota(self.limit)?);
        Ok(gcra.burst(self.burst.unwrap_or(self.limit)))
    }

    fn of(gcra: &Gcra) -> Self {
        let RawQuota { limit, per } = gcra.quota().into();
        Self {
            limit,
            per,
            burst: Some(gcra.size()),
        }
    }
}
by_table!(Gcra, BurstTable);

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct QueueTable {
    limit: u32,
    per: Period,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    places: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    longest_wait: Option<Period>,
}

impl QueueTable {
    fn shape(self) -> Result<LeakyQueue, ConfigError> {
        let outflow = LeakyQueue::of(self.per.quota(self.limit)?);
        match (self.places, self.longest_wait) {
            (Some(places), None) => Ok(outflow.places(places)),
            (None, Some(wait)) => outflow.longest_wait(wait.length()),
            (None, None) => {
                let remedy = "say how many may wait as `places`, or how long as `longest-wait`";
                Err(ConfigError::new("places", "left out", remedy))
            }
            (Some(places), Some(_)) => {
                let remedy = "leave it out, or leave `longest-wait` out";
                Err(ConfigError::new("places", places, remedy))
            }
        }
    }

    fn of(queue: &LeakyQueue) -> Self {
        let RawQuota { limit, per } = queue.quota().into();
        Self {
            limit,
            per,
            places: Some(queue.waiting()),
            longest_wait: None,
        }
    }
}
by_table!(LeakyQueue, QueueTable);

/// An algorithm as a table under its name.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Named {
    FixedWindow(FixedWindow),
    AnchoredWindow(AnchoredWindow),
    SlidingLog(SlidingLog),
    SlidingWindow(SlidingWindow),
    SlidingSlots(SlidingSlots),
    TokenBucket(TokenBucket),
    /// By its name already: it has no `refill` of its own.
    TokenBucketInterval(Gcra),
    LeakyBucket(LeakyBucket),
    Gcra(Gcra),
    LeakyQueue(LeakyQueue),
}

impl From<Named> for Algorithm {
    fn from(named: Named) -> Self {
        match named {
            Named::FixedWindow(window) => window.into(),
            Named::AnchoredWindow(window) => window.into(),
            Named::SlidingLog(log) => log.into(),
            Named::SlidingWindow(window) => window.into(),
            Named::SlidingSlots(slots) => slots.into(),
            Named::TokenBucket(bucket) => bucket.into(),
            Named::TokenBucketInterval(bucket) => TokenBucket::of(bucket.quota())
                .burst(bucket.size())
                .by_interval()
                .into(),
            Named::LeakyBucket(bucket) => bucket.into(),
            Named::Gcra(gcra) => gcra.into(),
            Named::LeakyQueue(queue) => queue.into(),
        }
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

impl Serialize for Algorithm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let named = match *self {
            Self::FixedWindow(window) => Named::FixedWindow(window),
            Self::AnchoredWindow(window) => Named::AnchoredWindow(window),
            Self::SlidingLog(log) => Named::SlidingLog(log),
            Self::SlidingWindow(window) => Named::SlidingWindow(window),
            Self::SlidingSlots(slots) => Named::SlidingSlots(slots),
            Self::TokenBucket(bucket) => Named::TokenBucket(bucket),
            Self::LeakyBucket(bucket) => Named::LeakyBucket(bucket),
            Self::Gcra(gcra) => Named::Gcra(gcra),
            Self::LeakyQueue(queue) => Named::LeakyQueue(queue),
            Self::Unlimited => return serializer.serialize_str(self.name()),
        };
        named.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
