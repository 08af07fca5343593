//! The counts that all clones and all requests share.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::learning::{Bounds, Learning, NextWindow, Window};
use super::partitions::Partitions;
use tower_ratelimit::__internal::Times;
use tower_ratelimit::factor::{Factor, FactorCell};

/// The shortest window.
const LEAST_WINDOW: Duration = Duration::from_secs(1);

/// The least number of requests that end in a window.
const ENOUGH: u64 = 50;

/// How long a window with too few requests continues before it is checked again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The counts. All moments are times since the limit was created.
pub(super) struct SharedCounts {
    limit: AtomicU32,
    in_flight: AtomicU32,
    /// The most requests at once in this window.
    peak: AtomicU32,
    refused: AtomicU64,
    overloaded: AtomicU64,
    took: Times,
    pub(super) partitions: Partitions,
    /// Increases when a probe begins and when it ends. A request counts in the epoch in which it began.
    epoch: AtomicU32,
    /// The earliest end of the window, in microseconds.
    window_ends: AtomicU64,
    learned: Mutex<Learned>,
    freezing: Vec<FactorCell>,
}

struct Learned {
    learning: Learning,
    /// The counts at the beginning of the window.
    took: Vec<u64>,
    overloaded: u64,
    refused: u64,
}

/// How a request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It was answered, after this time.
    Answered(Duration),
    /// It was a sign of an overload.
    Overloaded,
}

impl SharedCounts {
    pub(super) fn new(bounds: Bounds, partitions: Partitions, freezing: Vec<FactorCell>) -> Self {
        let learning = Learning::new(bounds);
        let took = Times::default();
        Self {
            limit: AtomicU32::new(learning.held().limit),
            in_flight: AtomicU32::new(0),
            peak: AtomicU32::new(0),
            refused: AtomicU64::new(0),
            overloaded: AtomicU64::new(0),
            partitions,
            epoch: AtomicU32::new(0),
            window_ends: AtomicU64::new(micros(LEAST_WINDOW)),
            learned: Mutex::new(Learned {
                learning,
                took: took.counts(),
                overloaded: 0,
                refused: 0,
            }),
            took,
            freezing,
        }
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Relaxed)
    }

    pub(super) fn baseline(&self) -> Option<Duration> {
        let baseline = self.lock().learning.baseline();
        baseline.map(Duration::from_micros)
    }

    /// Takes a slot, if one is free.
    pub(super) fn enter(&self, partition: Option<usize>) -> bool {
        let limit = self.limit();
        let is_within_its_share = self.partitions.enter(partition, limit);
        let taken =
            self.in_flight
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |in_flight| {
                    (in_flight < limit || is_within_its_share).then(|| in_flight.saturating_add(1))
                });
        let Ok(before) = taken else {
            self.partitions.leave(partition);
            self.refused.fetch_add(1, Ordering::Relaxed);
            return false;
        };
        let now = before.saturating_add(1);
        if now > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(now, Ordering::Relaxed);
        }
        true
    }

    /// Frees a slot.
    pub(super) fn leave(&self, partition: Option<usize>) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.partitions.leave(partition);
    }

    /// Records how a request of this epoch has ended, and ends the window if it is time.
    pub(super) fn note(&self, ended: Ended, epoch: u32, now: Duration) {
        if epoch == self.epoch() {
            match ended {
                Ended::Answered(took) => self.took.note(took),
                Ended::Overloaded => {
                    self.overloaded.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        if micros(now) >= self.window_ends.load(Ordering::Relaxed) {
            self.end_window(now);
        }
    }

    /// Ends the window. One of the requests that end at this moment does so; the others continue.
    #[cold]
    fn end_window(&self, now: Duration) {
        let Ok(mut learned) = self.learned.try_lock() else {
            return;
        };
        if micros(now) < self.window_ends.load(Ordering::Relaxed) {
            return;
        }
        let counted = self.took.counts();
        let both = counted.iter().zip(&learned.took);
        let new: Vec<u64> = both.map(|(now, then)| now.saturating_sub(*then)).collect();
        let answered: u64 = new.iter().sum();
        let all_overloaded = self.overloaded.load(Ordering::Relaxed);
        let overloaded = all_overloaded.saturating_sub(learned.overloaded);
        if answered + overloaded < ENOUGH {
            self.next_window(now + LOOK_AGAIN);
            return;
        }
        let refused = self.refused();
        let latency = Times::one_in(10, &new).map(micros);
        let peak = self.peak.swap(self.in_flight(), Ordering::Relaxed);
        let window = Window {
            now,
            latency,
            peak,
            has_refused: refused > learned.refused,
            is_overloaded: overloaded * 10 >= answered + overloaded,
        };
        let was_probe = learned.learning.held().is_probe;
        let held = learned.learning.step(&window, self.is_frozen());
        learned.took = counted;
        learned.overloaded = all_overloaded;
        learned.refused = refused;
        self.hold(held, was_probe);
        self.next_window(now + LEAST_WINDOW);
    }

    fn hold(&self, held: NextWindow, was_probe: bool) {
        self.limit.store(held.limit, Ordering::Relaxed);
        if held.is_probe != was_probe {
            self.epoch.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn next_window(&self, ends: Duration) {
        self.window_ends.store(micros(ends), Ordering::Relaxed);
    }

    fn is_frozen(&self) -> bool {
        self.freezing
            .iter()
            .any(|factor| factor.get() < Factor::ONE)
    }

    fn lock(&self) -> MutexGuard<'_, Learned> {
        self.learned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
