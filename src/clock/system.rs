use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::{Clock, Micros};

/// The machine's monotonic clock, set to the Unix epoch when the process first uses it.
///
/// It never runs backwards and never follows a step of the wall clock back. On some systems a
/// monotonic clock stands still while the machine sleeps or is paused; a background thread of
/// the process compares it with the wall clock once a second and moves it **forward** when it
/// has fallen more than 10 ms behind. A request never pays for that. Where no thread can be
/// started, the clock works without catching up.
///
/// Windows that are aligned to the epoch therefore agree between machines as well as the
/// machines' own clocks do.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock(());

static SHARED: LazyLock<Anchor> = LazyLock::new(|| {
    watch();
    Anchor::new(Micros::from_system_time(SystemTime::now()), Instant::now())
});

const WATCH_EVERY: Duration = Duration::from_secs(1);
const TOLERATED_LAG: Micros = Micros::new(10_000);

impl SystemClock {
    /// The process's one system clock; the first call sets it.
    pub fn new() -> Self {
        LazyLock::force(&SHARED);
        Self(())
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Micros {
        SHARED.at(Instant::now())
    }
}

fn watch() {
    let watch = || {
        loop {
            thread::sleep(WATCH_EVERY);
            let wall = Micros::from_system_time(SystemTime::now());
            SHARED.catch_up(wall, Instant::now());
        }
    };
    // Without this thread the clock still works; it only cannot make up for a pause.
    let _ = thread::Builder::new()
        .name("ratelimit-clock".into())
        .spawn(watch);
}

/// Where the monotonic clock's zero lies on the wall clock.
#[derive(Debug)]
struct Anchor {
    zero: Instant,
    offset: AtomicU64,
}

impl Anchor {
    fn new(wall: Micros, zero: Instant) -> Self {
        Self {
            zero,
            offset: AtomicU64::new(wall.get()),
        }
    }

    fn at(&self, instant: Instant) -> Micros {
        let offset = Micros::new(self.offset.load(Ordering::Relaxed));
        offset.saturating_add(self.elapsed(instant))
    }

    /// Moves forward to `wall` if the clock is behind it by more than is tolerated.
    ///
    /// `instant` must be read after `wall`: a thread that is held up between the two then sees
    /// less lag than there is, never more. The other way round, each hold-up would push the
    /// clock ahead for good.
    fn catch_up(&self, wall: Micros, instant: Instant) {
        let lag = wall.saturating_sub(self.at(instant));
        if lag > TOLERATED_LAG {
            self.offset.fetch_max(
                wall.saturating_sub(self.elapsed(instant)).get(),
                Ordering::Relaxed,
            );
        }
    }

    fn elapsed(&self, instant: Instant) -> Micros {
        Micros::from(instant.saturating_duration_since(self.zero))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL: Micros = Micros::from_secs(1_800_000_000);
    const SECOND: Duration = Duration::from_secs(1);

    fn anchor() -> (Anchor, Instant) {
        let zero = Instant::now();
        (Anchor::new(WALL, zero), zero)
    }

    fn after(seconds: u64) -> Micros {
        WALL.saturating_add(Micros::from_secs(seconds))
    }

    #[test]
    fn it_shows_the_wall_time_of_its_start_and_runs_with_the_monotonic_clock() {
        let (clock, zero) = anchor();
        assert_eq!(clock.at(zero), WALL);
        assert_eq!(clock.at(zero + SECOND), after(1));
    }

    #[test]
    fn a_pause_of_the_machine_is_caught_up() {
        let (clock, zero) = anchor();
        // An hour on the wall, one second on a monotonic clock that slept through it.
        clock.catch_up(after(3600), zero + SECOND);
        assert_eq!(clock.at(zero + SECOND), after(3600));
        assert_eq!(clock.at(zero + 2 * SECOND), after(3601));
    }

    #[test]
    fn a_wall_clock_that_steps_back_is_not_followed() {
        let (clock, zero) = anchor();
        clock.catch_up(after(0), zero + 10 * SECOND);
        assert_eq!(clock.at(zero + 10 * SECOND), after(10));
    }

    #[test]
    fn a_lag_that_two_readings_can_explain_moves_nothing() {
        let (clock, zero) = anchor();
        clock.catch_up(after(1).saturating_add(TOLERATED_LAG), zero + SECOND);
        assert_eq!(clock.at(zero + SECOND), after(1));
    }

    #[test]
    fn the_process_wide_clock_is_near_the_wall_clock_and_never_steps_back() {
        let clock = SystemClock::new();
        let mut last = clock.now();
        let wall = Micros::from_system_time(SystemTime::now());
        assert!(wall.saturating_sub(last) < Micros::from_secs(60));
        assert!(last.saturating_sub(wall) < Micros::from_secs(60));
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }
}
