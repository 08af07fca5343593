use std::panic;
use std::pin::Pin;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep_until};

/// Replaces a time that the platform cannot hold.
const FOR_EVER: Duration = Duration::from_secs(30 * 365 * 86_400);

/// Returns a tokio timer that fires after this time; `None` without a runtime, or without timers in
/// it.
pub(crate) fn timer(time: Duration) -> Option<Pin<Box<Sleep>>> {
    Handle::try_current().ok()?;
    let due = Instant::now() + time.min(FOR_EVER);
    // Without timers in the runtime, tokio panics; it offers no way to ask.
    panic::catch_unwind(|| Box::pin(sleep_until(due))).ok()
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn there_is_none_without_a_runtime_or_without_its_timers() {
        assert!(timer(Duration::ZERO).is_none());
        let without = Builder::new_current_thread().build().unwrap();
        assert!(without.block_on(async { timer(Duration::ZERO) }).is_none());
        let with = Builder::new_current_thread().enable_time().build().unwrap();
        assert!(with.block_on(async { timer(Duration::MAX) }).is_some());
    }
}
