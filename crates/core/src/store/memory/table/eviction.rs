//! Which key is evicted for a newcomer.
//!
//! No key that refuses a request is evicted, so that a client cannot free itself by a flood of other keys.

use std::sync::atomic::Ordering;

use super::judging::Judges;
use super::{PageSnapshot, Table};
use crate::algorithm::Step;
use crate::clock::Micros;
use crate::store::memory::cell::{Keeps, OfTable};
use crate::store::memory::page::{Page, SlotRef};

/// The result of tidying a page.
pub(in crate::store::memory) struct Found<'a, C> {
    pub(super) forgotten: usize,
    /// Among the keys that do not refuse, the one that is closest to new.
    nearest: Option<SlotRef<'a, C>>,
}

/// Judges whose type a table does not know. A page has some fifty keys, and a call for each question about
/// each of them takes longer than the questions.
pub(in crate::store::memory) trait Tidies<R, C>: Send + Sync {
    /// Does what [`Table::tidy`] does.
    fn tidy<'a>(
        &self,
        table: &Table<R, C>,
        page: (&'a Page<C>, usize),
        now: Micros,
    ) -> Found<'a, C>;
}

impl<R: OfTable, C: Keeps<R> + Keeps<S>, S: Step> Tidies<R, C> for Judges<S> {
    fn tidy<'a>(
        &self,
        table: &Table<R, C>,
        page: (&'a Page<C>, usize),
        now: Micros,
    ) -> Found<'a, C> {
        table.tidy_by(self, page, now)
    }
}

/// The treatment of a key that has used some of its limit and can be evicted.
#[derive(Clone, Copy, PartialEq)]
enum Victim {
    Goes,
    Stays,
}

/// The number of pages that are searched for keys that may be as good as new, before any key that can go is
/// taken.
const SEARCHED_FOR_IDLE: usize = 8;

/// Chooses the key that is evicted for a newcomer.
impl<R: OfTable, C: Keeps<R>> Table<R, C> {
    /// Finds a slot for a new key, on its page or in the overflow. The page is locked.
    pub(super) fn room<'a, S: Step>(
        &self,
        slowest: &S,
        (page, snapshot): (&'a Page<C>, &PageSnapshot),
        fingerprint: u64,
        now: Micros,
    ) -> Option<SlotRef<'a, C>>
    where
        C: Keeps<S>,
    {
        let latest = page.latest();
        let mut own = page.own(fingerprint);
        let is_new = |place: &SlotRef<'_, C>| {
            let state = place.slot().cell.see(slowest, latest);
            slowest.distance(&state, now) == 0
        };
        if let Some(idle) = own.find(is_new) {
            self.replace(idle);
            return Some(idle);
        }
        if let Some(empty) = page.empty(fingerprint)
            && self.budget.reserve(1)
        {
            return Some(empty);
        }
        // The page or the table is full.
        let found = self.tidy((page, snapshot.index), now);
        if self.budget.reserve(1) {
            return Some(self.pages.room(page, fingerprint));
        }
        if self.idle.due(now, snapshot.index).is_some() {
            return None;
        }
        let victim = found.nearest?;
        self.evicted.fetch_add(1, Ordering::Relaxed);
        self.replace(victim);
        Some(victim)
    }

    /// Makes room on any page that has a key that can go. No page is locked.
    pub(in crate::store::memory) fn make_room(&self, snapshot: &PageSnapshot, now: Micros) -> bool {
        self.search(snapshot.index, now, Victim::Goes)
    }

    /// Returns whether there is room for a newcomer, or [`make_room`](Self::make_room) would make it. Removes
    /// only keys that are as good as new. No page is locked.
    ///
    /// A key that has no slot and finds none is counted by the shared entry: every verb that gives no slot
    /// finds this out here.
    pub(in crate::store::memory) fn has_room(&self, snapshot: &PageSnapshot, now: Micros) -> bool {
        !self.budget.is_used_up() || self.search(snapshot.index, now, Victim::Stays)
    }

    /// Searches for a key that can go, from this page on.
    #[inline(never)]
    fn search(&self, from: usize, now: Micros, victim: Victim) -> bool {
        // Each look makes the index exact for its page. So there are as many looks in all as there were
        // charges, and few for most newcomers.
        for searched in 0..C::PAGES_SEARCHED {
            // Pages whose keys may be idle need not have an idle key. After some of them, any key that can go
            // will do.
            let can_wait = searched < SEARCHED_FOR_IDLE;
            let due = self.idle.due(now, from).filter(|_| can_wait);
            let Some(index) = due.or_else(|| self.admitting.due(now, from)) else {
                return false;
            };
            if self.clear_out(index, now, can_wait, victim) {
                return true;
            }
        }
        false
    }

    /// Removes the keys of this page that are as good as new. If there are none in the table, or `can_wait`
    /// is false, removes the key that is closest to it. Returns whether any key was removed, or would be
    /// except for a `victim` that stays.
    fn clear_out(&self, index: usize, now: Micros, can_wait: bool, victim: Victim) -> bool {
        let page = self.pages.page(index);
        let Some((mut lock, _)) = page.seqlock.wait_and_lock() else {
            return false;
        };
        lock.changes();
        let found = self.tidy((page, index), now);
        if found.forgotten > 0 {
            return true;
        }
        if can_wait && self.idle.due(now, index).is_some() {
            return false;
        }
        let Some(nearest) = found.nearest else {
            return false;
        };
        if victim == Victim::Goes {
            self.evicted.fetch_add(1, Ordering::Relaxed);
            self.forget(nearest);
        }
        true
    }

    /// Removes every key of a page that is as good as new. The page is locked.
    pub(super) fn tidy<'a>(&self, page: (&'a Page<C>, usize), now: Micros) -> Found<'a, C> {
        match &self.tidies {
            Some(tidies) => tidies.tidy(self, page, now),
            None => self.tidy_by(&self.judges(), page, now),
        }
    }

    /// Removes every key of a page that is as good as new, by judges of any type.
    fn tidy_by<'a, S: Step>(
        &self,
        Judges { slowest, strictest }: &Judges<S>,
        (page, index): (&'a Page<C>, usize),
        now: Micros,
    ) -> Found<'a, C>
    where
        C: Keeps<S>,
    {
        let latest = page.latest();
        // Another thread may have charged since the clock was read. A window that begins then would count as
        // empty now.
        let now = now.max(latest);
        let mut found = Found {
            forgotten: 0,
            nearest: None,
        };
        let (is_idle_due, is_admitting_due) = (
            self.idle.is_due(index, now),
            self.admitting.is_due(index, now),
        );
        let (mut least, mut idle, mut admitting) = (u64::MAX, None, None);
        for place in page.keys() {
            let state = place.slot().cell.see(slowest, latest);
            let distance = slowest.distance(&state, now);
            if distance == 0 {
                drop(state);
                self.forget(place);
                found.forgotten += 1;
                continue;
            }
            if is_idle_due {
                sooner(&mut idle, now, slowest.reset_after(&state, now));
            }
            if let Some(wait) = self.stays_overridden(place.fingerprint(), now) {
                sooner(&mut admitting, now, wait);
            } else if strictest.allows(&state, now, 1) {
                if found.nearest.is_none() || distance < least {
                    least = distance;
                    found.nearest = Some(place);
                }
            } else if is_admitting_due {
                sooner(&mut admitting, now, strictest.retry_after(&state, now, 1));
            }
        }
        if is_idle_due {
            self.idle.raise_to(index, idle);
        }
        if is_admitting_due && found.nearest.is_none() {
            self.admitting.raise_to(index, admitting);
        }
        found
    }

    /// Returns whether a newcomer need not search for room, because there is none.
    pub(super) fn is_crowded(&self, now: Micros, from: usize) -> bool {
        self.budget.is_used_up()
            && self.idle.due(now, from).is_none()
            && self.admitting.due(now, from).is_none()
    }

    pub(super) fn forget(&self, place: SlotRef<'_, C>) {
        self.budget.free(self.leave(place));
    }

    /// Removes the key of a slot that another key takes.
    fn replace(&self, place: SlotRef<'_, C>) {
        self.budget.free(self.leave(place).saturating_sub(1));
    }

    /// Clears a slot. Returns how much room its key had taken.
    fn leave(&self, place: SlotRef<'_, C>) -> usize {
        let cell = &place.slot().cell;
        let size = self.rule.size(&cell.see(&self.rule, Micros::ZERO));
        cell.clear();
        place.leave();
        size
    }
}

/// Lowers `time` to the end of this wait, if that is sooner.
fn sooner(time: &mut Option<Micros>, now: Micros, wait: Micros) {
    let then = now.saturating_add(wait);
    *time = Some(time.map_or(then, |time| time.min(then)));
}
