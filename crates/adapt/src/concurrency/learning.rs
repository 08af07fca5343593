//! How the limit follows latency: a pure rule in whole numbers.

use std::collections::VecDeque;
use std::time::Duration;

/// The bounds of a limit, and what the user knows of the service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) start: u32,
    pub(super) least: u32,
    pub(super) most: u32,
    /// The largest baseline, in microseconds.
    pub(super) healthy: Option<u64>,
}

/// The results of a window of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// When it ended.
    pub(super) now: Duration,
    /// The 90th percentile of the latencies of answered requests, in microseconds; `None` if there are none.
    pub(super) latency: Option<u64>,
    /// The most requests in flight at once.
    pub(super) peak: u32,
    /// Whether a request was refused for lack of a slot.
    pub(super) has_refused: bool,
    /// Whether a tenth of the requests or more were signs of an overload.
    pub(super) is_overloaded: bool,
}

/// The limit during the next window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NextWindow {
    pub(super) limit: u32,
    /// Whether the window measures the baseline, and so counts only requests that begin in it.
    pub(super) is_probe: bool,
}

/// The limit, and the data that it was learnt from.
#[derive(Clone, Debug)]
pub(super) struct Learning {
    bounds: Bounds,
    /// In thousandths, so that small steps add up.
    limit: u64,
    /// The limit before it fell, in thousandths.
    before: Option<u64>,
    is_probing: bool,
    probed: Duration,
    /// The last readings.
    recent: VecDeque<u64>,
    /// The readings of calm windows, with their moments, from which the baseline is learnt.
    calm: VecDeque<(Duration, u64)>,
}

/// The number of readings whose median the limit follows.
const RECENT: usize = 5;

/// The largest ratio of the latency to its baseline, in thousandths.
const TOLERANCE: u64 = 1_500;

/// The limit rises by a fifth of the way in one window. It falls by half of the way.
const SLOWLY: u64 = 5;

/// The largest ratio of the limit to the most requests that were in flight.
const OF_PEAK: u64 = 5;

/// How long a limit that refuses requests goes without a probe.
const PROBE_EACH: Duration = Duration::from_secs(30);

/// How long a calm reading counts.
const KEPT: Duration = Duration::from_secs(60);

/// The number of calm readings that count however old they are: a single one may be luck.
const ALWAYS_KEPT: usize = 3;

/// More than are read in [`KEPT`].
const MOST_KEPT: usize = 64;

impl Learning {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            limit: u64::from(bounds.start) * 1_000,
            before: None,
            is_probing: false,
            probed: Duration::ZERO,
            recent: VecDeque::new(),
            calm: VecDeque::new(),
        }
    }

    /// Learns from a window, and returns the limit during the next. While it `is_frozen`, the baseline does
    /// not change.
    pub(super) fn step(&mut self, window: &Window, is_frozen: bool) -> NextWindow {
        let is_calm = u64::from(window.peak) * 2_000 <= self.limit;
        let is_calm_enough = is_calm || self.is_nearly_calm(window);
        if let Some(latency) = window.latency
            && is_calm_enough
            && !is_frozen
        {
            self.learn(window.now, latency);
        }
        if self.is_probing {
            self.is_probing = false;
            self.probed = window.now;
            return self.held();
        }
        if let Some(latency) = window.latency {
            push(&mut self.recent, latency, RECENT);
        }
        // Few requests at once prove nothing about a limit.
        if !is_calm {
            self.follow(window);
        }
        let is_due = window.now.saturating_sub(self.probed) >= PROBE_EACH || self.calm.is_empty();
        let can_measure = window.has_refused && !is_frozen && self.recent.len() >= ALWAYS_KEPT;
        self.is_probing = is_due && can_measure && self.limit >= 2_000;
        self.held()
    }

    /// Returns the limit that holds now.
    pub(super) fn held(&self) -> NextWindow {
        let limit = u32::try_from(self.limit / 1_000).unwrap_or(u32::MAX);
        // Half of the requests, so that most are served while the baseline is measured.
        let limit = if self.is_probing { limit / 2 } else { limit };
        NextWindow {
            limit: limit.max(self.bounds.least).max(1),
            is_probe: self.is_probing,
        }
    }

    /// Returns the latency of requests that do not wait for each other, in microseconds, or `None` if it is
    /// not known yet.
    pub(super) fn baseline(&self) -> Option<u64> {
        // Before the first calm window, the fastest of all.
        let known = match quantile(self.calm.iter().map(|(_, latency)| *latency), 4) {
            Some(calm) => calm,
            None => self.recent.iter().copied().min()?,
        };
        Some(self.bounds.healthy.map_or(known, |cap| known.min(cap)))
    }

    /// Returns whether requests hardly wait for each other, though more than half of the limit is used.
    fn is_nearly_calm(&self, window: &Window) -> bool {
        // A probe begins with more in flight, but these do not count in it.
        let is_probed = self.is_probing || self.limit < 2_000;
        // At a quarter of the limit requests are no faster: they are slow for another reason.
        let has_fallen = self.before.is_some_and(|before| self.limit * 4 <= before);
        // Waiting makes nothing faster. Before the first measurement, this says little.
        let baseline = self.baseline().filter(|_| !self.calm.is_empty());
        let both = baseline.zip(window.latency);
        let is_faster = both.is_some_and(|(baseline, latency)| latency < baseline);
        is_probed || has_fallen || is_faster
    }

    fn learn(&mut self, now: Duration, latency: u64) {
        push(&mut self.calm, (now, latency), MOST_KEPT);
        while self.calm.len() > ALWAYS_KEPT {
            match self.calm.front() {
                Some((then, _)) if now.saturating_sub(*then) > KEPT => self.calm.pop_front(),
                _ => break,
            };
        }
    }

    fn follow(&mut self, window: &Window) {
        let next = if window.is_overloaded {
            self.limit * 9 / 10
        } else {
            let latency = quantile(self.recent.iter().copied(), 2);
            let Some((baseline, latency)) = self.baseline().zip(latency) else {
                return;
            };
            let gradient = (baseline * TOLERANCE / latency.max(1)).clamp(500, 2_000);
            // The number of requests that may wait beyond that: a few for a small limit, and a smaller part
            // of a large one.
            let room = (self.limit * 1_000).isqrt() / 2;
            let target = self.limit * gradient / 1_000 + room;
            let next = if target < self.limit {
                self.limit.midpoint(target)
            } else {
                self.limit + (target - self.limit) / SLOWLY
            };
            match self.before {
                // It returns to the previous limit by halves, as in BIC (Xu, Harfoush and Rhee, 2004).
                Some(before) if gradient >= 1_000 && before > self.limit => {
                    next.max(self.limit.midpoint(before))
                }
                _ => next,
            }
        };
        self.set(next, window.peak);
    }

    fn set(&mut self, limit: u64, peak: u32) {
        let bounds = &self.bounds;
        let of_peak = (u64::from(peak) * OF_PEAK).max(bounds.start.into());
        let most = of_peak.min(bounds.most.into()) * 1_000;
        let limit = limit.clamp(u64::from(bounds.least) * 1_000, most.max(1_000));
        if limit < self.limit {
            self.before = self.before.or(Some(self.limit));
        } else if self.before.is_some_and(|before| limit >= before) {
            self.before = None;
        }
        self.limit = limit;
    }
}

fn push<T>(readings: &mut VecDeque<T>, reading: T, most: usize) {
    if readings.len() == most {
        readings.pop_front();
    }
    readings.push_back(reading);
}

/// Returns the reading below which one part in `parts` of all readings lies: the median for 2.
fn quantile(readings: impl Iterator<Item = u64>, parts: usize) -> Option<u64> {
    let mut sorted: Vec<_> = readings.collect();
    sorted.sort_unstable();
    sorted.get(sorted.len() / parts).copied()
}
