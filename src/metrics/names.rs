//! The metrics: their names, and where their values are in a snapshot. `docs/metrics.md` has the same table,
//! and a test compares them.

use ::metrics::Unit;

#[cfg(feature = "adapt")]
use crate::adapt::AdaptiveConcurrency;
use crate::observe::{KeyStats, LeaseStats, PolicyStats, RequestStats, Snapshot, StoreStats};

/// A metric of a source, such as a snapshot.
pub(super) struct Metric<S: 'static> {
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    pub(super) help: &'static str,
    pub(super) read: Read<S>,
}

/// How the values are read. A counter only rises.
pub(super) enum Read<S: 'static> {
    Counter(fn(&S, &mut Emit<'_, u64>)),
    Gauge(fn(&S, &mut Emit<'_, f64>)),
}

/// Names and values of labels.
pub(super) type Labels<'a> = &'a [(&'static str, &'a str)];

/// Receives each value with its labels.
pub(super) type Emit<'a, T> = dyn FnMut(Labels<'_>, T) + 'a;

const fn counter<S>(
    name: &'static str,
    unit: Unit,
    help: &'static str,
    read: fn(&S, &mut Emit<'_, u64>),
) -> Metric<S> {
    let read = Read::Counter(read);
    Metric {
        name,
        unit,
        help,
        read,
    }
}

const fn gauge<S>(
    name: &'static str,
    unit: Unit,
    help: &'static str,
    read: fn(&S, &mut Emit<'_, f64>),
) -> Metric<S> {
    let read = Read::Gauge(read);
    Metric {
        name,
        unit,
        help,
        read,
    }
}

/// All metrics of a limiter.
pub(super) const METRICS: &[Metric<Snapshot>] = &[
    counter(
        "ratelimit_requests_total",
        Unit::Count,
        "Requests, each counted once, by what became of them",
        |snapshot, emit| each(&REQUESTS, snapshot.requests(), &[], emit),
    ),
    counter(
        "ratelimit_decisions_total",
        Unit::Count,
        "Requests under a policy, by what became of them",
        |snapshot, emit| {
            for policy in snapshot.policies() {
                each(&DECISIONS, policy, &[("policy", policy.name())], emit);
            }
        },
    ),
    counter(
        "ratelimit_degraded_total",
        Unit::Count,
        "Requests under a policy that were decided without the store",
        |snapshot, emit| policies(snapshot, emit, PolicyStats::degraded),
    ),
    counter(
        "ratelimit_near_limit_total",
        Unit::Count,
        "Allowed requests that left a fifth of the limit or less",
        |snapshot, emit| policies(snapshot, emit, PolicyStats::near_limit),
    ),
    counter(
        "ratelimit_blocked_total",
        Unit::Count,
        "Requests that were refused because their key is blocked",
        |snapshot, emit| policies(snapshot, emit, PolicyStats::blocked),
    ),
    counter(
        "ratelimit_penalized_total",
        Unit::Count,
        "Refusals that were one too many, so that a block of their key began",
        |snapshot, emit| policies(snapshot, emit, PolicyStats::penalized),
    ),
    counter(
        "ratelimit_cost_total",
        Unit::Count,
        "Units that requests cost, counted at their settlement where it is settled",
        |snapshot, emit| policies(snapshot, emit, PolicyStats::cost),
    ),
    counter(
        "ratelimit_settled_total",
        Unit::Count,
        "Charges that were corrected after the fact",
        |snapshot, emit| policies(snapshot, emit, PolicyStats::settled),
    ),
    counter(
        "ratelimit_refunded_total",
        Unit::Count,
        "Units that were to be given back after the fact, and stay in the cost",
        |snapshot, emit| policies(snapshot, emit, PolicyStats::refunded),
    ),
    counter(
        "ratelimit_waited_total",
        Unit::Count,
        "Requests that waited for their turn, and have gone on or away",
        |snapshot, emit| policies(snapshot, emit, PolicyStats::waited),
    ),
    counter(
        "ratelimit_waited_microseconds_total",
        Unit::Microseconds,
        "How long these requests waited, all together",
        |snapshot, emit| {
            policies(snapshot, emit, |policy| {
                u64::try_from(policy.time_waited().as_micros()).unwrap_or(u64::MAX)
            });
        },
    ),
    gauge(
        "ratelimit_queue_length",
        Unit::Count,
        "Requests that wait for their turn now",
        |snapshot, emit| {
            some_policies(snapshot, emit, |policy| {
                Some(number(policy.queue()?.length()))
            });
        },
    ),
    gauge(
        "ratelimit_wait_seconds",
        Unit::Seconds,
        "The longest wait that ended in the last one to two minutes",
        |snapshot, emit| {
            some_policies(snapshot, emit, |policy| {
                Some(policy.queue()?.longest_wait().as_secs_f64())
            });
        },
    ),
    gauge(
        "ratelimit_limit",
        Unit::Count,
        "The limit of a policy as it is declared",
        |snapshot, emit| some_policies(snapshot, emit, |policy| Some(policy.limit()?.into())),
    ),
    gauge(
        "ratelimit_keys",
        Unit::Count,
        "Keys that the store in this process keeps",
        |snapshot, emit| {
            some_policies(snapshot, emit, |policy| Some(number(policy.keys()?.kept())));
        },
    ),
    gauge(
        "ratelimit_keys_max",
        Unit::Count,
        "Keys that it may keep",
        |snapshot, emit| {
            some_policies(snapshot, emit, |policy| Some(number(policy.keys()?.most())));
        },
    ),
    gauge(
        "ratelimit_keys_bytes",
        Unit::Bytes,
        "Memory that these keys take",
        |snapshot, emit| {
            some_policies(snapshot, emit, |policy| {
                Some(number(policy.keys()?.bytes()))
            });
        },
    ),
    counter(
        "ratelimit_evictions_total",
        Unit::Count,
        "Keys that were forgotten at the bound, though they had used some of their limit",
        |snapshot, emit| keys(snapshot, emit, KeyStats::forgotten_at_the_bound),
    ),
    counter(
        "ratelimit_overflows_total",
        Unit::Count,
        "Requests whose keys had no room and were counted together",
        |snapshot, emit| keys(snapshot, emit, KeyStats::counted_together),
    ),
    gauge(
        "ratelimit_adapt_factor",
        Unit::Count,
        "The share of the limit that is in force: 1 is all of it",
        |snapshot, emit| some_policies(snapshot, emit, |policy| Some(policy.factor()?.factor())),
    ),
    gauge(
        "ratelimit_adapt_load",
        Unit::Count,
        "The last reading of a signal: 1 is full load",
        |snapshot, emit| signals(snapshot, emit, |load| load),
    ),
    gauge(
        "ratelimit_adapt_signal_up",
        Unit::Count,
        "Whether a signal has a reading: 1 or 0",
        |snapshot, emit| signals(snapshot, emit, |load| Some(flag(load.is_some()))),
    ),
    gauge(
        "ratelimit_store_up",
        Unit::Count,
        "Whether the store answers: 1 or 0",
        |snapshot, emit| {
            let store = snapshot.store();
            emit(&[("store", store.kind())], flag(store.is_up()));
        },
    ),
    gauge(
        "ratelimit_store_seconds",
        Unit::Seconds,
        "How long calls to the store took in the last one to two minutes",
        |snapshot, emit| {
            let store = snapshot.store();
            if let Some(latency) = store.latency() {
                for (quantile, took) in [("0.5", latency.p50()), ("0.99", latency.p99())] {
                    let labels = [("store", store.kind()), ("quantile", quantile)];
                    emit(&labels, took.as_secs_f64());
                }
            }
        },
    ),
    counter(
        "ratelimit_store_calls_total",
        Unit::Count,
        "Calls to the store",
        |snapshot, emit| store(snapshot, emit, StoreStats::calls),
    ),
    counter(
        "ratelimit_store_failures_total",
        Unit::Count,
        "Calls to the store that failed",
        |snapshot, emit| store(snapshot, emit, StoreStats::failures),
    ),
    counter(
        "ratelimit_store_batched_total",
        Unit::Count,
        "Requests that shared a call which another one began",
        |snapshot, emit| store(snapshot, emit, StoreStats::batched),
    ),
    counter(
        "ratelimit_store_remembered_total",
        Unit::Count,
        "Requests that were denied without a call, because the same was denied before",
        |snapshot, emit| store(snapshot, emit, StoreStats::remembered_denials),
    ),
    counter(
        "ratelimit_store_failed_renewals_total",
        Unit::Count,
        "Calls to the store that failed to renew slots of requests in flight",
        |snapshot, emit| store(snapshot, emit, StoreStats::failed_renewals),
    ),
    counter(
        "ratelimit_lease_granted_total",
        Unit::Count,
        "Units that the store has leased to this node",
        |snapshot, emit| leases(snapshot, emit, LeaseStats::granted),
    ),
    counter(
        "ratelimit_lease_spent_total",
        Unit::Count,
        "Leased units that requests have spent",
        |snapshot, emit| leases(snapshot, emit, LeaseStats::spent),
    ),
    counter(
        "ratelimit_lease_given_back_total",
        Unit::Count,
        "Leased units that were given back unspent",
        |snapshot, emit| leases(snapshot, emit, LeaseStats::given_back),
    ),
    counter(
        "ratelimit_lease_lapsed_total",
        Unit::Count,
        "Leased units that ended unspent",
        |snapshot, emit| leases(snapshot, emit, LeaseStats::lapsed),
    ),
    counter(
        "ratelimit_lease_saved_total",
        Unit::Count,
        "Requests that were decided by what this node has leased, without a call",
        |snapshot, emit| leases(snapshot, emit, LeaseStats::calls_saved),
    ),
    gauge(
        "ratelimit_lease_held",
        Unit::Count,
        "Leased units that this node may spend yet",
        |snapshot, emit| {
            let store = snapshot.store();
            if let Some(leases) = store.leases() {
                emit(&[("store", store.kind())], number(leases.held()));
            }
        },
    ),
    gauge(
        "ratelimit_config_version",
        Unit::Count,
        "The number of the configuration in force",
        |snapshot, emit| {
            if let Some(configuration) = snapshot.configuration() {
                emit(&[], number(configuration.version()));
            }
        },
    ),
    gauge(
        "ratelimit_config_error",
        Unit::Count,
        "Whether the newest file of limits was refused: 1 or 0",
        |snapshot, emit| {
            if let Some(configuration) = snapshot.configuration() {
                emit(&[], flag(configuration.error().is_some()));
            }
        },
    ),
    counter(
        "ratelimit_shadow_compared_total",
        Unit::Count,
        "Requests on which the file in shadow has decided beside the file in force",
        |snapshot, emit| {
            if let Some(shadow) = snapshot.shadow() {
                emit(&[], shadow.compared());
            }
        },
    ),
    counter(
        "ratelimit_shadow_differences_total",
        Unit::Count,
        "Requests that the file in shadow would have refused or allowed otherwise than the file in force",
        |snapshot, emit| {
            if let Some(shadow) = snapshot.shadow() {
                emit(&[("would", "refuse")], shadow.would_refuse());
                emit(&[("would", "allow")], shadow.would_allow());
            }
        },
    ),
    gauge(
        "ratelimit_shadow_error",
        Unit::Count,
        "Whether the newest file in shadow was refused: 1 or 0",
        |snapshot, emit| {
            if let Some(shadow) = snapshot.shadow() {
                emit(&[], flag(shadow.error().is_some()));
            }
        },
    ),
];

/// All metrics of an adaptive concurrency.
#[cfg(feature = "adapt")]
pub(super) const OF_CONCURRENCY: &[Metric<AdaptiveConcurrency>] = &[
    gauge(
        "ratelimit_concurrency_limit",
        Unit::Count,
        "How many requests may be in flight at once, as an adaptive concurrency has learnt",
        |limit, emit| emit(&[("policy", limit.name())], limit.limit().into()),
    ),
    gauge(
        "ratelimit_in_flight",
        Unit::Count,
        "How many requests hold a slot of an adaptive concurrency",
        |limit, emit| emit(&[("policy", limit.name())], limit.in_flight().into()),
    ),
    counter(
        "ratelimit_saturated_total",
        Unit::Count,
        "Requests that were refused because all slots of an adaptive concurrency were taken",
        |limit, emit| emit(&[("policy", limit.name())], limit.refused()),
    ),
];

type Outcome<S> = (&'static str, fn(&S) -> u64);

const REQUESTS: [Outcome<RequestStats>; 6] = [
    ("allowed", RequestStats::allowed),
    ("refused", RequestStats::refused),
    ("failed", RequestStats::failed),
    ("exempt", RequestStats::exempt),
    ("forbidden", RequestStats::forbidden),
    ("without_key", RequestStats::without_key),
];

const DECISIONS: [Outcome<PolicyStats>; 7] = [
    ("allowed", PolicyStats::allowed),
    ("refused", PolicyStats::refused),
    ("shadow_refused", PolicyStats::shadow_refused),
    ("soft", PolicyStats::soft),
    ("uncharged", PolicyStats::uncharged),
    ("failed", PolicyStats::failed),
    ("skipped", PolicyStats::skipped),
];

/// Reports the count of each outcome.
fn each<S>(outcomes: &[Outcome<S>], stats: &S, labels: Labels<'_>, emit: &mut Emit<'_, u64>) {
    for (outcome, read) in outcomes {
        let with_outcome: Vec<_> = labels
            .iter()
            .copied()
            .chain([("outcome", *outcome)])
            .collect();
        emit(&with_outcome, read(stats));
    }
}

fn leases(snapshot: &Snapshot, emit: &mut Emit<'_, u64>, read: fn(&LeaseStats) -> u64) {
    let store = snapshot.store();
    if let Some(leases) = store.leases() {
        emit(&[("store", store.kind())], read(&leases));
    }
}

fn policies(snapshot: &Snapshot, emit: &mut Emit<'_, u64>, read: impl Fn(&PolicyStats) -> u64) {
    for policy in snapshot.policies() {
        emit(&[("policy", policy.name())], read(policy));
    }
}

fn some_policies(
    snapshot: &Snapshot,
    emit: &mut Emit<'_, f64>,
    read: impl Fn(&PolicyStats) -> Option<f64>,
) {
    for policy in snapshot.policies() {
        if let Some(value) = read(policy) {
            emit(&[("policy", policy.name())], value);
        }
    }
}

fn keys(snapshot: &Snapshot, emit: &mut Emit<'_, u64>, read: fn(&KeyStats) -> u64) {
    for policy in snapshot.policies() {
        if let Some(keys) = policy.keys() {
            emit(&[("policy", policy.name())], read(keys));
        }
    }
}

fn signals(
    snapshot: &Snapshot,
    emit: &mut Emit<'_, f64>,
    read: impl Fn(Option<f64>) -> Option<f64>,
) {
    for policy in snapshot.policies() {
        for signal in policy.factor().map_or(&[][..], |factor| factor.signals()) {
            if let Some(value) = read(signal.load()) {
                let labels = [("policy", policy.name()), ("signal", signal.name())];
                emit(&labels, value);
            }
        }
    }
}

fn store(snapshot: &Snapshot, emit: &mut Emit<'_, u64>, read: fn(&StoreStats) -> u64) {
    let store = snapshot.store();
    emit(&[("store", store.kind())], read(store));
}

#[expect(
    clippy::cast_precision_loss,
    reason = "exact up to 2^53, which is more than fits in memory"
)]
fn number(count: u64) -> f64 {
    count as f64
}

fn flag(is_set: bool) -> f64 {
    f64::from(u8::from(is_set))
}
