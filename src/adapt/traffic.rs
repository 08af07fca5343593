//! What a layer sees of its requests: how long they take, how many are under way, and how many fail.
//!
//! Counting a request takes a few relaxed additions. Latencies are counted in buckets whose bounds are an eighth apart,
//! so that a percentile is right to 12 %. Each signal remembers what was counted when it was read last, and so several
//! can read the same counts.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::new_times::NewTimes;
use super::{Load, Signal};
use crate::observe::Times;

/// Counts requests, for the signals that tell of them. Clones share the counts.
///
/// [`TrafficLayer`](crate::middleware::TrafficLayer) counts those of an HTTP service; other services
/// [begin](Self::begin) them themselves.
///
/// ```
/// use std::num::NonZeroU32;
/// use std::time::Duration;
/// use tower_ratelimit::adapt::{Adapt, Aimd, Load, Traffic, Worst};
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
pub struct Traffic(Arc<Counts>);

#[derive(Default)]
struct Counts {
    in_flight: AtomicU32,
    /// The most since it was last read.
    peak: AtomicU32,
    failed: AtomicU64,
    /// Those that did not fail, by how long they took.
    took: Times,
}

/// Fewer requests than this tell nothing.
const ENOUGH: u64 = 50;

impl Traffic {
    /// Nothing is counted yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A request begins. It is under way until the guard is dropped, and counts as taking as long as that it is
    /// [answered](Passage::answered), or as failed.
    #[inline]
    pub fn begin(&self) -> Passage {
        let under_way = self.0.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        if under_way > self.0.peak.load(Ordering::Relaxed) {
            self.0.peak.fetch_max(under_way, Ordering::Relaxed);
        }
        Passage {
            counts: Arc::clone(&self.0),
            began: Instant::now(),
        }
    }

    /// The signal `latency`: the 90th percentile of those that did not fail, of this target. It is absent until 50 have
    /// been answered since it was last told.
    ///
    /// What fails fast is no sign of health, and so what fails is left out.
    pub fn latency(&self, target: Duration) -> Latency {
        Latency {
            traffic: self.clone(),
            target,
            times: NewTimes::since(self.took(), ENOUGH),
        }
    }

    /// The signal `in flight`: the most requests that were under way at once since it was last read, of so many.
    pub fn in_flight(&self, most: std::num::NonZeroU32) -> InFlight {
        let traffic = self.clone();
        InFlight { traffic, most }
    }

    /// The signal `failures`: the share of requests that failed. It is absent until 50 have ended since it was last told,
    /// so that one failure of two says nothing.
    pub fn failures(&self) -> Failures {
        Failures {
            traffic: self.clone(),
            counted: self.ended(),
        }
    }

    fn took(&self) -> Vec<u64> {
        self.0.took.counts()
    }

    /// How many failed, and how many ended.
    fn ended(&self) -> (u64, u64) {
        let failed = self.0.failed.load(Ordering::Relaxed);
        (failed, self.took().iter().sum::<u64>() + failed)
    }
}

impl fmt::Debug for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traffic")
            .field("in_flight", &self.0.in_flight)
            .finish_non_exhaustive()
    }
}

/// A request that is under way. A request that is dropped without an answer, as when its client is gone, counts as
/// neither answered nor failed.
#[derive(Debug)]
pub struct Passage {
    counts: Arc<Counts>,
    began: Instant,
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counts").finish_non_exhaustive()
    }
}

impl Passage {
    /// The request is answered. It stays under way until this is dropped, at the end of its body.
    #[inline]
    pub fn answered(&self) {
        self.took(self.began.elapsed());
    }

    /// The request has failed.
    #[inline]
    pub fn failed(&self) {
        self.counts.failed.fetch_add(1, Ordering::Relaxed);
    }

    fn took(&self, time: Duration) {
        self.counts.took.note(time);
    }
}

impl Drop for Passage {
    #[inline]
    fn drop(&mut self) {
        self.counts.in_flight.fetch_sub(1, Ordering::Relaxed);
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
        let counts = &self.traffic.0;
        let now = counts.in_flight.load(Ordering::Relaxed);
        let peak = counts.peak.swap(now, Ordering::Relaxed);
        Load::of(peak.max(now).into(), self.most.get().into())
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
        let (failed, ended) = self.traffic.ended();
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
            traffic.begin().took(Duration::from_millis(millis));
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
        // A failure in no time makes nothing faster.
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
}
