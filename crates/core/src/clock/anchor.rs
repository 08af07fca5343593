use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use super::Micros;

/// The zero of a monotonic clock, as a moment of the wall clock.
#[derive(Debug)]
pub(super) struct Anchor {
    offset: AtomicU64,
}

const WATCH_EVERY: Duration = Duration::from_secs(1);
const TOLERATED_LAG: Micros = Micros::new(10_000);

impl Anchor {
    /// Anchors a monotonic clock that is at its zero now.
    pub(super) fn now() -> Self {
        Self::at_zero(Micros::from_system_time(SystemTime::now()))
    }

    fn at_zero(wall: Micros) -> Self {
        Self {
            offset: AtomicU64::new(wall.get()),
        }
    }

    /// Returns the time when the monotonic clock shows `elapsed`.
    #[inline]
    pub(super) fn at(&self, elapsed: Micros) -> Micros {
        Micros::new(self.offset.load(Ordering::Relaxed)).saturating_add(elapsed)
    }

    /// Starts the thread that moves the clock forward after a pause of the machine.
    ///
    /// Only that thread calls `anchor`, because its caller may still be making the anchor.
    pub(super) fn watch(anchor: fn() -> &'static Self, elapsed: fn() -> Micros) {
        let watch = move || {
            loop {
                thread::sleep(WATCH_EVERY);
                let wall = Micros::from_system_time(SystemTime::now());
                anchor().catch_up(wall, elapsed());
            }
        };
        // Without this thread the clock works, but does not catch up after a pause.
        let _ = thread::Builder::new()
            .name("ratelimit-clock".into())
            .spawn(watch);
    }

    /// Moves forward to `wall` if the clock is further behind than the tolerance.
    ///
    /// `elapsed` must be read after `wall`: a delay of the thread between the two reads then makes
    /// the lag look smaller, never larger. In the other order, each delay would push the clock
    /// ahead for good.
    fn catch_up(&self, wall: Micros, elapsed: Micros) {
        let lag = wall.saturating_sub(self.at(elapsed));
        if lag > TOLERATED_LAG {
            let offset = wall.saturating_sub(elapsed);
            self.offset.fetch_max(offset.get(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL: Micros = Micros::from_secs(1_800_000_000);

    fn after(seconds: u64) -> Micros {
        WALL.saturating_add(Micros::from_secs(seconds))
    }

    #[test]
    fn it_shows_the_wall_time_of_its_start_and_runs_with_the_monotonic_clock() {
        let clock = Anchor::at_zero(WALL);
        assert_eq!(clock.at(Micros::ZERO), WALL);
        assert_eq!(clock.at(Micros::from_secs(1)), after(1));
    }

    #[test]
    fn a_pause_of_the_machine_is_caught_up() {
        let clock = Anchor::at_zero(WALL);
        // An hour on the wall, and one second on a monotonic clock that slept through it.
        clock.catch_up(after(3600), Micros::from_secs(1));
        assert_eq!(clock.at(Micros::from_secs(1)), after(3600));
        assert_eq!(clock.at(Micros::from_secs(2)), after(3601));
    }

    #[test]
    fn a_wall_clock_that_steps_back_is_not_followed() {
        let clock = Anchor::at_zero(WALL);
        clock.catch_up(after(0), Micros::from_secs(10));
        assert_eq!(clock.at(Micros::from_secs(10)), after(10));
    }

    #[test]
    fn a_lag_that_two_readings_can_explain_moves_nothing() {
        let clock = Anchor::at_zero(WALL);
        let wall = after(1).saturating_add(TOLERATED_LAG);
        clock.catch_up(wall, Micros::from_secs(1));
        assert_eq!(clock.at(Micros::from_secs(1)), after(1));
    }
}
