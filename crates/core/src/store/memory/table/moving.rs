use super::{Counted, Probe, Table};
use crate::algorithm::State;
use crate::clock::Micros;
use crate::store::memory::cell::{Keeps, OfTable};
use crate::store::memory::page::Page;
use crate::store::memory::seed::RESERVED;

/// Moves keys from a packed table to a wide one, page by page.
///
/// A page that has moved is locked for good. The fast path needs no check of its own: it falls back to the
/// general path, which finds the page retired.
impl<R: OfTable, C: Keeps<R>> Table<R, C> {
    /// Moves the page of this key, unless it has moved already.
    pub(in crate::store::memory) fn retire(
        &self,
        fingerprint: u64,
        adopt: &mut dyn FnMut(u64, State, Micros),
    ) {
        loop {
            let (_, index) = self.pages.at(fingerprint);
            self.retire_page(index, adopt);
            // The page may have been split while this thread waited for it.
            if self.pages.is_page_of(fingerprint, index) {
                return;
            }
        }
    }

    /// Moves a page, unless it has moved already. Calls `adopt` with each key, its state, and the time of the
    /// latest charge on the page.
    pub(in crate::store::memory) fn retire_page(
        &self,
        index: usize,
        adopt: &mut dyn FnMut(u64, State, Micros),
    ) {
        let page = self.pages.page(index);
        if self.empty_out(page, adopt) {
            self.idle.raise_to(index, None);
            self.admitting.raise_to(index, None);
        }
    }

    /// Moves the entry that newcomers share.
    pub(in crate::store::memory) fn retire_overflow(
        &self,
        adopt: &mut dyn FnMut(u64, State, Micros),
    ) {
        self.empty_out(&self.overflow, adopt);
    }

    fn empty_out(&self, page: &Page<C>, adopt: &mut dyn FnMut(u64, State, Micros)) -> bool {
        let Some((mut lock, _)) = page.seqlock.wait_and_lock() else {
            return false;
        };
        lock.changes();
        let latest = page.latest();
        for place in page.keys() {
            let state = place.slot().cell.see(&self.rule, latest).clone();
            adopt(place.fingerprint(), self.rule.write(state), latest);
            place.leave();
        }
        lock.retire();
        true
    }

    /// Returns how many pages there are.
    pub(in crate::store::memory) fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Returns whether the bound is reached, which this table may share with another.
    pub(in crate::store::memory) fn is_full(&self) -> bool {
        self.budget.is_used_up()
    }

    /// Takes over a key, with the room that it has taken in a table with the same bound.
    pub(in crate::store::memory) fn adopt(&self, fingerprint: u64, state: State, latest: Micros) {
        let probe = Probe {
            fingerprint,
            cost: 0,
        };
        let counted = match fingerprint {
            RESERVED => Counted::Overflow,
            _ => Counted::Own,
        };
        let Some((snapshot, mut lock)) = self.snapshot_and_lock(probe, counted, None) else {
            return;
        };
        let page = self.page(&snapshot);
        let state = self.rule.read(state);
        lock.changes();
        let place = self.pages.room(page, fingerprint);
        place.take(fingerprint);
        page.set_latest(latest.max(snapshot.latest));
        if counted == Counted::Own {
            self.index_new_key(&*self.slowest(), &state, snapshot.index, latest);
        }
        place.slot().cell.put(&self.rule, state);
        drop(lock);
        self.grow(latest);
    }
}
