//! The clock by which units end at a node.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use std::sync::Arc;

use tower_ratelimit_core::clock::Clock;
use tower_ratelimit_core::clock::Micros;

/// A clock that never steps back and goes on while the machine is suspended.
///
/// `Instant` may stand still meanwhile, and `SystemTime` does not. So whenever the wall clock gets further
/// ahead of the monotonic clock, the difference is added. This adds too much when the wall clock is set
/// forward: units then end too early at the node, which is safe.
pub(crate) struct NodeClock {
    begun: Instant,
    /// How far the wall clock was ahead of the monotonic one when that was last recorded, plus an offset.
    ahead: AtomicU64,
    /// The time that was added.
    added: AtomicU64,
    /// The latest time that was returned, if a test sets the clock.
    given: Option<(Arc<dyn Clock>, AtomicU64)>,
}

/// The smallest difference that counts: the clocks are read one after the other.
const NOTED: u64 = 1_000;

/// Keeps `ahead` positive: the monotonic clock is ahead of the wall clock where that is set back to 1970.
const OFFSET: u64 = 1 << 62;

impl NodeClock {
    pub(crate) fn new(given: Option<Arc<dyn Clock>>) -> Self {
        let begun = Instant::now();
        Self {
            begun,
            ahead: AtomicU64::new(ahead(0, wall())),
            added: AtomicU64::new(0),
            given: given.map(|clock| (clock, AtomicU64::new(0))),
        }
    }

    /// Returns the time.
    pub(crate) fn now(&self) -> Micros {
        if let Some((clock, latest)) = &self.given {
            let now = clock.now().get();
            return Micros::new(latest.fetch_max(now, Ordering::Relaxed).max(now));
        }
        // The wall clock is read first: if the thread stops in between, time passes too quickly, which is
        // safe.
        let wall = wall();
        let elapsed = self.begun.elapsed();
        self.at(Micros::from(elapsed).get(), wall)
    }

    fn at(&self, elapsed: u64, wall: u64) -> Micros {
        let ahead = ahead(elapsed, wall);
        let before = self.ahead.load(Ordering::Acquire);
        if ahead.abs_diff(before) > NOTED {
            // Added before it is recorded: a thread that reads in between adds it again, and is not behind.
            self.added
                .fetch_add(ahead.saturating_sub(before), Ordering::AcqRel);
            self.ahead.store(ahead, Ordering::Release);
        }
        let added = self.added.load(Ordering::Acquire);
        // Never zero, which is the end of units that were never held.
        Micros::new(elapsed.saturating_add(added).saturating_add(1))
    }
}

fn wall() -> u64 {
    Micros::from_system_time(SystemTime::now()).get()
}

fn ahead(elapsed: u64, wall: u64) -> u64 {
    (OFFSET + wall.min(OFFSET / 2)).saturating_sub(elapsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> NodeClock {
        let clock = NodeClock::new(None);
        clock.ahead.store(ahead(0, WALL), Ordering::Relaxed);
        clock
    }

    const WALL: u64 = 1_790_000_000_000_000;
    const HOUR: u64 = 3_600_000_000;

    #[test]
    fn a_suspension_passes_also_where_the_monotonic_clock_stands_still() {
        let clock = clock();
        let before = clock.at(1_000_000, WALL + 1_000_000).get();
        let after = clock.at(1_000_500, WALL + 1_000_500 + HOUR).get();
        assert_eq!(after - before, HOUR + 500);
    }

    #[test]
    fn a_wall_clock_that_is_set_back_hides_no_suspension_after_it() {
        let clock = clock();
        let before = clock.at(1_000_000, WALL - HOUR).get();
        assert_eq!(before, 1_000_001);
        let after = clock.at(1_000_000, WALL - HOUR + 5_000).get();
        assert_eq!(after - before, 5_000);
    }

    #[test]
    fn the_time_between_two_readings_adds_nothing() {
        let clock = clock();
        for reading in 1..10_000 {
            let jitter = reading % 2 * NOTED;
            let now = clock.at(reading * 10, WALL + reading * 10 + jitter).get();
            assert_eq!(now, reading * 10 + 1);
        }
    }
}
