//! The counts of the store in a snapshot: calls, latency, leases.

use std::time::{Duration, SystemTime};

#[cfg(feature = "serde")]
use super::seconds;

/// The counts of a store, for all limiters and layers over it.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct StoreStats {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) is_up: bool,
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds::unix_if_any"))]
    pub(crate) away_since: Option<SystemTime>,
    pub(crate) failing_parts: u64,
    pub(crate) calls: u64,
    pub(crate) failures: u64,
    pub(crate) batched: u64,
    pub(crate) remembered_denials: u64,
    pub(crate) failed_renewals: u64,
    pub(crate) latency: Option<Latency>,
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub(crate) leases: Option<LeaseStats>,
}

impl StoreStats {
    /// Creates the counts of a store that is up, at zero. `kind` names its kind, such as `redis`.
    pub fn new(kind: &'static str) -> Self {
        Self {
            kind,
            name: String::new(),
            is_up: true,
            away_since: None,
            failing_parts: 0,
            calls: 0,
            failures: 0,
            batched: 0,
            remembered_denials: 0,
            failed_renewals: 0,
            latency: None,
            leases: None,
        }
    }

    /// Returns its kind: `memory`, `redis`, `shared`, or the name that a store of your own gives.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Returns its name in the log, such as its address; empty if it has no name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether it answers: no breaker is open.
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// Returns since when it is away, or `None` if it is not.
    pub fn away_since(&self) -> Option<SystemTime> {
        self.away_since
    }

    /// Returns how many of its parts are known to be away: primaries of a cluster, or the whole of any other
    /// store.
    pub fn failing_parts(&self) -> u64 {
        self.failing_parts
    }

    /// Returns the number of calls to it. Simultaneous requests may share a call.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Returns how many calls failed.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// Returns how many requests shared a call that another one began.
    pub fn batched(&self) -> u64 {
        self.batched
    }

    /// Returns how many requests were denied without a call, because the same request was denied before and
    /// cannot pass yet.
    pub fn remembered_denials(&self) -> u64 {
        self.remembered_denials
    }

    /// Returns how many calls failed to renew slots that requests of this node hold.
    pub fn failed_renewals(&self) -> u64 {
        self.failed_renewals
    }

    /// Returns how long calls took in the last one to two minutes, or `None` if there were none.
    pub fn latency(&self) -> Option<Latency> {
        self.latency
    }
}

impl StoreStats {
    /// Returns what happened to leased units at this node, or `None` if the store does not lease.
    pub fn leases(&self) -> Option<LeaseStats> {
        self.leases
    }
}

impl Default for StoreStats {
    fn default() -> Self {
        Self::new("custom")
    }
}

/// How long calls to a store took, in the last one to two minutes; right to 12 %, and never too short.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Latency {
    #[cfg_attr(
        feature = "serde",
        serde(rename = "p50_seconds", serialize_with = "seconds::length")
    )]
    pub(crate) p50: Duration,
    #[cfg_attr(
        feature = "serde",
        serde(rename = "p99_seconds", serialize_with = "seconds::length")
    )]
    pub(crate) p99: Duration,
}

impl Latency {
    /// Returns the time in which half of the calls were answered.
    pub fn p50(&self) -> Duration {
        self.p50
    }

    /// Returns the time in which 99 of 100 calls were answered.
    pub fn p99(&self) -> Duration {
        self.p99
    }
}

/// The counts of units that a limiter or a layer has leased: see `RedisStoreBuilder::lease`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LeaseStats {
    pub(crate) held: u64,
    pub(crate) granted: u64,
    pub(crate) spent: u64,
    pub(crate) given_back: u64,
    pub(crate) lapsed: u64,
    pub(crate) calls_saved: u64,
}

impl LeaseStats {
    /// Returns how many units this node holds now.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Returns how many units the store has granted.
    pub fn granted(&self) -> u64 {
        self.granted
    }

    /// Returns how many of them requests have spent.
    pub fn spent(&self) -> u64 {
        self.spent
    }

    /// Returns how many of them were given back unspent.
    pub fn given_back(&self) -> u64 {
        self.given_back
    }

    /// Returns how many of them ended unspent at this node.
    pub fn lapsed(&self) -> u64 {
        self.lapsed
    }

    /// Returns how many requests were decided without a call, by units or answers that this node held.
    pub fn calls_saved(&self) -> u64 {
        self.calls_saved
    }
}
