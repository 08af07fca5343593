//! All counters at one moment.

mod factor;
mod heavy_hitters;
pub(crate) mod policy;
pub(crate) mod request;
#[cfg(feature = "serde")]
mod seconds;
mod source;
mod store;
mod table;

use std::time::SystemTime;

pub use self::factor::{FactorStats, SignalStats};
pub use self::heavy_hitters::{HeavyHitter, HeavyHitters};
pub use self::policy::{KeyStats, PolicyStats, QueueStats};
pub use self::request::RequestStats;
pub use self::source::{ConfigStats, ShadowStats};
pub use self::store::{Latency, LeaseStats, StoreStats};

pub(crate) use self::policy::Count;
pub(crate) use self::request::Request;

/// The counts of a limiter or a layer, at one moment. See [what is counted](super#what-is-counted).
///
/// All counts begin with the limiter and only rise.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Snapshot {
    /// When it was read, by the clock of this node.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds::unix"))]
    pub at: SystemTime,
    /// When counting began, by the clock of this node.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds::unix"))]
    pub since: SystemTime,
    /// The counts of requests, each counted once, however many policies it has.
    pub requests: RequestStats,
    /// The counts of each policy, in the order of declaration.
    pub policies: Vec<PolicyStats>,
    /// The counts of the store, for all limiters and layers over it.
    pub store: StoreStats,
    /// The configuration in force, or `None` unless the limits come from a [watched][watch]
    /// file.
    ///
    /// [watch]: https://docs.rs/tower-ratelimit-config/latest/tower_ratelimit_config/struct.Config.html#method.watch
    pub configuration: Option<ConfigStats>,
    /// The differences of a file in shadow, or `None` unless the limits come from a file that names one.
    pub shadow: Option<ShadowStats>,
}

impl Snapshot {
    /// Returns the counts of the policy of this name.
    pub fn policy(&self, name: &str) -> Option<&PolicyStats> {
        self.policies.iter().find(|policy| policy.name == name)
    }
}
