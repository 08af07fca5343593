use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use super::{Clock, Micros};

/// A clock for tests, which stands still until it is moved.
///
/// Clones are the same clock. It starts on 2024-01-01 at midnight, UTC, where every window of a
/// second, a minute, an hour or a day begins.
///
/// ```
/// use std::time::Duration;
/// use tower_ratelimit::{FixedWindow, Limiter, ManualClock, MemoryStore, Policy};
///
/// let clock = ManualClock::new();
/// let limiter = Limiter::builder()
///     .policy(Policy::new("hourly", FixedWindow::per_hour(1)))
///     .store(MemoryStore::new().clock(clock.clone()))
///     .build()?;
///
/// assert!(limiter.check_now("ann", 1).is_allowed());
/// assert!(!limiter.check_now("ann", 1).is_allowed());
/// clock.advance(Duration::from_secs(3600));
/// assert!(limiter.check_now("ann", 1).is_allowed());
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock {
    now: Arc<AtomicU64>,
}

const START: Micros = Micros::from_secs(1_704_067_200);

impl ManualClock {
    /// Makes a clock that shows 2024-01-01, midnight, UTC.
    pub fn new() -> Self {
        Self::at(START)
    }

    /// Makes a clock that shows this moment.
    pub fn at(now: Micros) -> Self {
        Self {
            now: Arc::new(AtomicU64::new(now.get())),
        }
    }

    /// Moves the clock forward. Less than a microsecond moves nothing.
    pub fn advance(&self, by: Duration) {
        let by = Micros::from(by).get();
        let step = |now: u64| Some(now.saturating_add(by));
        // The closure never declines, so the result is always `Ok`.
        let _ = self
            .now
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, step);
    }

    /// Sets the clock, forward or back.
    pub fn set(&self, now: SystemTime) {
        self.set_micros(Micros::from_system_time(now));
    }

    /// Sets the clock to a moment in microseconds since the Unix epoch, forward or back.
    pub fn set_micros(&self, now: Micros) {
        self.now.store(now.get(), Ordering::SeqCst);
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Micros {
        Micros::new(self.now.load(Ordering::SeqCst))
    }
}
