//! The new ones among counted times.

use std::time::Duration;

use super::Load;
use tower_ratelimit::__internal::Times;

/// The counts of times at the last reading of a signal.
#[derive(Debug)]
pub(super) struct NewTimes {
    counted: Vec<u64>,
    /// Fewer are not enough for a reading, and count with the next.
    enough: u64,
}

impl NewTimes {
    pub(super) fn since(counted: Vec<u64>, enough: u64) -> Self {
        Self { counted, enough }
    }

    /// Returns the 90th percentile of the new times, as a share of this target.
    pub(super) fn load(&mut self, now: Vec<u64>, target: Duration) -> Option<Load> {
        let both = now.iter().zip(&self.counted);
        let new: Vec<u64> = both.map(|(now, then)| now.saturating_sub(*then)).collect();
        if new.iter().sum::<u64>() < self.enough {
            return None;
        }
        self.counted = now;
        let micros = |time: Duration| u64::try_from(time.as_micros()).ok();
        Load::of(micros(Times::one_in(10, &new)?)?, micros(target)?)
    }
}
