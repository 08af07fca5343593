//! The calls to a store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::recent::Recent;
use super::snapshot::{Latency, StoreStats};
use super::times::Times;

/// Counts the calls to a store, and how long they take.
#[derive(Debug)]
pub struct Calls {
    ended: AtomicU64,
    failures: AtomicU64,
    batched: AtomicU64,
    remembered: AtomicU64,
    failed_renewals: AtomicU64,
    took: Recent<Times>,
    /// The times of all calls since the beginning, for a signal that looks at the new ones.
    all: Times,
}

impl Calls {
    /// Creates counters at zero.
    pub(crate) fn new() -> Self {
        Self {
            ended: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            batched: AtomicU64::new(0),
            remembered: AtomicU64::new(0),
            failed_renewals: AtomicU64::new(0),
            took: Recent::new(),
            all: Times::default(),
        }
    }

    /// Counts the end of a call that began at `since`.
    pub(crate) fn ended(&self, since: Instant, has_failed: bool) {
        let now = Instant::now();
        self.ended.fetch_add(1, Ordering::Relaxed);
        if has_failed {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        let took = now.saturating_duration_since(since);
        self.took.now(now).note(took);
        self.all.note(took);
    }

    /// Returns how many calls took how long, since the beginning.
    pub fn all_times(&self) -> Vec<u64> {
        self.all.counts()
    }

    /// Counts requests that share a call which another request began.
    pub fn batched(&self, requests: usize) {
        self.batched.fetch_add(requests as u64, Ordering::Relaxed);
    }

    /// Counts a request that was denied without a call.
    pub fn remembered(&self) {
        self.remembered.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a call that failed to renew slots.
    pub fn renewal_failed(&self) {
        self.failed_renewals.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds these counts to those of the store.
    pub(crate) fn add_to(&self, stats: &mut StoreStats) {
        stats.calls = self.ended.load(Ordering::Relaxed);
        stats.failures = self.failures.load(Ordering::Relaxed);
        stats.batched = self.batched.load(Ordering::Relaxed);
        stats.remembered_denials = self.remembered.load(Ordering::Relaxed);
        stats.failed_renewals = self.failed_renewals.load(Ordering::Relaxed);
        stats.latency = self.latency();
    }

    fn latency(&self) -> Option<Latency> {
        let mut minutes = self.took.last(Instant::now()).map(Times::counts);
        let mut counts = minutes.next()?;
        for minute in minutes {
            for (count, more) in counts.iter_mut().zip(minute) {
                *count += more;
            }
        }
        let one_in = |number| -> Option<Duration> { Times::one_in(number, &counts) };
        Some(Latency {
            p50: one_in(2)?,
            p99: one_in(100)?,
        })
    }
}
