//! Quotas in a file.

use std::fmt;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Quota, parse_period, show_period};
use crate::clock::Micros;
use crate::error::ConfigError;

/// A period in a file: text such as `10s`, `minute`, `30d`.
///
/// It is checked here, before the quota to which it belongs, so that an error names the line and the column
/// of this value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Period(Duration);

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_period(text.trim())
            .and_then(|period| Quota::new(0, period))
            .map(|quota| Self(quota.period()))
            .map_err(Error::custom)
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&show_period(Micros::from(self.0)))
    }
}

/// `{ limit = 100, per = "minute" }`
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawQuota {
    pub(crate) limit: u32,
    pub(crate) per: Period,
}

impl From<Quota> for RawQuota {
    fn from(quota: Quota) -> Self {
        Self {
            limit: quota.limit(),
            per: quota.into(),
        }
    }
}

impl From<Quota> for Period {
    fn from(quota: Quota) -> Self {
        Self(quota.period())
    }
}

impl Period {
    pub(crate) fn length(self) -> Duration {
        self.0
    }

    pub(crate) fn quota(self, limit: u32) -> Result<Quota, ConfigError> {
        Quota::new(limit, self.0)
    }
}

impl<'de> Deserialize<'de> for Quota {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            return deserializer.deserialize_any(TextOrTable);
        }
        // A binary format does not tell text from a table. It holds what `Serialize` writes.
        RawQuota::deserialize(deserializer)?.quota()
    }
}

impl RawQuota {
    fn quota<E: Error>(self) -> Result<Quota, E> {
        self.per.quota(self.limit).map_err(E::custom)
    }
}

struct TextOrTable;

impl<'de> Visitor<'de> for TextOrTable {
    type Value = Quota;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "text such as \"100/minute\", or a table such as { limit = 100, per = \"minute\" }",
        )
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Quota, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Quota, A::Error> {
        RawQuota::deserialize(MapAccessDeserializer::new(map))?.quota()
    }
}

impl Serialize for Quota {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RawQuota::from(*self).serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use serde::de::IntoDeserializer;
    use serde::de::value::{BorrowedStrDeserializer, Error as ValueError, StringDeserializer};

    use super::*;

    #[derive(Debug, Deserialize, PartialEq, Serialize)]
    struct File {
        quota: Quota,
    }

    fn parse(text: &str) -> Result<Quota, toml::de::Error> {
        toml::from_str(text).map(|file: File| file.quota)
    }

    /// A quota is shown and parsed as text everywhere else, and a file with `quota = "100/minute"` was
    /// answered with "invalid type: string, expected struct".
    #[test]
    fn a_quota_in_a_file_is_text_or_a_table() {
        for (file, quota) in [
            (r#"quota = "100/minute""#, Quota::per_minute(100)),
            (r#"quota = " 5 / 1s ""#, Quota::per_second(5)),
            (
                r#"quota = { limit = 100, per = "minute" }"#,
                Quota::per_minute(100),
            ),
            ("[quota]\nlimit = 7\nper = \"1h\"", Quota::per_hour(7)),
        ] {
            assert_eq!(parse(file).unwrap(), quota, "{file}");
            let written = toml::to_string(&File { quota }).unwrap();
            assert_eq!(parse(&written).unwrap(), quota, "{written}");
        }
    }

    #[test]
    fn text_is_read_whether_it_is_borrowed_or_owned() {
        let text = "100/minute";
        let borrowed = BorrowedStrDeserializer::<ValueError>::new(text);
        assert_eq!(Quota::deserialize(borrowed), Ok(Quota::per_minute(100)));
        let owned: StringDeserializer<ValueError> = text.to_owned().into_deserializer();
        assert_eq!(Quota::deserialize(owned), Ok(Quota::per_minute(100)));
    }

    #[test]
    fn an_error_names_the_line_the_column_and_what_would_be_right() {
        for (file, at, says) in [
            (
                r#"quota = "100""#,
                "line 1, column 9",
                "write a limit and a period, such as 100/minute",
            ),
            (
                r#"quota = "100/fortnight""#,
                "line 1, column 9",
                "use one of the units",
            ),
            (
                r#"quota = "2/minutes""#,
                "line 1, column 9",
                "say how many, such as 10 minutes, or minute for one",
            ),
            (
                r#"quota = { limit = 5, per = "hours" }"#,
                "line 1, column 28",
                "say how many",
            ),
            (
                r#"quota = { limit = 5, per = "400d" }"#,
                "line 1, column 28",
                "give a length from 1 ms to 366 days",
            ),
            (
                "quota = 5",
                "line 1, column 9",
                r#"expected text such as "100/minute", or a table"#,
            ),
        ] {
            let error = parse(file).unwrap_err().to_string();
            assert!(error.contains(at) && error.contains(says), "{error}");
        }
    }
}
