//! Tells operators what happened.
//!
//! [`diagnostics`](crate::diagnostics) lists the messages and their remedies.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::StoreError;

/// Whether a store works, judged by its last answer. A change is logged once, and not for each
/// request.
#[derive(Debug, Default)]
pub(crate) struct StoreHealth {
    has_failed: AtomicBool,
}

impl StoreHealth {
    pub(crate) fn failed(&self, error: &StoreError) {
        if !self.has_failed.swap(true, Ordering::Relaxed) {
            log_failure(error);
        }
    }

    #[inline]
    pub(crate) fn answered(&self) {
        // The load comes first: a write by every request would be shared by all processors.
        if self.has_failed.load(Ordering::Relaxed) && self.has_failed.swap(false, Ordering::Relaxed)
        {
            log_recovery();
        }
    }
}

#[cfg(feature = "tracing")]
fn log_failure(error: &StoreError) {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        "the rate limiter's store has failed; requests are refused until it answers again"
    );
}

#[cfg(feature = "tracing")]
fn log_recovery() {
    tracing::info!("the rate limiter's store answers again");
}

#[cfg(not(feature = "tracing"))]
fn log_failure(_: &StoreError) {}

#[cfg(not(feature = "tracing"))]
fn log_recovery() {}
