//! What was decided, counted for each limit of the files and over their reloads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::{counter, describe_counter, describe_gauge, gauge};

/// The most limits that are counted apart. Values of requests may be among them.
const MOST: usize = 10_000;

/// The path of all limits beyond that.
const OTHER: &str = "other";

/// The units that requests charge to one limit.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) total: AtomicU64,
    pub(super) within: AtomicU64,
    /// Of those within, what left a fifth of the limit or less.
    pub(super) near: AtomicU64,
    pub(super) over: AtomicU64,
    /// Of those over, what went on because the limit is in shadow.
    pub(super) shadow: AtomicU64,
}

/// The domain, and the path of the limit in it.
type Name = (Box<str>, Box<str>);

/// The counts of all limits, and of the calls.
#[derive(Debug, Default)]
pub(super) struct Statistics {
    limits: Mutex<BTreeMap<Name, Arc<Counts>>>,
    pub(super) calls: AtomicU64,
    pub(super) invalid: AtomicU64,
    pub(super) unavailable: AtomicU64,
    /// Calls that were decided without the store, which had not answered in time.
    pub(super) late: AtomicU64,
    /// Calls over a limit that passed, because all limits are in shadow.
    pub(super) shadow: AtomicU64,
    pub(super) unknown_domain: AtomicU64,
    pub(super) times: Times,
    pub(super) loads: AtomicU64,
    pub(super) failed_loads: AtomicU64,
}

/// The bounds of the times of calls, in seconds: those of a histogram of Prometheus that names none.
const BOUNDS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// How long calls took.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// The calls up to each bound and over the one before it, and those over all bounds.
    calls: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

impl Times {
    pub(super) fn note(&self, time: Duration) {
        let place = BOUNDS.iter().position(|bound| time.as_secs_f64() <= *bound);
        add(&self.calls[place.unwrap_or(BOUNDS.len())], 1);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        add(&self.micros, micros);
    }

    /// Returns each bound, as Prometheus spells it, with the calls up to it.
    fn up_to(&self) -> impl Iterator<Item = (String, u64)> {
        let bounds = BOUNDS.iter().map(ToString::to_string);
        let bounds = bounds.chain(["+Inf".to_owned()]);
        bounds.zip(&self.calls).scan(0, |calls, (bound, more)| {
            *calls += more.load(Ordering::Relaxed);
            Some((bound, *calls))
        })
    }

    fn secs(&self) -> f64 {
        Duration::from_micros(self.micros.load(Ordering::Relaxed)).as_secs_f64()
    }
}

pub(super) fn add(count: &AtomicU64, units: u64) {
    count.fetch_add(units, Ordering::Relaxed);
}

impl Statistics {
    /// Returns the counts of a limit, which are the same as before a reload.
    pub(super) fn of(&self, domain: &str, path: &str) -> Arc<Counts> {
        let mut limits = self.lock();
        let name: Name = (domain.into(), path.into());
        if let Some(counts) = limits.get(&name) {
            return Arc::clone(counts);
        }
        let name = if limits.len() < MOST {
            name
        } else {
            (OTHER.into(), OTHER.into())
        };
        Arc::clone(limits.entry(name).or_default())
    }

    /// Frees the places of limits that are no longer in force, and of values, if they have counted nothing. When no place is
    /// free, it frees those that have counted too; a limit that comes back begins at 0.
    pub(super) fn free(&self) {
        let mut limits = self.lock();
        let is_held = |counts: &Arc<Counts>| Arc::strong_count(counts) > 1;
        limits.retain(|_, counts| is_held(counts) || counts.total.load(Ordering::Relaxed) > 0);
        if limits.len() >= MOST {
            limits.retain(|(domain, _), counts| is_held(counts) || **domain == *OTHER);
        }
    }

    /// Calls `with` with each limit.
    pub(super) fn each(&self, mut with: impl FnMut(&str, &str, &Counts)) {
        for ((domain, path), counts) in &*self.lock() {
            with(domain, path, counts);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, Arc<Counts>>> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const UNITS: &str = "ratelimitd_descriptor_units_total";
const NEAR: &str = "ratelimitd_descriptor_near_limit_units_total";
const CALLS: &str = "ratelimitd_descriptor_calls_total";
const FAILED: &str = "ratelimitd_descriptor_failed_calls_total";
const LATE: &str = "ratelimitd_descriptor_calls_without_store_total";
const SHADOW: &str = "ratelimitd_descriptor_shadowed_calls_total";
const NO_DOMAIN: &str = "ratelimitd_descriptor_unknown_domain_total";
const LOADS: &str = "ratelimitd_descriptor_config_loads_total";
const ERROR: &str = "ratelimitd_descriptor_config_error";

/// Reports all counts to the recorder.
pub(super) fn publish(statistics: &Statistics, is_refused: bool) {
    describe_counter!(
        UNITS,
        "Units that descriptors asked for, by domain, limit and outcome"
    );
    describe_counter!(
        NEAR,
        "Of the units within, those that left a fifth of the limit or less"
    );
    describe_counter!(CALLS, "Calls of the rate limit service");
    describe_counter!(FAILED, "Calls without an answer, by the reason");
    describe_counter!(
        LATE,
        "Calls that were decided without the store, which had not answered in time"
    );
    describe_counter!(
        SHADOW,
        "Calls over a limit that passed, because all limits are in shadow"
    );
    describe_counter!(NO_DOMAIN, "Calls with a domain that no file has");
    describe_counter!(
        LOADS,
        "How often the files of descriptors were read, by the result"
    );
    describe_gauge!(
        ERROR,
        "Whether the newest files of descriptors were refused: 1 or 0"
    );
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    statistics.each(|domain, path, counts| {
        let labels = || {
            [
                ("domain", domain.to_owned()),
                ("descriptor", path.to_owned()),
            ]
        };
        let outcomes = [
            ("within", &counts.within),
            ("over", &counts.over),
            ("shadow", &counts.shadow),
            ("asked", &counts.total),
        ];
        for (outcome, count) in outcomes {
            let [domain, descriptor] = labels();
            let labels = [domain, descriptor, ("outcome", outcome.to_owned())];
            counter!(UNITS, &labels).absolute(read(count));
        }
        counter!(NEAR, &labels()).absolute(read(&counts.near));
    });
    counter!(CALLS).absolute(read(&statistics.calls));
    counter!(FAILED, "reason" => "invalid").absolute(read(&statistics.invalid));
    counter!(FAILED, "reason" => "unavailable").absolute(read(&statistics.unavailable));
    counter!(LATE).absolute(read(&statistics.late));
    counter!(SHADOW).absolute(read(&statistics.shadow));
    counter!(NO_DOMAIN).absolute(read(&statistics.unknown_domain));
    counter!(LOADS, "result" => "in force").absolute(read(&statistics.loads));
    counter!(LOADS, "result" => "refused").absolute(read(&statistics.failed_loads));
    gauge!(ERROR).set(f64::from(u8::from(is_refused)));
}

/// Reports the counts under the names that the Prometheus mapping of `envoyproxy/ratelimit` gives. What stands below the second
/// level is a part of the second label.
pub(super) fn publish_as_theirs(statistics: &Statistics) {
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    statistics.each(|domain, path, counts| {
        let (first, rest) = match path.split_once('.') {
            Some((first, rest)) => (first, Some(rest)),
            None => (path, None),
        };
        let labels = [
            ("domain", Some(domain)),
            ("key1", Some(first)),
            ("key2", rest),
        ];
        let labels = labels
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?.to_owned())));
        let labels: Vec<(&str, String)> = labels.collect();
        counter!("ratelimit_service_rate_limit_total_hits", &labels).absolute(read(&counts.total));
        counter!("ratelimit_service_rate_limit_over_limit", &labels).absolute(read(&counts.over));
        counter!("ratelimit_service_rate_limit_near_limit", &labels).absolute(read(&counts.near));
        counter!("ratelimit_service_rate_limit_within_limit", &labels)
            .absolute(read(&counts.within));
        counter!("ratelimit_service_rate_limit_shadow_mode", &labels)
            .absolute(read(&counts.shadow));
    });
    let method = "ShouldRateLimit";
    counter!("ratelimit_service_total_requests", "grpc_method" => method)
        .absolute(read(&statistics.calls));
    let time = "ratelimit_service_response_time_seconds";
    for (bound, calls) in statistics.times.up_to() {
        counter!(format!("{time}_bucket"), "grpc_method" => method, "le" => bound).absolute(calls);
        counter!(format!("{time}_count"), "grpc_method" => method).absolute(calls);
    }
    gauge!(format!("{time}_sum"), "grpc_method" => method).set(statistics.times.secs());
    counter!("ratelimit_service_global_shadow_mode").absolute(read(&statistics.shadow));
    let error = |kind: &'static str| counter!("ratelimit_service_should_rate_limit_error", "err_type" => kind);
    error("service_error").absolute(read(&statistics.invalid));
    error("redis_error").absolute(read(&statistics.unavailable));
    counter!("ratelimit_service_rate_limit_domain_not_found")
        .absolute(read(&statistics.unknown_domain));
    counter!("ratelimit_service_config_load_success").absolute(read(&statistics.loads));
    counter!("ratelimit_service_config_load_error").absolute(read(&statistics.failed_loads));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_counted_up_to_each_bound_that_it_does_not_exceed() {
        let times = Times::default();
        for micros in [0, 5_000, 5_001, 10_000_000, 11_000_000] {
            times.note(Duration::from_micros(micros));
        }
        let counts: Vec<_> = times.up_to().collect();
        let of = |bound: &str| counts.iter().find(|(it, _)| it == bound).unwrap().1;
        let bounds = ["0.005", "0.01", "5", "10", "+Inf"];
        assert_eq!(bounds.map(of), [2, 3, 3, 4, 5]);
        assert_eq!(counts.len(), 12);
        assert!((times.secs() - 21.010_001).abs() < 1e-9);
    }

    #[test]
    fn places_are_freed_for_the_limits_that_are_in_force() {
        let statistics = Statistics::default();
        let total = |path: &str| {
            let mut found = None;
            statistics.each(|_, its, counts| {
                if its == path {
                    found = Some(counts.total.load(Ordering::Relaxed));
                }
            });
            found
        };
        let held = statistics.of("shop", "held");
        add(&statistics.of("shop", "counted").total, 1);
        let _ = statistics.of("shop", "refused");
        statistics.free();
        let of_all = ["held", "counted", "refused"].map(total);
        assert_eq!(of_all, [Some(0), Some(1), None]);

        for number in 0..MOST {
            add(&statistics.of("shop", &number.to_string()).total, 1);
        }
        statistics.free();
        add(&statistics.of("shop", "next").total, 1);
        let of_all = ["held", "counted", "next", OTHER].map(total);
        assert_eq!(of_all, [Some(0), None, Some(1), Some(2)]);
        drop(held);
    }

    #[test]
    fn there_are_no_more_counts_than_the_bound() {
        let statistics = Statistics::default();
        for number in 0..2 * MOST {
            add(&statistics.of("shop", &number.to_string()).total, 1);
        }
        let (mut limits, mut total, mut other) = (0, 0, 0);
        statistics.each(|_, path, counts| {
            limits += 1;
            let count = counts.total.load(Ordering::Relaxed);
            total += count;
            other += if path == OTHER { count } else { 0 };
        });
        assert_eq!((limits, total), (MOST + 1, 2 * MOST as u64));
        assert_eq!(other, MOST as u64);
    }
}
