//! The table of one policy: a hash table of pages, without a global lock.
//!
//! # Layout
//!
//! A page has 64 slots of 16 bytes. A slot holds the fingerprint of a key and its state in one word.
//! Where the numbers of a policy do not fit one word, a state takes three words. The states of a log
//! and of slots are behind a lock of their own.
//!
//! A bucket is kept as the moment at which all of its debt is drained, in units that make that moment
//! exact. A window is kept as its number since the epoch, with the count in the lowest bits. Whether the
//! numbers of a policy fit is decided when the policy is opened. They fit, until the year 2540 at least,
//! if the limit and the period in microseconds, in lowest terms, leave a limit of at most 1,023.
//!
//! # Reading and writing
//!
//! A page is guarded by a version, which is odd while the page changes (a seqlock). A decision reads the
//! version, reads the state, and reads the version again. A refusal ends there: it writes nothing, so any
//! number of threads refuse one key at once. An admission swaps the version that it has read for a locked
//! one, in one atomic instruction, writes the word, and stores the next version. If the page has changed since
//! the read, the swap fails and the decision starts anew. A decision of several policies reads all pages, and then
//! locks all of them in the order in which the tables were made, or none.
//!
//! The fast path handles the common case only: one policy, a known key in a slot of its own, no other
//! thread at the page, a clock that has not stepped back. It reads the state as of now, which decides alike
//! at half of the arithmetic. Everything else (a new key, a clock that has stepped back, a page that
//! changes) takes the general path from the beginning. The fast path need not check for a split of the page: a split
//! removes a key from its old page before the version is even again.
//!
//! # Finding a key
//!
//! A key has four slots of its own on its page, in one cache line, and four on a second line for when the first
//! is full. In a table as full as it gets, 87 of 100 keys are on the first line and 9 on the second; after a
//! doubling 98 and 2. The rest are found by their tags, a byte of each fingerprint, eight tags at a time.
//!
//! # Growth
//!
//! When three of four slots are taken, each new key splits two pages, until there are twice as many pages:
//! linear hashing (Litwin, 1980). A split moves some forty words under the lock of one page. The table is never
//! copied as a whole, and memory is not released and allocated again.
//!
//! # Eviction
//!
//! A new key takes the place of a key that equals a new one, if one is in its own four slots. Before the
//! table grows, and at its bound, a page is searched for such keys. At the bound, an index with one word for
//! each page, and one for each 64 pages, tells where a key may equal a new one. If there is none, the least
//! used key of the new key's own page goes, unless it is refused. If all keys of that page are refused, the
//! index tells a page where a key may not be refused. If there is no such page, new keys share one entry, and
//! know that without a look at any page. A look makes the index exact for its page and takes some 300 ns. A
//! new key looks at no more than 2,500 pages, and nearly always at one or none.
//!
//! A verb that gives no place, such as a peek or a refund, finds out in the same way whether its key is counted
//! by the shared entry, and evicts nothing for it (`has_room`).
//!
//! # Limits
//!
//! A state is read under any limit of its frame (name, period, slots), so the limit is an argument of each decision. A
//! word holds the states of one limit only, and a table of three words those of all: `tiers.rs` moves pages from the
//! first to the second when a request meets another limit, or comes later than a word can hold, and leaves their versions
//! odd for good. The fast path needs no check for that: it takes such a page for one that changes. Logs and slots need no
//! second table. A backend notes each limit before the first request that brings it, and not with each request.
//!
//! A table of several limits evicts a key only if that grants nothing under any limit that it has met
//! (`judging.rs`): the key has to be new at the lowest rate with the largest capacity, or pass under the least limit.
//! An override is a limit of one key (`overriding.rs`). It stands beside the tables, as a block does.
//!
//! # Code
//!
//! A table is compiled for each form of its cells: one word, three words, any number of words. It asks a rule that stands for
//! all rules of that form. Three paths are compiled for each rule that packs its states, since a call for each question
//! would cost more than the questions: a known key (`known.rs`) and a new key (`newcomer.rs`), through `one_word.rs`,
//! and the search of a page for keys to forget (`eviction.rs`). For a rule in three words that is the known key of a
//! request under one policy, through `in_words.rs`. `tiers.rs` holds the tables of a policy, and asks them on the general
//! path.
//!
//! # Fingerprints
//!
//! A fingerprint is 64 bits of `ahash` with 256 random bits of the process. Two of `n` keys share a fingerprint,
//! and so a state, with probability `n² / 2^65`: 3 in ten billion for 100,000 keys, 3 in a hundred million for a million.

mod amending;
mod budget;
mod charging;
mod counting;
mod deciding;
mod eviction;
mod growth;
mod judging;
mod known;
mod moving;
mod newcomer;
mod overriding;
mod restart;
mod tier;

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use self::budget::Budget;
use self::eviction::Tidies;
use self::judging::{Judges, SeenLimits};
use super::cell::{Keeps, OfTable};
use super::expiry::ExpiryIndex;
use super::page::Page;
use super::page_snapshot::{Changed, Counted, Known, NoRoom, Own, PageSnapshot, Probe};
use super::pages::{FoundPage, Pages};
use super::seqlock::Lock;
use super::sink::Fill;
use super::timed::Timed;
use crate::algorithm::{Algorithm, Step};
use crate::clock::{Clock, Micros};

/// The states of all keys under one policy, up to a bound.
///
/// A key is known by its fingerprint. Below the bound, no key that has state is forgotten. At the bound, a
/// newcomer takes the place of a key that is as good as new. If there is none, it takes the place of the key
/// on its own page that is closest to new; if all of these refuse, of a key on another page that does not. If
/// every key refuses, all newcomers share one entry.
pub(super) struct Table<R, C> {
    /// The rule of the table's own limit.
    rule: R,
    /// The last moment that cells can hold. A decision that began by then is made as of this moment at the latest, and
    /// later ones are not for this table.
    until: Micros,
    pages: Pages<C>,
    /// The entry that newcomers share when there is no room for them.
    overflow: Page<C>,
    budget: Arc<Budget>,
    /// The limits of single keys.
    overrides: Timed<Algorithm>,
    met: SeenLimits<R>,
    /// The judges of the table's own limit, if their type is faster to ask than that of the rule.
    tidies: Option<Box<dyn Tidies<R, C>>>,
    /// When a key of a page is as good as new.
    idle: ExpiryIndex,
    /// When a key of a page stops refusing.
    admitting: ExpiryIndex,
    /// The page that is searched next for keys to remove, before a page is added.
    next_to_tidy: Mutex<usize>,
    evicted: AtomicU64,
    overflowed: AtomicU64,
}

/// Why there is no decision yet.
pub(super) enum Undecided {
    Changed,
    /// The key has no slot unless room is made for it.
    NoRoom,
    /// The key has no slot, and no room can be made for it.
    Crowded,
}

impl<R: OfTable, C: Keeps<R>> Table<R, C> {
    pub(super) fn new(rule: R, until: Micros, bound: usize) -> Self {
        Self::sharing(rule, until, Arc::new(Budget::new(bound)))
    }

    /// Lets judges of another type tidy the pages.
    pub(super) fn tidied_by<S: Step>(self, rule: &S) -> Self
    where
        C: Keeps<S>,
    {
        Self {
            tidies: Some(Box::new(Judges::of(rule))),
            ..self
        }
    }

    /// Creates a table that shares its bound with another.
    pub(super) fn sharing(rule: R, until: Micros, budget: Arc<Budget>) -> Self {
        let pages = Pages::new(budget.bound());
        Self {
            met: SeenLimits::new(&rule),
            tidies: None,
            rule,
            until,
            overflow: Page::new(),
            budget,
            overrides: Timed::default(),
            idle: ExpiryIndex::new(pages.most()),
            admitting: ExpiryIndex::new(pages.most()),
            next_to_tidy: Mutex::new(0),
            evicted: AtomicU64::new(0),
            overflowed: AtomicU64::new(0),
            pages,
        }
    }

    /// Reads the page of a key. Returns `None` if it is retired.
    #[inline]
    pub(super) fn snapshot(
        &self,
        probe: Probe,
        counted: Counted,
        own: Option<Own>,
    ) -> Option<(&Page<C>, PageSnapshot)> {
        let FoundPage { page, index, seen } = match counted {
            Counted::Own => self.pages.find(probe.fingerprint)?,
            Counted::Overflow => FoundPage {
                page: &self.overflow,
                index: 0,
                seen: self.overflow.seqlock.seen()?,
            },
        };
        let latest = page.latest();
        let snapshot = PageSnapshot {
            index,
            seen,
            latest,
            counted,
            own,
        };
        Some((page, snapshot))
    }

    /// Locks the page of a key and reads it. Returns `None` if it is retired.
    #[inline(never)]
    pub(super) fn snapshot_and_lock(
        &self,
        probe: Probe,
        counted: Counted,
        own: Option<Own>,
    ) -> Option<(PageSnapshot, Lock<'_>)> {
        loop {
            let (page, snapshot) = self.snapshot(probe, counted, own)?;
            let (lock, seen) = page.seqlock.wait_and_lock()?;
            // The page may have been split while this thread waited for it.
            let is_still_its = match counted {
                Counted::Own => self.pages.is_page_of(probe.fingerprint, snapshot.index),
                Counted::Overflow => true,
            };
            if is_still_its {
                let latest = page.latest();
                let snapshot = PageSnapshot {
                    seen,
                    latest,
                    ..snapshot
                };
                return Some((snapshot, lock));
            }
        }
    }

    pub(super) fn page(&self, snapshot: &PageSnapshot) -> &Page<C> {
        match snapshot.counted {
            Counted::Own => self.pages.page(snapshot.index),
            Counted::Overflow => &self.overflow,
        }
    }

    /// Returns the limit that holds for a key now, if it differs from that of the table: its override, or
    /// else the limit of the request.
    #[inline]
    pub(super) fn own(
        &self,
        probe: Probe,
        limit: Option<&Algorithm>,
        now: Micros,
        clock: &dyn Clock,
    ) -> Option<Own> {
        if self.overrides.are_any()
            && let Some((algorithm, _)) =
                self.overrides
                    .find(probe.fingerprint, now, clock, probe.cost == 0)
        {
            return Some(Own {
                algorithm,
                is_overridden: true,
            });
        }
        limit.copied().map(Own::of_request)
    }

    /// Returns the rule under this limit, if there is one, or else that of the table.
    #[inline]
    pub(super) fn rule_under(&self, limit: Option<&Algorithm>) -> Cow<'_, R> {
        match limit {
            Some(limit) => self.rule.under(limit),
            None => Cow::Borrowed(&self.rule),
        }
    }

    /// Reads the state of a key under the rule of the request, if nothing has changed since the snapshot.
    pub(super) fn look<A>(
        &self,
        snapshot: &PageSnapshot,
        probe: Probe,
        now: Micros,
        read: impl FnOnce(&R, &R::Form) -> A,
    ) -> Result<A, Changed> {
        let rule = self.rule_under(snapshot.limit());
        let page = self.page(snapshot);
        let slot = page.find(snapshot.fingerprint(probe));
        let seen = slot.map(|slot| slot.cell.see(&rule, snapshot.latest));
        if !page.seqlock.still_is(snapshot.seen) {
            return Err(Changed);
        }
        let Some(seen) = seen else {
            return Ok(read(&rule, &R::Form::default()));
        };
        let moved = moved_back(&*rule, &seen, snapshot, now);
        Ok(read(&rule, moved.as_ref().unwrap_or(&seen)))
    }

    /// Moves all states of the page back to now. The page is locked.
    #[inline(never)]
    pub(in crate::store::memory) fn step_back(
        &self,
        snapshot: &PageSnapshot,
        lock: &mut Lock<'_>,
        now: Micros,
    ) {
        lock.changes();
        let page = self.page(snapshot);
        let latest = page.latest();
        for place in page.keys() {
            let cell = &place.slot().cell;
            let seen = cell.see(&self.rule, latest);
            let Some(moved) = self.rule.moved_back(&seen, now) else {
                continue;
            };
            let before = self.rule.size(&seen);
            drop(seen);
            // Entries of a log that are at one moment now are merged.
            self.budget
                .free(before.saturating_sub(self.rule.size(&moved)));
            cell.put(&self.rule, moved);
        }
        page.set_latest(now);
        self.note_evictable(snapshot, now);
    }

    /// Notes that a key of the page can go from now on: after a step back of the clock, after a refund, and
    /// when a new slot is not used. The page is locked.
    pub(in crate::store::memory) fn note_evictable(&self, snapshot: &PageSnapshot, now: Micros) {
        if snapshot.counted == Counted::Own {
            self.idle.lower_to(snapshot.index, now);
            self.admitting.lower_to(snapshot.index, now);
        }
    }

    /// Returns whether the key has no slot and the table has none to spare: see [`has_room`](Self::has_room).
    pub(in crate::store::memory) fn lacks_room(
        &self,
        snapshot: &PageSnapshot,
        probe: Probe,
    ) -> bool {
        snapshot.counted == Counted::Own
            && self.budget.is_used_up()
            && !snapshot.is_overridden()
            && self.page(snapshot).find(probe.fingerprint).is_none()
    }

    pub(in crate::store::memory) fn until(&self) -> Micros {
        self.until
    }

    pub(in crate::store::memory) fn budget(&self) -> Arc<Budget> {
        Arc::clone(&self.budget)
    }

    pub(in crate::store::memory) fn fill(&self) -> Fill {
        Fill {
            keys: self.budget.filled(),
            bound: self.budget.bound(),
            bytes: self.pages.bytes() + self.idle.bytes() + self.admitting.bytes(),
            evicted: self.evicted.load(Ordering::Relaxed),
            overflowed: self.overflowed.load(Ordering::Relaxed),
        }
    }
}

/// Returns the state as it is after the clock has stepped back, or `None` if it has not.
#[inline]
fn moved_back<S: Step>(
    rule: &S,
    seen: &S::Form,
    snapshot: &PageSnapshot,
    now: Micros,
) -> Option<S::Form> {
    if now < snapshot.latest {
        return rule.moved_back(seen, now);
    }
    None
}

#[cfg(all(test, not(tower_ratelimit_loom)))]
mod tests;
