#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::{hint::spin_loop, thread::yield_now};

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(loom)]
use loom::{hint::spin_loop, thread::yield_now};

/// Guards what many read and few change, without a write by those who only read: a count of the
/// changes, odd while one is under way.
///
/// Whoever reads takes note of the version, reads, and asks whether it still stands. Whoever
/// writes locks the version that was read, so that what was concluded from it holds for the
/// change as well.
///
/// What is guarded has to be atomic, since it may be read while it changes; `Relaxed` will do.
#[derive(Debug)]
pub(super) struct Version(AtomicU64);

const ONE_CHANGE: u64 = 2;
const UNDER_WAY: u64 = 1;

/// A change takes some ten instructions; after so many looks its thread must have been suspended.
const SPINS: u32 = 64;

impl Default for Version {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl Version {
    /// The version now, once no change is under way. What is read after this is of this version,
    /// if [`still_is`](Self::still_is) says so.
    #[inline]
    pub(super) fn seen(&self) -> u64 {
        let mut looks = 0;
        loop {
            let seen = self.0.load(Ordering::Acquire);
            if seen & UNDER_WAY == 0 {
                return seen;
            }
            looks += 1;
            if looks < SPINS {
                spin_loop();
            } else {
                yield_now();
            }
        }
    }

    /// Whether nothing has changed since this version was seen.
    #[inline]
    pub(super) fn still_is(&self, seen: u64) -> bool {
        // What was read stays before this look.
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) == seen
    }

    /// Begins a change, if nothing has changed since this version was seen.
    #[inline]
    pub(super) fn lock(&self, seen: u64) -> Option<Lock<'_>> {
        let locked = seen | UNDER_WAY;
        self.0
            .compare_exchange(seen, locked, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        // Whoever sees a part of the change sees that it is under way.
        fence(Ordering::Release);
        Some(Lock {
            version: self,
            next: seen,
        })
    }

    /// Begins a change, once no other is under way.
    pub(super) fn wait_and_lock(&self) -> Lock<'_> {
        loop {
            if let Some(lock) = self.lock(self.seen()) {
                return lock;
            }
        }
    }
}

/// A change that is under way; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Lock<'a> {
    version: &'a Version,
    next: u64,
}

impl Lock<'_> {
    /// Says that something is changed, so that those who have read before must read again.
    #[inline]
    pub(super) fn changes(&mut self) {
        self.next = self.next.wrapping_add(ONE_CHANGE) & !UNDER_WAY;
    }
}

impl Drop for Lock<'_> {
    #[inline]
    fn drop(&mut self) {
        self.version.0.store(self.next, Ordering::Release);
    }
}
