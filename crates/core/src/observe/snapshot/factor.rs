//! The factor of a policy in a snapshot.

use std::time::SystemTime;

#[cfg(feature = "serde")]
use super::seconds;
use super::table::stats;
use crate::observe::metric::{gauge, presence};

stats! {
    /// The share of a policy's limit that is in force.
    struct FactorStats {
        /// The factor: 1 is the whole limit.
        factor: f64
            => gauge("ratelimit_adapt_factor", "The share of the limit that is in force: 1 is all of it"),
        /// The least possible factor.
        least: f64,
        /// The greatest possible factor.
        most: f64,
        /// The cause of the factor, such as `memory 83 %`, or `None` if there is no load.
        cause: Option<String>,
        /// When it was put into force.
        #[cfg_attr(feature = "serde", serde(serialize_with = "seconds::unix"))]
        since: SystemTime,
        /// The last readings of the signals; empty unless an `Adapt` of the crate `tower-ratelimit-adapt` writes the factor.
        signals: Vec<SignalStats>,
    }

    /// The last reading of a signal of the load.
    struct SignalStats {
        /// The name of the signal.
        name: String,
        /// The load: 1 is the target, and more is possible. `None` if the signal is absent.
        load: Option<f64>
            => gauge("ratelimit_adapt_load", "The last reading of a signal: 1 is full load")
            => presence("ratelimit_adapt_signal_up", "Whether a signal has a reading: 1 or 0"),
    }
}
