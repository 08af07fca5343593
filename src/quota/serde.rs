//! Quotas in a file.

use std::time::Duration;

use serde::de::Error;
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
        let RawQuota { limit, per } = RawQuota::deserialize(deserializer)?;
        per.quota(limit).map_err(Error::custom)
    }
}

impl Serialize for Quota {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RawQuota::from(*self).serialize(serializer)
    }
}
