//! All counters at one moment.

mod factor;
mod heaviest;
mod policy;
#[cfg(feature = "serde")]
mod seconds;
mod shadow;
mod store;

use std::time::SystemTime;

pub use self::factor::{FactorStats, SignalStats};
pub use self::heaviest::{HeavyKey, HeavyKeys};
pub use self::policy::{KeyStats, PolicyStats, QueueStats};
pub use self::shadow::ShadowStats;
pub use self::store::{Latency, LeaseStats, StoreStats};

pub(crate) use self::policy::Described;

use super::rows::{Request, Sums};

/// The counts of a limiter or a layer, at one moment. See [what is counted](super#what-is-counted).
///
/// All counts begin with the limiter and only rise.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Snapshot {
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds::unix"))]
    pub(crate) at: SystemTime,
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds::unix"))]
    pub(crate) since: SystemTime,
    pub(crate) requests: RequestStats,
    pub(crate) policies: Vec<PolicyStats>,
    pub(crate) store: StoreStats,
    pub(crate) configuration: Option<ConfigStats>,
    pub(crate) shadow: Option<ShadowStats>,
}

impl Snapshot {
    pub(crate) fn new(
        since: SystemTime,
        requests: &Sums,
        policies: Vec<PolicyStats>,
        store: StoreStats,
    ) -> Self {
        Self {
            at: SystemTime::now(),
            since,
            requests: RequestStats::of(requests),
            policies,
            store,
            configuration: None,
            shadow: None,
        }
    }

    /// Adds the configuration, and the file that decides in shadow beside it.
    #[cfg(feature = "config")]
    pub(crate) fn configured(
        self,
        configuration: Option<ConfigStats>,
        shadow: Option<ShadowStats>,
    ) -> Self {
        Self {
            configuration,
            shadow,
            ..self
        }
    }

    /// Returns when it was read, by the clock of this node.
    pub fn at(&self) -> SystemTime {
        self.at
    }

    /// Returns when counting began, by the clock of this node.
    pub fn since(&self) -> SystemTime {
        self.since
    }

    /// Returns the counts of requests, each counted once, however many policies it has.
    pub fn requests(&self) -> &RequestStats {
        &self.requests
    }

    /// Returns the counts of each policy, in the order of declaration.
    pub fn policies(&self) -> &[PolicyStats] {
        &self.policies
    }

    /// Returns the counts of the policy of this name.
    pub fn policy(&self, name: &str) -> Option<&PolicyStats> {
        self.policies.iter().find(|policy| policy.name() == name)
    }

    /// Returns the counts of the store, for all limiters and layers over it.
    pub fn store(&self) -> &StoreStats {
        &self.store
    }

    /// Returns the configuration in force, or `None` unless the limits come from a
    /// [watched](crate::config::Config::watch) file.
    pub fn configuration(&self) -> Option<&ConfigStats> {
        self.configuration.as_ref()
    }

    /// Returns the differences of a file in shadow, or `None` unless the limits come from a file that names
    /// one.
    pub fn shadow(&self) -> Option<&ShadowStats> {
        self.shadow.as_ref()
    }
}

/// The counts of requests, each counted once.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RequestStats {
    allowed: u64,
    refused: u64,
    failed: u64,
    degraded: u64,
    exempt: u64,
    forbidden: u64,
    without_key: u64,
}

impl RequestStats {
    fn of(sums: &Sums) -> Self {
        Self {
            allowed: sums.request(Request::Allowed),
            refused: sums.request(Request::Refused),
            failed: sums.request(Request::Failed),
            degraded: sums.request(Request::Degraded),
            exempt: sums.request(Request::Exempt),
            forbidden: sums.request(Request::Forbidden),
            without_key: sums.request(Request::WithoutKey),
        }
    }

    /// Returns how many requests went on after all policies decided.
    pub fn allowed(&self) -> u64 {
        self.allowed
    }

    /// Returns how many requests a policy refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns how many requests were refused because the store could not decide.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Returns how many of the allowed and refused requests were decided without the store.
    pub fn degraded(&self) -> u64 {
        self.degraded
    }

    /// Returns how many requests went on without a decision: no policy applies to them, or the layer exempts them by
    /// path or allow list.
    pub fn exempt(&self) -> u64 {
        self.exempt
    }

    /// Returns how many requests the deny list refused.
    pub fn forbidden(&self) -> u64 {
        self.forbidden
    }

    /// Returns how many requests were refused because they have no key.
    pub fn without_key(&self) -> u64 {
        self.without_key
    }
}

/// The configuration in force.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ConfigStats {
    pub(crate) version: u64,
    pub(crate) sha256: String,
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds::unix"))]
    pub(crate) since: SystemTime,
    pub(crate) error: Option<String>,
}

impl ConfigStats {
    /// Returns the number of the configuration, counted from 1 at start-up.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the SHA-256 of its file, as 64 hexadecimal digits.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Returns when it was put into force.
    pub fn since(&self) -> SystemTime {
        self.since
    }

    /// Returns why the newest file is not in force, or `None` if it is.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}
