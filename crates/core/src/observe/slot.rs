//! The index of each thread's own counters, so that no two threads write to the same ones.

use std::cell::{Cell, OnceCell};
use std::sync::{Mutex, PoisonError};

/// The number of threads with counters of their own. All others share counters.
pub(super) const OWN: usize = 64;

/// The index for threads without counters of their own.
pub(super) const SHARED: usize = OWN;

const UNKNOWN: usize = usize::MAX;

/// A bit for each index that a thread has taken.
static TAKEN: Mutex<u64> = Mutex::new(0);

thread_local! {
    /// The index of this thread. It has no destructor, so reading it takes one instruction.
    static SLOT: Cell<usize> = const { Cell::new(UNKNOWN) };
    static LEASE: OnceCell<Lease> = const { OnceCell::new() };
}

/// Keeps an index until the thread ends.
struct Lease(usize);

/// Returns the index of this thread: below [`OWN`], or [`SHARED`].
#[inline]
pub(super) fn slot() -> usize {
    match SLOT.get() {
        UNKNOWN => take(),
        slot => slot,
    }
}

#[cold]
fn take() -> usize {
    // While the thread ends, its lease is gone.
    let slot = LEASE.try_with(|lease| lease.get_or_init(Lease::take).0);
    let slot = slot.unwrap_or(SHARED);
    SLOT.set(slot);
    slot
}

impl Lease {
    fn take() -> Self {
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let free = taken.trailing_ones();
        if let Some(bit) = 1_u64.checked_shl(free) {
            *taken |= bit;
        }
        Self(free as usize)
    }
}

/// The next thread with this index sees all that this one has counted, because both lock.
impl Drop for Lease {
    fn drop(&mut self) {
        // Other destructors of this thread may count after this one.
        SLOT.set(SHARED);
        if self.0 < OWN {
            let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
            *taken &= !(1 << self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    /// One test, since it takes all indices.
    #[test]
    fn threads_share_no_place_but_the_last_and_leave_theirs_to_others() {
        let mut each = (0..10 * OWN).map(|_| thread::spawn(slot).join().unwrap());
        assert!(each.next_back() < Some(SHARED));

        let together = Barrier::new(2 * OWN);
        let slots: Vec<usize> = thread::scope(|scope| {
            let take = || {
                let slot = slot();
                together.wait();
                slot
            };
            let threads: Vec<_> = (0..2 * OWN).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let own: Vec<_> = slots.iter().filter(|slot| **slot < OWN).collect();
        let different: HashSet<_> = own.iter().collect();
        assert_eq!(own.len(), different.len(), "{slots:?}");
        assert!(slots.contains(&SHARED));
    }
}
