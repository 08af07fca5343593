use std::sync::atomic::{AtomicBool, Ordering};

use super::store::{StoreEvent, observe};
use crate::error::StoreError;

/// Whether a store answers, judged by its last answer. A change is reported once, and not for each request.
#[derive(Debug, Default)]
pub(crate) struct StoreHealth {
    has_failed: AtomicBool,
}

impl StoreHealth {
    pub(crate) fn failed(&self, error: &StoreError) {
        if !self.has_failed.swap(true, Ordering::Relaxed) {
            observe(&StoreEvent::Failed { error });
        }
    }

    #[inline]
    pub(crate) fn answered(&self) {
        // The load comes first: a write by every request would be shared by all processors.
        if self.has_failed.load(Ordering::Relaxed) && self.has_failed.swap(false, Ordering::Relaxed)
        {
            observe(&StoreEvent::Recovered);
        }
    }
}
