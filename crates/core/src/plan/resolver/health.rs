//! Logs that lookups fail, and that they work again.

use std::error::Error;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::known::after;
use super::lock::lock;

/// Whether lookups work. A change is logged, and at most one failure a minute.
#[derive(Debug, Default)]
pub(super) struct Health(Mutex<FailureLog>);

#[derive(Debug, Default)]
struct FailureLog {
    has_failed: bool,
    quiet_until: Option<Instant>,
}

const QUIET: Duration = Duration::from_secs(60);

impl Health {
    pub(super) fn failed(&self, error: &(dyn Error + 'static)) {
        let now = Instant::now();
        let mut state = lock(&self.0);
        let is_logged = state.has_failed || state.quiet_until.is_some_and(|until| now < until);
        if !is_logged {
            state.has_failed = true;
            state.quiet_until = Some(after(now, QUIET));
            drop(state);
            log_failure(error);
        }
    }

    pub(super) fn answered(&self) {
        let mut state = lock(&self.0);
        if state.has_failed {
            state.has_failed = false;
            drop(state);
            log_recovery();
        }
    }
}

#[cfg(feature = "tracing")]
fn log_failure(error: &(dyn Error + 'static)) {
    tracing::warn!(
        error,
        "a lookup of the rate limiter's resolver has failed; keys keep their last known plans, and others have the default plan"
    );
}

#[cfg(feature = "tracing")]
fn log_recovery() {
    tracing::info!("the rate limiter's resolver finds plans again");
}

#[cfg(not(feature = "tracing"))]
fn log_failure(_: &(dyn Error + 'static)) {}

#[cfg(not(feature = "tracing"))]
fn log_recovery() {}
