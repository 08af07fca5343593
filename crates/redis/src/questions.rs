use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// How many questions for units are on their way.
#[derive(Default)]
pub(super) struct Questions {
    on_their_way: AtomicUsize,
    are_answered: Notify,
}

impl Questions {
    pub(super) fn begin(&self) {
        self.on_their_way.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn end(&self) {
        if self.on_their_way.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.are_answered.notify_waiters();
        }
    }

    /// Waits until none is on its way.
    pub(super) async fn are_over(&self) {
        loop {
            // Before the count is read, or the last answer could come in between.
            let answered = self.are_answered.notified();
            if self.on_their_way.load(Ordering::Acquire) == 0 {
                return;
            }
            answered.await;
        }
    }
}
