use std::sync::TryLockError;

use super::Table;
use crate::clock::Micros;
use crate::store::memory::cell::{Keeps, OfTable};

/// If this many keys were removed from one page, the table need not grow yet.
const WORTH_A_LOOK: usize = 4;

/// The number of pages that are split for one newcomer. A doubling that has begun is finished soon, since the
/// pages that are not split yet are twice as full.
const SPLIT_AT_ONCE: usize = 2;

impl<R: OfTable, C: Keeps<R>> Table<R, C> {
    /// Adds pages if there are too few for the keys, unless some keys can be removed. No page is locked.
    pub(in crate::store::memory) fn grow(&self, now: Micros) {
        let is_doubling = self.pages.is_doubling();
        if !is_doubling && !self.pages.are_too_few(self.budget.filled()) {
            return;
        }
        let mut next = match self.next_to_tidy.try_lock() {
            Ok(next) => next,
            Err(TryLockError::Poisoned(next)) => next.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if !is_doubling {
            *next = (*next + 1) % self.pages.len();
            let (index, page) = (*next, self.pages.page(*next));
            if let Some((mut lock, _)) = page.seqlock.wait_and_lock() {
                lock.changes();
                let found = self.tidy((page, index), now);
                drop(lock);
                if found.forgotten >= WORTH_A_LOOK {
                    return;
                }
            }
        }
        for _ in 0..SPLIT_AT_ONCE {
            self.pages.split(&mut |page, half| {
                for times in [&self.idle, &self.admitting] {
                    times.lower_to(half, times.of(page));
                }
            });
            // The next doubling has to be asked for.
            if !self.pages.is_doubling() {
                break;
            }
        }
    }
}
