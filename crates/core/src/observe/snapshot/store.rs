//! The counts of the store in a snapshot: calls, latency, leases.

use std::time::{Duration, SystemTime};

#[cfg(feature = "serde")]
use super::seconds;
use super::table::stats;
use crate::observe::metric::{Metric, counter, gauge};

/// How long the calls took that this share of them did not exceed.
const fn latency(quantile: &'static str) -> Metric<Duration> {
    gauge(
        "ratelimit_store_seconds",
        "How long calls to the store took in the last one to two minutes",
    )
    .label("quantile", quantile)
}

stats! {
    /// The counts of a store, for all limiters and layers over it.
    struct StoreStats {
        /// Its kind: `memory`, `redis`, `shared`, or the name that a store of your own gives.
        kind: &'static str,
        /// Its name in the log, such as its address; empty if it has no name.
        name: String,
        /// Whether it answers: no breaker is open.
        is_up: bool
            => gauge("ratelimit_store_up", "Whether the store answers: 1 or 0"),
        /// Since when it is away, or `None` if it is not.
        #[cfg_attr(feature = "serde", serde(serialize_with = "seconds::unix_if_any"))]
        away_since: Option<SystemTime>,
        /// How many of its parts are known to be away: primaries of a cluster, or the whole of any other store.
        failing_parts: u64,
        /// How many nodes share it, as it was told or has counted, or `None` if nothing tells.
        #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
        nodes: Option<u32>
            => gauge("ratelimit_store_nodes", "How many nodes share the store, as far as this one knows"),
        /// The number of calls to it. Simultaneous requests may share a call.
        calls: u64
            => counter("ratelimit_store_calls_total", "Calls to the store"),
        /// How many calls failed.
        failures: u64
            => counter("ratelimit_store_failures_total", "Calls to the store that failed"),
        /// How many requests shared a call that another one began.
        batched: u64
            => counter("ratelimit_store_batched_total", "Requests that shared a call which another one began"),
        /// How many requests were denied without a call, because the same request was denied before and cannot pass yet.
        remembered_denials: u64
            => counter(
                "ratelimit_store_remembered_total",
                "Requests that were denied without a call, because the same was denied before",
            ),
        /// How many calls failed to renew slots that requests of this node hold.
        failed_renewals: u64
            => counter(
                "ratelimit_store_failed_renewals_total",
                "Calls to the store that failed to renew slots of requests in flight",
            ),
        /// How long calls took in the last one to two minutes, or `None` if there were none.
        latency: Option<Latency>,
        /// What happened to leased units at this node, or `None` if the store does not lease.
        #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
        leases: Option<LeaseStats>,
    }

    /// How long calls to a store took, in the last one to two minutes; right to 12 %, and never too short.
    #[derive(Copy)]
    struct Latency {
        /// The time in which half of the calls were answered.
        #[cfg_attr(feature = "serde", serde(rename = "p50_seconds", serialize_with = "seconds::length"))]
        p50: Duration => latency("0.5"),
        /// The time in which 99 of 100 calls were answered.
        #[cfg_attr(feature = "serde", serde(rename = "p99_seconds", serialize_with = "seconds::length"))]
        p99: Duration => latency("0.99"),
    }

    /// The counts of units that a limiter or a layer has leased: see `RedisStoreBuilder::lease`.
    #[derive(Copy, Default, PartialEq, Eq)]
    struct LeaseStats {
        /// How many units this node holds now.
        held: u64
            => gauge("ratelimit_lease_held", "Leased units that this node may spend yet"),
        /// How many units the store has granted.
        granted: u64
            => counter("ratelimit_lease_granted_total", "Units that the store has leased to this node"),
        /// How many of them requests have spent.
        spent: u64
            => counter("ratelimit_lease_spent_total", "Leased units that requests have spent"),
        /// How many of them were given back unspent.
        given_back: u64
            => counter("ratelimit_lease_given_back_total", "Leased units that were given back unspent"),
        /// How many of them ended unspent at this node.
        lapsed: u64
            => counter("ratelimit_lease_lapsed_total", "Leased units that ended unspent"),
        /// How many requests were decided without a call, by units or answers that this node held.
        calls_saved: u64
            => counter(
                "ratelimit_lease_saved_total",
                "Requests that were decided by what this node has leased, without a call",
            ),
    }
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
            nodes: None,
            calls: 0,
            failures: 0,
            batched: 0,
            remembered_denials: 0,
            failed_renewals: 0,
            latency: None,
            leases: None,
        }
    }
}

impl Default for StoreStats {
    fn default() -> Self {
        Self::new("custom")
    }
}
