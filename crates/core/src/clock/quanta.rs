use std::sync::LazyLock;

use super::anchor::Anchor;
use super::{Clock, Micros};

/// The cycle counter of the processor, set to the Unix epoch when the process first uses it:
/// cheaper to read than [`SystemClock`](super::SystemClock).
///
/// # When not to use it
///
/// The counters of all processors have to agree. On some machines, such as a few virtual ones, they
/// do not. A thread that moves to another processor then sees time jump, and requests are refused
/// or admitted at random.
///
/// The clock is calibrated once at the start, for some milliseconds, and may drift from the wall
/// clock by parts in a million. If `quanta` finds no counter that it trusts, it reads the system
/// clock itself.
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use tower_ratelimit::clock::QuantaClock;
/// use tower_ratelimit::{Limiter, MemoryStore, Policy, TokenBucket};
///
/// let limiter = Limiter::builder()
///     .policy(Policy::new("jobs", TokenBucket::per_second(1_000)))
///     .store(MemoryStore::new().clock(QuantaClock::new()))
///     .build_local()?;
/// assert!(limiter.check("ann", 1).now().is_allowed());
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct QuantaClock(&'static ProcessClock);

#[derive(Debug)]
struct ProcessClock {
    anchor: Anchor,
    clock: quanta::Clock,
    zero: u64,
    /// Microseconds in 2^64 ticks of the counter. A tick is never longer than a microsecond.
    rate: u64,
}

static CLOCK: LazyLock<ProcessClock> = LazyLock::new(|| {
    Anchor::watch(|| &CLOCK.anchor, || CLOCK.elapsed());
    let clock = quanta::Clock::new();
    let nanos = clock.delta_as_nanos(0, 1 << TICKS);
    ProcessClock {
        anchor: Anchor::now(),
        zero: clock.raw(),
        rate: u64::try_from((u128::from(nanos) << (u64::BITS - TICKS)) / 1_000).unwrap_or(u64::MAX),
        clock,
    }
});

/// The rate is computed from 2^40 ticks, which errs by less than a second in a century.
const TICKS: u32 = 40;

impl ProcessClock {
    #[inline]
    fn elapsed(&self) -> Micros {
        let micros = |ticks: u64| ((u128::from(ticks) * u128::from(self.rate)) >> u64::BITS) as u64;
        let ticks = self.clock.raw().saturating_sub(self.zero);
        Micros::new(micros(ticks))
    }
}

impl QuantaClock {
    /// Returns the one clock of this kind in the process. The first call calibrates it.
    pub fn new() -> Self {
        Self(&CLOCK)
    }
}

impl Default for QuantaClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for QuantaClock {
    #[inline]
    fn now(&self) -> Micros {
        self.0.anchor.at(self.0.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    #[test]
    fn it_agrees_with_the_system_clock() {
        let (quanta, system) = (QuantaClock::new(), SystemClock::new());
        let before = system.now();
        let now = quanta.now();
        assert!(now.saturating_sub(before) < Micros::from_secs(60));
        assert!(before.saturating_sub(now) < Micros::from_secs(60));
    }
}
