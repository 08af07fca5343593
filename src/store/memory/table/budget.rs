use std::sync::atomic::{AtomicUsize, Ordering};

/// How many keys there are, and may be. A log counts as many as it has entries.
///
/// Apart from what every decision reads, since every newcomer writes it.
#[repr(align(64))]
#[derive(Debug)]
pub(in crate::store::memory) struct Budget {
    filled: AtomicUsize,
    bound: usize,
}

impl Budget {
    pub(super) fn new(bound: usize) -> Self {
        Self {
            filled: AtomicUsize::new(0),
            bound,
        }
    }

    pub(super) fn bound(&self) -> usize {
        self.bound
    }

    pub(super) fn filled(&self) -> usize {
        self.filled.load(Ordering::Relaxed)
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.filled() >= self.bound
    }

    /// Takes room for so many, if there is as much.
    pub(super) fn reserve(&self, size: usize) -> bool {
        // Never above the bound, not for a moment: others would find it full that is not.
        let more = |filled: usize| Some(filled + size).filter(|filled| *filled <= self.bound);
        self.filled
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    /// Takes room that there may not be.
    pub(super) fn exceed(&self, size: usize) {
        if size > 0 {
            self.filled.fetch_add(size, Ordering::Relaxed);
        }
    }

    pub(super) fn free(&self, size: usize) {
        if size > 0 {
            self.filled.fetch_sub(size, Ordering::Relaxed);
        }
    }
}
