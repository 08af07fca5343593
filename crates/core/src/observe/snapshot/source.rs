//! The file that the limits come from, in a snapshot.

use std::time::SystemTime;

#[cfg(feature = "serde")]
use super::seconds;
use super::table::stats;
use crate::observe::metric::{Metric, counter, gauge, presence};

/// A request on which the files differ, by what the file in shadow would do.
const fn differences(would: &'static str) -> Metric<u64> {
    counter(
        "ratelimit_shadow_differences_total",
        "Requests that the file in shadow would have refused or allowed otherwise than the file in force",
    )
    .label("would", would)
}

stats! {
    /// The configuration in force.
    struct ConfigStats {
        /// The number of the configuration, counted from 1 at start-up.
        version: u64
            => gauge("ratelimit_config_version", "The number of the configuration in force"),
        /// The SHA-256 of its file, as 64 hexadecimal digits.
        sha256: String,
        /// When it was put into force.
        #[cfg_attr(feature = "serde", serde(serialize_with = "seconds::unix"))]
        since: SystemTime,
        /// Why the newest file is not in force, or `None` if it is.
        error: Option<String>
            => presence("ratelimit_config_error", "Whether the newest file of limits was refused: 1 or 0"),
    }

    /// The differences between a file in shadow and the file in force.
    struct ShadowStats {
        /// How many requests both files have decided.
        compared: u64
            => counter(
                "ratelimit_shadow_compared_total",
                "Requests on which the file in shadow has decided beside the file in force",
            ),
        /// How many of them were allowed, and would be refused.
        would_refuse: u64 => differences("refuse"),
        /// How many of them were refused, and would be allowed.
        would_allow: u64 => differences("allow"),
        /// The last differences as text, ten at most, the newest first: `GET /search: refused in shadow by minute`.
        last: Vec<String>,
        /// Why the newest file in shadow does not decide, or `None` if it does.
        error: Option<String>
            => presence("ratelimit_shadow_error", "Whether the newest file in shadow was refused: 1 or 0"),
    }
}

impl ConfigStats {
    // For `RateLimitLayer::show`.
    #[doc(hidden)]
    pub fn new(version: u64, sha256: String, since: SystemTime, error: Option<String>) -> Self {
        Self {
            version,
            sha256,
            since,
            error,
        }
    }
}

impl ShadowStats {
    // For the layer, which compares.
    #[doc(hidden)]
    pub fn new(compared: u64, [would_refuse, would_allow]: [u64; 2], last: Vec<String>) -> Self {
        Self {
            compared,
            would_refuse,
            would_allow,
            last,
            error: None,
        }
    }
}
