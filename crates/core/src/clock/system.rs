use std::sync::LazyLock;
use std::time::Instant;

use super::anchor::Anchor;
use super::{Clock, Micros};

/// The monotonic clock of the machine, set to the Unix epoch when the process first uses it.
///
/// It never runs backwards and never follows a step back of the wall clock. On some systems a
/// monotonic clock stands still while the machine sleeps or is paused. So a background thread
/// compares it with the wall clock once a second, and moves it **forward** when it is more than
/// 10 ms behind. Requests never pay for that. If no thread can be started, the clock works without
/// catching up.
///
/// Windows that are aligned to the epoch therefore agree between machines as well as the clocks of the
/// machines do. If the wall clock is wrongly ahead, at the start or later, this clock stays ahead until the
/// process restarts.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock(&'static ProcessClock);

#[derive(Debug)]
struct ProcessClock {
    anchor: Anchor,
    zero: Instant,
}

static CLOCK: LazyLock<ProcessClock> = LazyLock::new(|| {
    Anchor::watch(|| &CLOCK.anchor, || CLOCK.elapsed());
    ProcessClock {
        anchor: Anchor::now(),
        zero: Instant::now(),
    }
});

impl ProcessClock {
    #[inline]
    fn elapsed(&self) -> Micros {
        Micros::from(self.zero.elapsed())
    }
}

impl SystemClock {
    /// Returns the one system clock of the process. The first call sets it.
    pub fn new() -> Self {
        Self(&CLOCK)
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Micros {
        self.0.anchor.at(self.0.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn it_is_near_the_wall_clock_and_never_steps_back() {
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
