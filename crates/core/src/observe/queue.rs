//! How many requests wait for their turn, and how long.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::recent::{Longest, Recent};
use super::snapshot::QueueStats;

/// The requests that wait under a policy.
pub(super) struct Queue {
    length: AtomicU64,
    longest: Recent<Longest>,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            length: AtomicU64::new(0),
            longest: Recent::new(),
        }
    }

    pub(super) fn enter(&self) {
        self.length.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn leave(&self) {
        self.length.fetch_sub(1, Ordering::Relaxed);
    }

    /// Records the wait of a request.
    pub(super) fn note(&self, waited: Duration, now: Instant) {
        self.longest.now(now).note(waited);
    }

    pub(super) fn stats(&self, now: Instant) -> QueueStats {
        let longest = self.longest.last(now).map(Longest::get).max();
        QueueStats {
            length: self.length.load(Ordering::Relaxed),
            longest_wait: longest.unwrap_or_default(),
        }
    }
}
