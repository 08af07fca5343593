use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of keys, and its bound. A log counts as many keys as it has entries.
///
/// Kept apart from the fields that every decision reads, since every newcomer writes it.
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

    /// Takes room for this many keys. Returns whether there was as much.
    pub(super) fn reserve(&self, size: usize) -> bool {
        // Never above the bound, not even for a moment: otherwise another thread would find the table full.
        let more = |filled: usize| Some(filled + size).filter(|filled| *filled <= self.bound);
        self.filled
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    /// Takes room beyond the bound if there is none.
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
