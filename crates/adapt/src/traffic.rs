//! Counts of the requests of a layer: their latency, how many are in flight, and how many fail.
//!
//! Counting a request takes a few relaxed additions. Latencies are counted in buckets whose bounds are an
//! eighth apart, so a percentile is right to 12 %. Each signal keeps the counts of its last reading, so
//! several signals can read the same counts.
//!
//! Two readings of the clock take longer than all the rest. So the first thousand requests after a reading
//! are timed, and one in eight of the later ones, which counts for eight. A hash of the request's number
//! picks it, so that a pattern of the requests cannot.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::new_times::NewTimes;
use super::{Load, Signal};
use tower_ratelimit::__internal::Times;

/// Counts requests, for the signals that measure them. Clones share the counts.
///
/// [`TrafficLayer`](crate::middleware::TrafficLayer) counts those of an HTTP service; other services
/// [begin](Self::begin) them themselves.
///
/// ```
/// use std::num::NonZeroU32;
/// use std::time::Duration;
/// use tower_ratelimit_adapt::{Adapt, Aimd, Load, Traffic, Worst};
///
/// let traffic = Traffic::new();
/// let slow = Aimd::on("latency", Load::FULL);
/// let crowded = Aimd::on("in flight", Load::FULL);
/// let adapt = Adapt::builder(Worst::of(slow).and(crowded))
///     .signal(traffic.latency(Duration::from_millis(200)))
///     .signal(traffic.in_flight(NonZeroU32::new(500).unwrap()))
///     .build()?;
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
#[derive(Clone, Default)]
pub struct Traffic(Arc<RequestStats>);

#[derive(Default)]
struct RequestStats {
    /// Only this field and the requests in flight hold references, so the number of references tells how many
    /// are in flight, without a second counter.
    counts: Arc<Counts>,
}

struct Counts {
    /// The most requests that were in flight since the last reading.
    peak: AtomicUsize,
    answered: AtomicU64,
    failed: AtomicU64,
    /// Up to this number of requests, each one is timed.
    each_until: AtomicU64,
    /// How long answered requests took.
    took: Times,
}

/// Fewer requests are not enough for a reading.
const ENOUGH: u64 = 50;

/// The number of requests after a reading that are all timed.
const EACH: u64 = 1_000;

/// Of later requests, one in this number is timed. A power of two.
const ONE_IN: u64 = 8;

impl Default for Counts {
    fn default() -> Self {
        Self {
            peak: AtomicUsize::default(),
            answered: AtomicU64::default(),
            failed: AtomicU64::default(),
            each_until: AtomicU64::new(EACH),
            took: Times::default(),
        }
    }
}

impl Counts {
    /// Returns how many requests have ended or are in flight.
    fn begun(&self, under_way: usize) -> u64 {
        let (_, ended) = self.ended();
        ended.wrapping_add(under_way as u64)
    }

    /// Returns how many requests the one with this number stands for, if it has to be timed.
    fn stands_for(&self, number: u64) -> Option<u64> {
        if number <= self.each_until.load(Ordering::Relaxed) {
            return Some(1);
        }
        let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> (64 - ONE_IN.trailing_zeros()) == 0).then_some(ONE_IN)
    }

    /// Returns how many failed, and how many ended.
    fn ended(&self) -> (u64, u64) {
        let failed = self.failed.load(Ordering::Relaxed);
        let answered = self.answered.load(Ordering::Relaxed);
        (failed, answered.wrapping_add(failed))
    }
}

impl Traffic {
    /// Creates counts at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a request. It is in flight until the guard is dropped. Its latency is the time until it is
    /// [answered](InFlightGuard::answered), or it counts as failed.
    #[inline]
    pub fn begin(&self) -> InFlightGuard {
        let counts = Arc::clone(&self.0.counts);
        let under_way = self.under_way();
        if under_way > counts.peak.load(Ordering::Relaxed) {
            counts.peak.fetch_max(under_way, Ordering::Relaxed);
        }
        let stands_for = counts.stands_for(counts.begun(under_way));
        InFlightGuard {
            timed: stands_for.map(|requests| Timed {
                began: Instant::now(),
                requests,
            }),
            counts,
        }
    }

    /// Returns the signal `latency`: the 90th percentile of the latencies of requests that did not fail, as a
    /// share of this target. It is absent until 50 have been answered since the last reading. Of more than a
    /// thousand between two readings, one in eight is timed.
    ///
    /// A fast failure is not a sign of health, so failures are left out.
    pub fn latency(&self, target: Duration) -> Latency {
        Latency {
            traffic: self.clone(),
            target,
            times: NewTimes::since(self.took(), ENOUGH),
        }
    }

    /// Returns the signal `in flight`: the most requests that were in flight at once since the last reading,
    /// of `most`.
    pub fn in_flight(&self, most: std::num::NonZeroU32) -> InFlight {
        let traffic = self.clone();
        InFlight { traffic, most }
    }

    /// Returns the signal `failures`: the share of requests that failed. It is absent until 50 have ended
    /// since the last reading, so that one failure of two says nothing.
    pub fn failures(&self) -> Failures {
        Failures {
            traffic: self.clone(),
            counted: self.counts().ended(),
        }
    }

    fn counts(&self) -> &Counts {
        &self.0.counts
    }

    fn under_way(&self) -> usize {
        Arc::strong_count(&self.0.counts) - 1
    }

    fn took(&self) -> Vec<u64> {
        self.counts().took.counts()
    }
}

impl fmt::Debug for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traffic")
            .field("under_way", &self.under_way())
            .finish_non_exhaustive()
    }
}

/// A request in flight. A request that is dropped without an answer, as when its client has gone away, counts
/// as neither answered nor failed.
#[derive(Debug)]
pub struct InFlightGuard {
    counts: Arc<Counts>,
    timed: Option<Timed>,
}

/// When a timed request began, and for how many it stands.
#[derive(Clone, Copy, Debug)]
struct Timed {
    began: Instant,
    requests: u64,
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counts").finish_non_exhaustive()
    }
}

impl InFlightGuard {
    /// Records that the request is answered. It stays in flight until the guard is dropped, at the end of its
    /// body.
    #[inline]
    pub fn answered(&self) {
        self.answered_by(Instant::now);
    }

    #[inline]
    fn answered_by(&self, now: impl FnOnce() -> Instant) {
        self.counts.answered.fetch_add(1, Ordering::Relaxed);
        if let Some(Timed { began, requests }) = self.timed {
            let took = now().saturating_duration_since(began);
            self.counts.took.note_each(took, requests);
        }
    }

    /// Records that the request has failed.
    #[inline]
    pub fn failed(&self) {
        self.counts.failed.fetch_add(1, Ordering::Relaxed);
    }
}

/// See [`Traffic::latency`].
#[derive(Debug)]
pub struct Latency {
    traffic: Traffic,
    target: Duration,
    times: NewTimes,
}

impl Signal for Latency {
    fn name(&self) -> &'static str {
        "latency"
    }

    fn read(&mut self, _: Duration) -> Option<Load> {
        let counts = self.traffic.counts();
        let each_until = counts.begun(self.traffic.under_way()).wrapping_add(EACH);
        counts.each_until.store(each_until, Ordering::Relaxed);
        self.times.load(self.traffic.took(), self.target)
    }

    fn may_be_absent(&self) -> bool {
        true
    }
}

/// See [`Traffic::in_flight`].
#[derive(Debug)]
pub struct InFlight {
    traffic: Traffic,
    most: std::num::NonZeroU32,
}

impl Signal for InFlight {
    fn name(&self) -> &'static str {
        "in flight"
    }

    fn read(&mut self, _: Duration) -> Option<Load> {
        let now = self.traffic.under_way();
        let peak = self.traffic.counts().peak.swap(now, Ordering::Relaxed);
        Load::of(peak.max(now) as u64, self.most.get().into())
    }
}

/// See [`Traffic::failures`].
#[derive(Debug)]
pub struct Failures {
    traffic: Traffic,
    counted: (u64, u64),
}

impl Signal for Failures {
    fn name(&self) -> &'static str {
        "failures"
    }

    fn read(&mut self, _: Duration) -> Option<Load> {
        let (failed, ended) = self.traffic.counts().ended();
        let (failed_then, ended_then) = self.counted;
        let new = ended.saturating_sub(ended_then);
        if new < ENOUGH {
            return None;
        }
        self.counted = (failed, ended);
        Load::of(failed.saturating_sub(failed_then), new)
    }

    fn may_be_absent(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    /// Counts requests that took this long.
    fn take(traffic: &Traffic, requests: u32, millis: u64) {
        for _ in 0..requests {
            let passage = traffic.begin();
            let took = Duration::from_millis(millis);
            passage.answered_by(|| {
                passage
                    .timed
                    .map_or_else(Instant::now, |it| it.began + took)
            });
        }
    }

    #[test]
    fn latency_is_a_percentile_of_the_target() {
        let traffic = Traffic::new();
        let mut latency = traffic.latency(Duration::from_millis(100));
        take(&traffic, 95, 10);
        take(&traffic, 5, 5_000);
        let load = latency.read(Duration::ZERO).unwrap();
        assert!(
            (Load::percent(9)..Load::percent(12)).contains(&load),
            "{load}"
        );
        take(&traffic, 80, 10);
        take(&traffic, 20, 200);
        let load = latency.read(Duration::ZERO).unwrap();
        assert!(
            (Load::percent(199)..Load::percent(225)).contains(&load),
            "{load}"
        );
    }

    #[test]
    fn few_requests_tell_nothing_and_are_counted_with_the_next() {
        let traffic = Traffic::new();
        let mut latency = traffic.latency(Duration::from_millis(100));
        take(&traffic, 49, 50);
        assert_eq!(latency.read(Duration::ZERO), None);
        take(&traffic, 1, 50);
        assert!(latency.read(Duration::ZERO).is_some());
        assert_eq!(latency.read(Duration::ZERO), None);
    }

    #[test]
    fn failures_are_a_share_and_no_latency() {
        let traffic = Traffic::new();
        let (mut latency, mut failures) = (
            traffic.latency(Duration::from_millis(100)),
            traffic.failures(),
        );
        traffic.begin().failed();
        assert_eq!(failures.read(Duration::ZERO), None);
        take(&traffic, 74, 50);
        (0..25).for_each(|_| traffic.begin().failed());
        assert_eq!(failures.read(Duration::ZERO), Some(Load::percent(26)));
        // A fast failure does not lower the latency.
        let load = latency.read(Duration::ZERO).unwrap();
        assert!(load >= Load::percent(50), "{load}");
    }

    #[test]
    fn requests_are_under_way_until_they_are_dropped() {
        let traffic = Traffic::new();
        let mut in_flight = traffic.in_flight(NonZeroU32::new(10).unwrap());
        let passages: Vec<_> = (0..5).map(|_| traffic.begin()).collect();
        drop(passages);
        assert_eq!(in_flight.read(Duration::ZERO), Some(Load::percent(50)));
        assert_eq!(in_flight.read(Duration::ZERO), Some(Load::NONE));
        let one = traffic.begin();
        one.answered();
        assert_eq!(in_flight.read(Duration::ZERO), Some(Load::percent(10)));
    }

    #[test]
    fn one_in_eight_of_many_requests_is_timed_and_the_percentile_is_the_same() {
        let traffic = Traffic::new();
        let mut latency = traffic.latency(Duration::from_millis(100));
        let timed = |requests: u32| {
            let passages = (0..requests).map(|_| {
                let passage = traffic.begin();
                passage.answered();
                u64::from(passage.timed.is_some())
            });
            passages.sum::<u64>()
        };
        assert_eq!(timed(1_000), 1_000);
        let some = timed(8_000);
        assert!((950..=1_050).contains(&some), "{some}");
        // The timed requests stand for all.
        let all: u64 = traffic.took().iter().sum();
        assert!((8_600..=9_400).contains(&all), "{all}");
        assert!(latency.read(Duration::ZERO).is_some());
        assert_eq!(timed(1_000), 1_000);

        for _ in 0..1_000 {
            take(&traffic, 17, 10);
            take(&traffic, 3, 200);
        }
        let load = latency.read(Duration::ZERO).unwrap();
        assert!(load >= Load::percent(199), "{load}");
        for _ in 0..1_000 {
            take(&traffic, 19, 10);
            take(&traffic, 1, 200);
        }
        let load = latency.read(Duration::ZERO).unwrap();
        assert!(load <= Load::percent(12), "{load}");
    }

    #[test]
    fn failures_are_counted_one_by_one_however_many_there_are() {
        let traffic = Traffic::new();
        let mut failures = traffic.failures();
        take(&traffic, 30_000, 1);
        (0..10_000).for_each(|_| traffic.begin().failed());
        assert_eq!(failures.read(Duration::ZERO), Some(Load::percent(25)));
    }
}
