//! Tokio's clock for a store, so that the store and the timers agree while the clock is paused.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;
use tower_ratelimit::Micros;
use tower_ratelimit::clock::Clock;

/// 2024-01-01, and as much more as the clock of the test's runtime has moved since, whoever asks: a store may ask in a runtime
/// of its own.
#[derive(Clone, Debug)]
pub(crate) struct TokioClock {
    start: Instant,
    /// `None` if a test has none.
    runtime: Option<Handle>,
}

impl TokioClock {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            runtime: Handle::try_current().ok(),
        }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Micros {
        const START: Duration = Duration::from_secs(1_704_067_200);
        let _of_the_test = self.runtime.as_ref().map(Handle::enter);
        Micros::from(START + self.start.elapsed())
    }
}
