use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// How many operations of a kind are under way, which may outlive the requests that began them.
#[derive(Default)]
pub(super) struct UnderWay {
    operations: AtomicUsize,
    are_over: Notify,
}

impl UnderWay {
    pub(super) fn is_none(&self) -> bool {
        self.operations.load(Ordering::Acquire) == 0
    }

    pub(super) fn begin(&self) {
        self.operations.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn end(&self) {
        if self.operations.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.are_over.notify_waiters();
        }
    }

    /// Waits until none is under way.
    pub(super) async fn are_over(&self) {
        loop {
            // Before the count is read, or the last one could end in between.
            let over = self.are_over.notified();
            if self.is_none() {
                return;
            }
            over.await;
        }
    }
}
