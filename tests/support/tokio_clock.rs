//! Tokio's clock for a store, so that the store and the timers agree while the clock is paused.

use std::time::Duration;

use tokio::time::Instant;
use tower_ratelimit::Micros;
use tower_ratelimit::clock::Clock;

/// 2024-01-01, and as much more as tokio's clock has moved since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokioClock(Instant);

impl TokioClock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Micros {
        const START: Duration = Duration::from_secs(1_704_067_200);
        Micros::from(START + self.0.elapsed())
    }
}
