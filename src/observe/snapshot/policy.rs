//! The counts of one policy in a snapshot.

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "serde")]
use super::seconds;
use super::{FactorStats, HeavyKeys};
use crate::observe::rows::{Count, Sums};

/// The counts of a policy. See [what is counted](crate::observe#what-is-counted).
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PolicyStats {
    #[cfg_attr(feature = "serde", serde(flatten))]
    rule: Described,
    allowed: u64,
    refused: u64,
    shadow_refused: u64,
    soft: u64,
    uncharged: u64,
    failed: u64,
    skipped: u64,
    degraded: u64,
    near_limit: u64,
    blocked: u64,
    penalized: u64,
    cost: u64,
    waited: u64,
    #[cfg_attr(
        feature = "serde",
        serde(rename = "waited_seconds", serialize_with = "seconds::length")
    )]
    time_waited: Duration,
    settled: u64,
    refunded: u64,
    pub(crate) keys: Option<KeyStats>,
    pub(crate) queue: Option<QueueStats>,
    pub(crate) factor: Option<FactorStats>,
    pub(crate) heaviest: Option<HeavyKeys>,
}

/// The description of a policy.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub(crate) struct Described {
    #[cfg_attr(feature = "serde", serde(serialize_with = "text"))]
    pub(crate) name: Arc<str>,
    pub(crate) algorithm: &'static str,
    pub(crate) mode: &'static str,
    pub(crate) limit: Option<u32>,
    #[cfg_attr(
        feature = "serde",
        serde(rename = "period_seconds", serialize_with = "seconds::length_if_any")
    )]
    pub(crate) period: Option<Duration>,
}

#[cfg(feature = "serde")]
fn text<S: serde::Serializer>(text: &Arc<str>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(text)
}

impl PolicyStats {
    pub(crate) fn new(rule: Described, sums: &Sums) -> Self {
        Self {
            rule,
            allowed: sums.policy(Count::Allowed),
            refused: sums.policy(Count::Refused),
            shadow_refused: sums.policy(Count::ShadowRefused),
            soft: sums.policy(Count::Soft),
            uncharged: sums.policy(Count::Uncharged),
            failed: sums.policy(Count::Failed),
            skipped: sums.policy(Count::Skipped),
            degraded: sums.policy(Count::Degraded),
            near_limit: sums.policy(Count::NearLimit),
            blocked: sums.policy(Count::Blocked),
            penalized: sums.policy(Count::Penalized),
            cost: sums.policy(Count::Cost),
            waited: sums.policy(Count::Waited),
            time_waited: Duration::from_micros(sums.policy(Count::TimeWaited)),
            settled: sums.policy(Count::Settled),
            refunded: sums.policy(Count::Refunded),
            keys: None,
            queue: None,
            factor: None,
            heaviest: None,
        }
    }

    /// Returns the name of the policy.
    pub fn name(&self) -> &str {
        &self.rule.name
    }

    /// Returns the name of its algorithm, such as `fixed-window`.
    pub fn algorithm(&self) -> &'static str {
        self.rule.algorithm
    }

    /// Returns what happens to a request over the limit: `enforce`, `soft`, `shadow` or `off`.
    pub fn mode(&self) -> &'static str {
        self.rule.mode
    }

    /// Returns its limit: the most at one instant, as declared. Plans, overrides and factors set another one
    /// for some requests. `None` if it is unlimited.
    pub fn limit(&self) -> Option<u32> {
        self.rule.limit
    }

    /// Returns its period: the window, or the time in which an empty bucket fills. `None` if it has none.
    pub fn period(&self) -> Option<Duration> {
        self.rule.period
    }

    /// Returns how many requests went on within its limit.
    pub fn allowed(&self) -> u64 {
        self.allowed
    }

    /// Returns how many requests it refused. Several policies may refuse a request.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns how many requests it would have refused if it were enforced.
    pub fn shadow_refused(&self) -> u64 {
        self.shadow_refused
    }

    /// Returns how many requests went on over its limit, because it is [soft](crate::Policy::soft).
    pub fn soft(&self) -> u64 {
        self.soft
    }

    /// Returns how many requests were within its limit and refused because of another policy. They were charged
    /// nothing.
    pub fn uncharged(&self) -> u64 {
        self.uncharged
    }

    /// Returns how many requests were refused because the store could not decide.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Returns how many requests the policy does not apply to, by its condition, by its plan, or because they
    /// have no key.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Returns how many requests were decided without the store.
    pub fn degraded(&self) -> u64 {
        self.degraded
    }

    /// Returns how many allowed requests left a fifth of the limit or less.
    pub fn near_limit(&self) -> u64 {
        self.near_limit
    }

    /// Returns how many requests were refused because their key is [blocked](crate::Limiter::block).
    pub fn blocked(&self) -> u64 {
        self.blocked
    }

    /// Returns how many refusals began a block of their key: see [`Policy::penalty`](crate::Policy::penalty).
    pub fn penalized(&self) -> u64 {
        self.penalized
    }

    /// Returns how many units requests cost.
    ///
    /// A request whose cost is [settled](crate::Policy::settle), and a [reservation](crate::Limiter::reserve), are counted
    /// when they are settled, with what they cost in the end, so it does not fall. Their estimates are not in it while they
    /// are under way. Units that [`settle`](crate::Limiter::settle) charges are in it, and units that are given back by
    /// [`refund`](crate::Limiter::refund) stay in it: see [`refunded`](Self::refunded).
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns how many requests waited for their turn, and have gone on or given up.
    pub fn waited(&self) -> u64 {
        self.waited
    }

    /// Returns how long these requests waited, all together.
    pub fn time_waited(&self) -> Duration {
        self.time_waited
    }

    /// Returns how many charges were corrected after the fact: settled or given back.
    pub fn settled(&self) -> u64 {
        self.settled
    }

    /// Returns how many units [`refund`](crate::Limiter::refund) was asked to give back, of which it gives at most those that
    /// still count.
    pub fn refunded(&self) -> u64 {
        self.refunded
    }

    /// Returns the keys that the store keeps for it, or `None` if the store does not count them.
    pub fn keys(&self) -> Option<&KeyStats> {
        self.keys.as_ref()
    }

    /// Returns the requests that wait for their turn now, or `None` if none can.
    pub fn queue(&self) -> Option<&QueueStats> {
        self.queue.as_ref()
    }

    /// Returns its factor, or `None` if it has [none](crate::Policy::factor).
    pub fn factor(&self) -> Option<&FactorStats> {
        self.factor.as_ref()
    }

    /// Returns the keys that asked for most units, or `None` unless they are
    /// [tracked](crate::Policy::heaviest_keys).
    pub fn heaviest(&self) -> Option<&HeavyKeys> {
        self.heaviest.as_ref()
    }
}

/// The keys of a policy in a store.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct KeyStats {
    kept: u64,
    most: u64,
    bytes: u64,
    forgotten: u64,
    together: u64,
}

impl KeyStats {
    /// Creates the numbers of a store that keeps `kept` keys, at most `most`, in `bytes` bytes.
    pub fn new(kept: u64, most: u64, bytes: u64) -> Self {
        Self {
            kept,
            most,
            bytes,
            ..Self::default()
        }
    }

    /// Adds how many keys were forgotten at the bound, and how many requests were of keys that were counted
    /// together.
    pub fn forgotten(self, forgotten: u64, together: u64) -> Self {
        Self {
            forgotten,
            together,
            ..self
        }
    }

    /// Returns the number of keys, including those that are as good as new and not yet forgotten.
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// Returns the largest number of keys.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Returns the memory of the keys, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns how many keys were forgotten at the bound although they had used some of their limit.
    pub fn forgotten_at_the_bound(&self) -> u64 {
        self.forgotten
    }

    /// Returns how many requests were admitted of keys that had no room and were counted together.
    pub fn counted_together(&self) -> u64 {
        self.together
    }
}

/// The requests that wait under a policy.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct QueueStats {
    pub(crate) length: u64,
    #[cfg_attr(
        feature = "serde",
        serde(rename = "longest_wait_seconds", serialize_with = "seconds::length")
    )]
    pub(crate) longest_wait: Duration,
}

impl QueueStats {
    /// Returns how many requests wait now.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns the longest wait of the requests whose wait ended in the last one to two minutes.
    pub fn longest_wait(&self) -> Duration {
        self.longest_wait
    }
}
