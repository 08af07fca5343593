//! How the limit follows latency: a pure rule in whole numbers.

use std::collections::VecDeque;
use std::time::Duration;

/// The bounds of a limit, and what is known of the service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) start: u32,
    pub(super) least: u32,
    pub(super) most: u32,
    /// The most that the baseline can be, in microseconds.
    pub(super) healthy: Option<u64>,
}

/// What a window of time has shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// When it ended.
    pub(super) now: Duration,
    /// The 90th percentile of the requests that were answered, in microseconds; `None` of none.
    pub(super) latency: Option<u64>,
    /// The most requests in flight at once.
    pub(super) peak: u32,
    /// Whether a request was refused for want of a slot.
    pub(super) has_refused: bool,
    /// Whether a tenth of the requests or more told of an overload.
    pub(super) is_overloaded: bool,
}

/// What holds during the next window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NextWindow {
    pub(super) limit: u32,
    /// Whether the window measures the baseline, and so counts only requests that begin in it.
    pub(super) is_probe: bool,
}

/// The limit and what it was learnt from.
#[derive(Clone, Debug)]
pub(super) struct Learning {
    bounds: Bounds,
    /// In thousandths, so that small steps add up.
    limit: u64,
    /// Where the limit was before it fell, in thousandths.
    before: Option<u64>,
    is_probing: bool,
    probed: Duration,
    /// The last readings.
    recent: VecDeque<u64>,
    /// Those of calm windows, with their moments: what the baseline is learnt from.
    calm: VecDeque<(Duration, u64)>,
}

/// The median of so many readings is what the limit follows.
const RECENT: usize = 5;

/// How many times its baseline the latency may be, in thousandths.
const TOLERANCE: u64 = 1_500;

/// The part of its way up that the limit goes in one window: a fifth. Down it goes half.
const SLOWLY: u64 = 5;

/// The limit is at most so many times the most that was in flight.
const OF_PEAK: u64 = 5;

/// How long a limit that refuses requests goes without a probe.
const PROBE_EACH: Duration = Duration::from_secs(30);

/// How long a calm reading counts.
const KEPT: Duration = Duration::from_secs(60);

/// How many calm readings count, however old they are: one alone may be luck.
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

    /// Learns from a window, and says what holds during the next. While it `is_frozen`, the baseline learns nothing.
    pub(super) fn step(&mut self, window: &Window, is_frozen: bool) -> NextWindow {
        let is_calm = u64::from(window.peak) * 2_000 <= self.limit;
        let is_calm_enough = is_calm || self.is_as_good_as_calm(window);
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
        // Few requests at once prove nothing of a limit.
        if !is_calm {
            self.follow(window);
        }
        let is_due = window.now.saturating_sub(self.probed) >= PROBE_EACH || self.calm.is_empty();
        let can_measure = window.has_refused && !is_frozen && self.recent.len() >= ALWAYS_KEPT;
        self.is_probing = is_due && can_measure && self.limit >= 2_000;
        self.held()
    }

    /// The limit that holds now.
    pub(super) fn held(&self) -> NextWindow {
        let limit = u32::try_from(self.limit / 1_000).unwrap_or(u32::MAX);
        // Half of the requests, so that most are served while the baseline is measured.
        let limit = if self.is_probing { limit / 2 } else { limit };
        NextWindow {
            limit: limit.max(self.bounds.least).max(1),
            is_probe: self.is_probing,
        }
    }

    /// How long requests take when none waits for another, in microseconds; `None` if that is not known yet.
    pub(super) fn baseline(&self) -> Option<u64> {
        // Before the first calm window, the fastest of all.
        let known = match quantile(self.calm.iter().map(|(_, latency)| *latency), 4) {
            Some(calm) => calm,
            None => self.recent.iter().copied().min()?,
        };
        Some(self.bounds.healthy.map_or(known, |cap| known.min(cap)))
    }

    /// Whether requests hardly wait for each other, though more than half of the limit is used.
    fn is_as_good_as_calm(&self, window: &Window) -> bool {
        // A probe begins with more in flight, but none of these counts in it.
        let is_probed = self.is_probing || self.limit < 2_000;
        // A quarter of the requests is no faster: they are slow for another reason.
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
            // What may wait beyond that: a few of a small limit, and a smaller part of a large one.
            let room = (self.limit * 1_000).isqrt() / 2;
            let target = self.limit * gradient / 1_000 + room;
            let next = if target < self.limit {
                self.limit.midpoint(target)
            } else {
                self.limit + (target - self.limit) / SLOWLY
            };
            match self.before {
                // Back to where it was by halves, as BIC does (Xu, Harfoush and Rhee, 2004).
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

/// The reading that one part in so many is below: the median for 2.
fn quantile(readings: impl Iterator<Item = u64>, parts: usize) -> Option<u64> {
    let mut sorted: Vec<_> = readings.collect();
    sorted.sort_unstable();
    sorted.get(sorted.len() / parts).copied()
}
