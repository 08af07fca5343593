//! The counts of one policy in a snapshot.

use std::time::Duration;

#[cfg(feature = "serde")]
use super::seconds;
use super::table::{FromCount, counters, stats};
use super::{FactorStats, HeavyHitters};
use crate::observe::metric::{Metric, counter, gauge, microseconds};

/// A request under a policy, by what became of it.
const fn decisions(outcome: &'static str) -> Metric<u64> {
    counter(
        "ratelimit_decisions_total",
        "Requests under a policy, by what became of them",
    )
    .label("outcome", outcome)
}

counters! {
    /// The counts of a policy. See [what is counted](crate::observe#what-is-counted).
    #[derive(Default)]
    struct PolicyStats, counted by Count {
        /// The name of the policy.
        name: String,
        /// The name of its algorithm, such as `fixed-window`.
        algorithm: &'static str,
        /// What happens to a request over the limit: `enforce`, `soft`, `shadow` or `off`.
        mode: &'static str,
        /// Its limit: the most at one instant, as declared. Plans, overrides and factors set another one for some requests.
        /// `None` if it is unlimited.
        limit: Option<u32>
            => gauge("ratelimit_limit", "The limit of a policy as it is declared"),
        /// Its period: the window, or the time in which an empty bucket fills. `None` if it has none.
        #[cfg_attr(feature = "serde", serde(rename = "period_seconds", serialize_with = "seconds::length_if_any"))]
        period: Option<Duration>,

        /// How many requests went on within its limit.
        allowed: u64 = Allowed => decisions("allowed"),
        /// How many requests it refused. Several policies may refuse a request.
        refused: u64 = Refused => decisions("refused"),
        /// How many requests it would have refused if it were enforced.
        shadow_refused: u64 = ShadowRefused => decisions("shadow_refused"),
        /// How many requests went on over its limit, because it is [soft](crate::Policy::soft).
        soft: u64 = Soft => decisions("soft"),
        /// How many requests were within its limit and refused because of another policy. They were charged nothing.
        uncharged: u64 = Uncharged => decisions("uncharged"),
        /// How many requests were refused because the store could not decide.
        failed: u64 = Failed => decisions("failed"),
        /// How many requests the policy does not apply to, by its condition, by its plan, or because they have no key.
        skipped: u64 = Skipped => decisions("skipped"),

        /// How many requests were decided without the store.
        degraded: u64 = Degraded
            => counter("ratelimit_degraded_total", "Requests under a policy that were decided without the store"),
        /// How many allowed requests left a fifth of the limit or less.
        near_limit: u64 = NearLimit
            => counter("ratelimit_near_limit_total", "Allowed requests that left a fifth of the limit or less"),
        /// How many requests were refused because their key is [blocked](crate::Limiter::block).
        blocked: u64 = Blocked
            => counter("ratelimit_blocked_total", "Requests that were refused because their key is blocked"),
        /// How many refusals began a block of their key: see [`Policy::penalty`](crate::Policy::penalty).
        penalized: u64 = Penalized
            => counter("ratelimit_penalized_total", "Refusals that were one too many, so that a block of their key began"),
        /// How many units requests cost.
        ///
        /// A request whose cost is [settled][settle], and a [reservation](crate::Limiter::reserve), are counted
        /// when they are settled, with what they cost in the end, so it does not fall. Their estimates are not in it while they
        /// are under way. Units that [`settle`](crate::Limiter::settle) charges are in it, and units that are given back by
        /// [`refund`](crate::Limiter::refund) stay in it: see [`refunded`](Self::refunded).
        ///
        /// [settle]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/policy/struct.Policy.html#method.settle
        cost: u64 = Cost
            => counter("ratelimit_cost_total", "Units that requests cost, counted at their settlement where it is settled"),
        /// How many requests waited for their turn, and have gone on or given up.
        waited: u64 = Waited
            => counter("ratelimit_waited_total", "Requests that waited for their turn, and have gone on or away"),
        /// How long these requests waited, all together.
        #[cfg_attr(feature = "serde", serde(rename = "waited_seconds", serialize_with = "seconds::length"))]
        time_waited: Duration = TimeWaited
            => microseconds("ratelimit_waited_microseconds_total", "How long these requests waited, all together"),
        /// How many charges were corrected after the fact: settled or given back.
        settled: u64 = Settled
            => counter("ratelimit_settled_total", "Charges that were corrected after the fact"),
        /// How many units [`refund`](crate::Limiter::refund) was asked to give back, of which it gives at most those that
        /// still count.
        refunded: u64 = Refunded
            => counter("ratelimit_refunded_total", "Units that were to be given back after the fact, and stay in the cost"),

        /// The keys that the store keeps for it, or `None` if the store does not count them.
        keys: Option<KeyStats>,
        /// The requests that wait for their turn now, or `None` if none can.
        queue: Option<QueueStats>,
        /// Its factor, or `None` if it has [none](crate::Policy::factor).
        factor: Option<FactorStats>,
        /// The keys that asked for most units, or `None` unless they are [tracked](crate::Policy::top_keys).
        heaviest: Option<HeavyHitters>,
    }
}

stats! {
    /// The keys of a policy in a store.
    #[derive(Copy, Default)]
    struct KeyStats {
        /// The number of keys, including those that are as good as new and not yet forgotten.
        kept: u64
            => gauge("ratelimit_keys", "Keys that the store in this process keeps"),
        /// The largest number of keys.
        most: u64
            => gauge("ratelimit_keys_max", "Keys that it may keep"),
        /// The memory of the keys, in bytes.
        bytes: u64
            => gauge("ratelimit_keys_bytes", "Memory that these keys take"),
        /// How many keys were forgotten at the bound although they had used some of their limit.
        #[cfg_attr(feature = "serde", serde(rename = "forgotten"))]
        evicted: u64
            => counter("ratelimit_evictions_total", "Keys that were forgotten at the bound, though they had used some of their limit"),
        /// How many requests were admitted of keys that had no room and were counted together.
        #[cfg_attr(feature = "serde", serde(rename = "together"))]
        overflowed: u64
            => counter("ratelimit_overflows_total", "Requests whose keys had no room and were counted together"),
        /// The tenants of a limit that is [divided](crate::Policy::fair), including those that have not asked lately and are not yet
        /// forgotten; `None` if it is not divided.
        tenants: Option<u64>
            => gauge("ratelimit_tenants", "Tenants of a divided limit that the store in this process keeps"),
    }

    /// The requests that wait under a policy.
    #[derive(Copy)]
    struct QueueStats {
        /// How many requests wait now.
        length: u64
            => gauge("ratelimit_queue_length", "Requests that wait for their turn now"),
        /// The longest wait of the requests whose wait ended in the last one to two minutes.
        #[cfg_attr(feature = "serde", serde(rename = "longest_wait_seconds", serialize_with = "seconds::length"))]
        longest_wait: Duration
            => gauge("ratelimit_wait_seconds", "The longest wait that ended in the last one to two minutes"),
    }
}
