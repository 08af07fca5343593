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
//! A new key takes the place of a key that equals a new one, if one is in its own four slots. Before the table grows, and
//! at its bound, a page is searched for such keys. At the bound, an index with one word for each page, and one for each
//! 64 pages, tells where a key may equal a new one. If there is none, the least used key of the new key's
//! own page goes, unless it is refused. If all keys of that page are refused, the index tells a page where one may not be. If
//! there is none, new keys share one entry, and know that without a look at any page. A look makes the index exact
//! for its page and takes some 300 ns. A new key looks at no more than 2,500 pages, and nearly always at one or none.
//!
//! A verb that gives no place, such as a peek or a refund, finds out in the same way whether its key is counted
//! by the shared entry, and evicts nothing for it (`has_room`).
//!
//! # Limits
//!
//! A state is read under any limit of its frame (name, period, slots), so the limit is an argument of each decision. A
//! word holds the states of one limit only, and a table of three words those of all: `tiers.rs` moves pages from the
//! first to the second when a request meets another limit, and leaves their versions odd for good. The fast path needs
//! no check for that: it takes such a page for one that changes. Logs and slots need no second table.
//!
//! A table of several limits evicts a key only if that grants nothing under any limit that it has met
//! (`judging.rs`): the key has to be new at the lowest rate with the largest capacity, or pass under the least limit.
//! An override is a limit of one key (`overriding.rs`). It stands beside the tables, as a block does.
//!
//! # Fingerprints
//!
//! A fingerprint is 64 bits of `ahash` with 256 random bits of the process. Two of `n` keys share a fingerprint,
//! and so a state, with probability `n² / 2^65`: 3 in ten billion for 100,000 keys, 3 in a hundred million for a million.

mod amending;
mod budget;
mod counting;
mod deciding;
mod eviction;
mod growth;
mod judging;
mod moving;
mod overriding;
mod restart;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use self::budget::Budget;
use self::judging::Met;
pub(in crate::store::memory) use self::moving::Settled;
pub(in crate::store::memory) use self::overriding::Override;
use super::cell::Keeps;
use super::counter::{Fill, OutcomeSink};
use super::expiry::ExpiryIndex;
use super::page::Page;
use super::page_snapshot::{Ask, Changed, Counted, Known, NoRoom, Own, PageSnapshot};
use super::pages::{Pages, Sight};
use super::prepared::Prepared;
use super::seqlock::Lock;
use super::timed::Timed;
use crate::algorithm::{Algorithm, Step};
use crate::clock::{Clock, Micros};

/// The states of all keys under one policy, up to a bound.
///
/// A key is known by its fingerprint. Below the bound, no key that has state is ever forgotten. At
/// the bound, a newcomer takes the place of a key that is as good as new; if there is none, of the
/// one on its own page that is the closest to that; if all of them are refusing, of one elsewhere
/// that is not. If every key is refusing, all newcomers share one entry.
pub(super) struct Table<S, C> {
    rule: S,
    /// The last moment that cells can hold; later ones are taken for it.
    until: Micros,
    pages: Pages<C>,
    /// The entry that newcomers share when there is no room for them.
    overflow: Page<C>,
    budget: Arc<Budget>,
    /// The limits of single keys.
    overrides: Timed<Algorithm>,
    met: Met<S>,
    /// Rules of limits that were met.
    prepared: Prepared<(Algorithm, S)>,
    /// When a key of a page is as good as new.
    idle: ExpiryIndex,
    /// When a key of a page refuses no more.
    admitting: ExpiryIndex,
    /// The page that is looked through next for keys to forget, before another is added.
    next_to_tidy: Mutex<usize>,
    evicted: AtomicU64,
    overflowed: AtomicU64,
}

/// Why there is no decision yet.
pub(super) enum Undecided {
    Changed,
    /// The key has no place unless room is made for it.
    NoRoom,
    /// The key has no place, and no room can be made for it.
    Crowded,
}

impl<S: Step, C: Keeps<S>> Table<S, C> {
    pub(super) fn new(rule: S, until: Micros, bound: usize) -> Self {
        Self::sharing(rule, until, Arc::new(Budget::new(bound)))
    }

    /// A table that shares its bound with another.
    pub(super) fn sharing(rule: S, until: Micros, budget: Arc<Budget>) -> Self {
        let pages = Pages::new(budget.bound());
        Self {
            rule,
            until,
            overflow: Page::new(),
            budget,
            overrides: Timed::default(),
            met: Met::new(rule),
            prepared: Prepared::default(),
            idle: ExpiryIndex::new(pages.most()),
            admitting: ExpiryIndex::new(pages.most()),
            next_to_tidy: Mutex::new(0),
            evicted: AtomicU64::new(0),
            overflowed: AtomicU64::new(0),
            pages,
        }
    }

    /// Looks at the page of a key; `None` if it is retired.
    #[inline]
    pub(super) fn snapshot(
        &self,
        ask: Ask,
        counted: Counted,
        own: Option<Own>,
    ) -> Option<(&Page<C>, PageSnapshot)> {
        let Sight { page, index, seen } = match counted {
            Counted::Apart => self.pages.sight(ask.fingerprint)?,
            Counted::Overflow => Sight {
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

    /// Locks the page of a key and looks at it; `None` if it is retired.
    #[inline(never)]
    pub(super) fn snapshot_and_lock(
        &self,
        ask: Ask,
        counted: Counted,
        own: Option<Own>,
    ) -> Option<(PageSnapshot, Lock<'_>)> {
        loop {
            let (page, snapshot) = self.snapshot(ask, counted, own)?;
            let (lock, seen) = page.seqlock.wait_and_lock()?;
            // While it was waited for, the page may have been split.
            let is_still_its = match counted {
                Counted::Apart => self.pages.is_page_of(ask.fingerprint, snapshot.index),
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
            Counted::Apart => self.pages.page(snapshot.index),
            Counted::Overflow => &self.overflow,
        }
    }

    /// The limit that holds for a key now, if it is not the limit of the table: its override, or else the limit of
    /// the request.
    #[inline]
    pub(super) fn own(
        &self,
        ask: Ask,
        limit: Option<&Algorithm>,
        now: Micros,
        clock: &dyn Clock,
    ) -> Option<Own> {
        if self.overrides.are_any()
            && let Some((algorithm, _)) =
                self.overrides
                    .find(ask.fingerprint, now, clock, ask.cost == 0)
        {
            return Some(Own {
                algorithm,
                is_overridden: true,
            });
        }
        let algorithm = *limit?;
        self.meet(&algorithm);
        Some(Own::of_request(algorithm))
    }

    /// The rule of a request.
    #[inline]
    pub(super) fn rule_under(&self, own: Option<Own>) -> S {
        own.map_or(self.rule, |own| C::under(&self.rule, &own.algorithm))
    }

    /// Reads something of a key's state under the rule of the request, if nothing has changed since the snapshot.
    pub(super) fn look<R>(
        &self,
        snapshot: &PageSnapshot,
        ask: Ask,
        now: Micros,
        read: impl FnOnce(&S, &S::Kept) -> R,
    ) -> Result<R, Changed> {
        let rule = self.rule_under(snapshot.own);
        let page = self.page(snapshot);
        let slot = page.find(snapshot.fingerprint(ask));
        let seen = slot.map(|slot| slot.cell.see(&rule, snapshot.latest));
        if !page.seqlock.still_is(snapshot.seen) {
            return Err(Changed);
        }
        let Some(seen) = seen else {
            return Ok(read(&rule, &S::Kept::default()));
        };
        let moved = moved_back(&rule, &seen, snapshot, now);
        Ok(read(&rule, moved.as_ref().unwrap_or(&seen)))
    }

    /// Puts down what a request is told, if that is wanted.
    #[inline]
    pub(super) fn tell(
        (rule, kept): (&S, &S::Kept),
        ask: Ask,
        now: Micros,
        allowed: bool,
        snapshot: &PageSnapshot,
        told: Option<&mut OutcomeSink<'_>>,
    ) {
        if let Some(told) = told
            && told.wanted.includes(allowed)
        {
            let how = (
                snapshot.counted,
                snapshot.own.is_some_and(|own| own.is_overridden),
            );
            if C::IS_SHORT {
                put_down((rule, &kept.clone()), ask.cost, now, allowed, how, told);
            } else {
                put_down((rule, kept), ask.cost, now, allowed, how, told);
            }
        }
    }

    /// Moves all that the page keeps back to now. The page is locked.
    #[inline(never)]
    pub(super) fn step_back(
        &self,
        page: &Page<C>,
        snapshot: &PageSnapshot,
        lock: &mut Lock<'_>,
        now: Micros,
    ) {
        lock.changes();
        let latest = page.latest();
        for place in page.keys() {
            let cell = &place.slot().cell;
            let seen = cell.see(&self.rule, latest);
            let Some(moved) = self.rule.moved_back(&seen, now) else {
                continue;
            };
            let before = self.rule.size(&seen);
            drop(seen);
            // The entries of a log that are at one moment now are one.
            self.budget
                .free(before.saturating_sub(self.rule.size(&moved)));
            cell.put(&self.rule, moved);
        }
        page.set_latest(now);
        self.may_go(snapshot, now);
    }

    /// Makes a place for a newcomer. The page is locked.
    pub(super) fn place<'a>(
        &'a self,
        (page, snapshot): (&'a Page<C>, &PageSnapshot),
        ask: Ask,
        lock: &mut Lock<'_>,
        now: Micros,
    ) -> Result<&'a C, NoRoom> {
        lock.changes();
        let fingerprint = snapshot.fingerprint(ask);
        let place = match snapshot.counted {
            Counted::Apart => match self.room((page, snapshot), fingerprint, now) {
                Some(place) => place,
                None if snapshot.is_overridden() => {
                    self.budget.exceed(1);
                    self.pages.room(page, fingerprint)
                }
                None => return Err(NoRoom),
            },
            Counted::Overflow => self.pages.room(page, fingerprint),
        };
        place.take(fingerprint);
        let cell = &place.slot().cell;
        cell.put(&self.rule, S::Kept::default());
        Ok(cell)
    }

    /// Charges a key whose state was seen. The page is locked.
    #[expect(clippy::inline_always, reason = "as for the fast path")]
    #[inline(always)]
    pub(super) fn charge(
        &self,
        (page, snapshot): (&Page<C>, &PageSnapshot),
        (rule, cell, mut seen): (&S, &C, C::Seen<'_>),
        ask: Ask,
        lock: &mut Lock<'_>,
        now: Micros,
        told: Option<&mut OutcomeSink<'_>>,
    ) {
        lock.changes();
        page.set_latest(now);
        if snapshot.counted == Counted::Overflow {
            self.overflowed.fetch_add(1, Ordering::Relaxed);
        }
        let before = rule.size(&seen);
        rule.charge(&mut seen, now, ask.cost);
        self.resize(&mut seen, before);
        Self::tell((rule, &seen), ask, now, true, snapshot, told);
        cell.keep(rule, seen);
    }

    /// Charges a newcomer that was given a place. The page is locked.
    pub(super) fn charge_new(
        &self,
        (page, snapshot): (&Page<C>, &PageSnapshot),
        cell: &C,
        ask: Ask,
        lock: &mut Lock<'_>,
        now: Micros,
        told: Option<&mut OutcomeSink<'_>>,
    ) {
        let rule = self.rule_under(snapshot.own);
        let seen = cell.see(&rule, snapshot.latest);
        self.charge((page, snapshot), (&rule, cell, seen), ask, lock, now, told);
        if snapshot.counted == Counted::Apart {
            let kept = cell.see(&self.rule, page.latest());
            self.welcome(&kept, snapshot.index, now);
        }
    }

    /// Takes note of when a newcomer can go again.
    fn welcome(&self, kept: &S::Kept, index: usize, now: Micros) {
        let reset = now.saturating_add(self.judges().slowest.reset_after(kept, now));
        self.idle.may_be(index, reset);
        self.admitting.may_be(index, now);
    }

    /// Accounts for what a charge has added or removed.
    #[inline]
    fn resize(&self, kept: &mut S::Kept, before: usize) {
        let mut after = self.rule.size(kept);
        if after > before && !self.budget.reserve(after - before) {
            self.rule.squeeze(kept);
            after = self.rule.size(kept);
            self.budget.exceed(after.saturating_sub(before));
        }
        self.budget.free(before.saturating_sub(after));
    }

    /// Notes that a key of the page may go from now on: after a step back of the clock, after a refund, and
    /// when a new place is not used. The page is locked.
    pub(super) fn may_go(&self, snapshot: &PageSnapshot, now: Micros) {
        if snapshot.counted == Counted::Apart {
            self.idle.may_be(snapshot.index, now);
            self.admitting.may_be(snapshot.index, now);
        }
    }

    /// Whether the key has no place, and the table none that is free: see [`has_room`](Self::has_room).
    pub(super) fn lacks_room(&self, snapshot: &PageSnapshot, ask: Ask) -> bool {
        snapshot.counted == Counted::Apart
            && self.budget.is_used_up()
            && !snapshot.is_overridden()
            && self.page(snapshot).find(ask.fingerprint).is_none()
    }

    pub(super) fn until(&self) -> Micros {
        self.until
    }

    pub(super) fn budget(&self) -> Arc<Budget> {
        Arc::clone(&self.budget)
    }

    pub(super) fn fill(&self) -> Fill {
        Fill {
            keys: self.budget.filled(),
            bound: self.budget.bound(),
            bytes: self.pages.bytes() + self.idle.bytes() + self.admitting.bytes(),
            evicted: self.evicted.load(Ordering::Relaxed),
            overflowed: self.overflowed.load(Ordering::Relaxed),
        }
    }
}

/// What was seen, as it is after the clock has stepped back; `None` if it has not.
#[inline]
fn moved_back<S: Step>(
    rule: &S,
    seen: &S::Kept,
    snapshot: &PageSnapshot,
    now: Micros,
) -> Option<S::Kept> {
    if now < snapshot.latest {
        return rule.moved_back(seen, now);
    }
    None
}

/// Apart from the decision, so that a request that wants no numbers does not carry them along.
#[inline(never)]
fn put_down<S: Step>(
    (rule, kept): (&S, &S::Kept),
    cost: u32,
    now: Micros,
    allowed: bool,
    (counted, is_overridden): (Counted, bool),
    told: &mut OutcomeSink<'_>,
) {
    let mut outcome = rule.outcome(kept, now, cost, allowed);
    if counted == Counted::Overflow {
        outcome = outcome.counted_together();
    }
    if is_overridden {
        let window = (rule.limit() > 0).then(|| rule.window().to_duration());
        outcome = outcome.overridden(window);
    }
    told.put_down(outcome, now);
}

#[cfg(all(test, not(tower_ratelimit_loom)))]
mod tests {
    use super::*;
    use crate::algorithm::FixedWindow;
    use crate::clock::ManualClock;
    use crate::store::memory::cell::Word;
    use crate::store::memory::counter::{Counter, Tier, decide};

    type Minutes = Table<FixedWindow, Word>;

    const LIMIT: u32 = 5;

    fn table(bound: usize) -> Minutes {
        Table::new(FixedWindow::per_minute(LIMIT), Micros::LONGEST, bound)
    }

    /// Numbers that look random, and are the same each time.
    fn fingerprint(number: u64) -> u64 {
        let mixed = (number + 2).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb)
    }

    fn allows(table: &Minutes, clock: &ManualClock, fingerprint: u64, cost: u32) -> bool {
        let ask = Ask { fingerprint, cost };
        decide(table, ask, clock_of(clock), clock, None)
    }

    fn stands(table: &Minutes, fingerprint: u64) -> bool {
        table
            .pages
            .sight(fingerprint)
            .unwrap()
            .page
            .find(fingerprint)
            .is_some()
    }

    fn soonest(
        table: &Minutes,
        page: &Page<Word>,
        now: Micros,
        wait: impl Fn(&<FixedWindow as Step>::Kept) -> Micros,
    ) -> Option<Micros> {
        let times = page.keys().map(|place| {
            let kept = Keeps::<FixedWindow>::see(&place.slot().cell, &table.rule, page.latest());
            now.saturating_add(wait(&kept))
        });
        times.min()
    }

    /// A search by the times of pages overlooks no key.
    fn assert_no_time_is_too_late(table: &Minutes, now: Micros) {
        for index in 0..table.pages.len() {
            let page = table.pages.page(index);
            let resets = |kept: &_| table.rule.reset_after(kept, now);
            let retries = |kept: &_| {
                if table.rule.allows(kept, now, 1) {
                    return Micros::ZERO;
                }
                table.rule.retry_after(kept, now, 1)
            };
            for (times, first) in [
                (&table.idle, soonest(table, page, now, resets)),
                (&table.admitting, soonest(table, page, now, retries)),
            ] {
                let Some(first) = first else { continue };
                assert!(times.of(index) <= first, "page {index}");
                assert!(times.due(first, index).is_some(), "page {index}");
            }
        }
    }

    #[test]
    fn no_page_is_thought_to_have_something_later_than_it_has() {
        for bound in [50, 1_000, 3_000] {
            let (table, clock) = (table(bound), ManualClock::new());
            for number in 0..6 * bound as u64 {
                let random = fingerprint(number);
                let cost = u32::try_from(random % 6).unwrap();
                let key = fingerprint(1_000_000 + random / 6 % (2 * bound as u64));
                allows(&table, &clock, key, cost);
                if number % 31 == 0 {
                    let seconds = random % 7;
                    clock.advance(std::time::Duration::from_secs(seconds));
                }
                if number % 97 == 0 {
                    assert_no_time_is_too_late(&table, clock_of(&clock));
                }
                assert!(table.fill().keys <= bound);
            }
        }
    }

    #[test]
    fn a_page_that_was_split_off_is_known_to_have_what_was_moved_there() {
        let (table, clock) = (table(3_000), ManualClock::new());
        for number in 0..3_000 {
            assert!(allows(&table, &clock, fingerprint(number), LIMIT));
            let now = clock_of(&clock);
            if number > 1_000 {
                assert_no_time_is_too_late(&table, now);
            }
        }
    }

    #[test]
    fn a_newcomer_that_was_not_charged_can_go_at_once() {
        let (table, clock) = (table(100), ManualClock::new());
        let now = clock_of(&clock);
        let ask = Ask {
            fingerprint: fingerprint(7),
            cost: 1,
        };
        let (_, snapshot) = Counter::snapshot(&table, ask, None, Counted::Apart, &clock);
        let mut lock = Tier::lock(&table, &snapshot).ok().unwrap();
        assert!(matches!(
            Tier::place(&table, &snapshot, ask, &mut lock, now),
            Ok(true)
        ));
        Tier::may_go(&table, &snapshot, now);
        drop(lock);
        assert_no_time_is_too_late(&table, now);
        // It is charged when it comes again, and is no newcomer then.
        assert!(allows(&table, &clock, ask.fingerprint, 1));
        assert_no_time_is_too_late(&table, now);
    }

    /// A clock that stands still reads the same for all.
    fn clock_of(clock: &ManualClock) -> Micros {
        use crate::clock::Clock;
        clock.now()
    }

    /// Keys of the first page, whatever the size of a table.
    fn of_one_page(numbers: std::ops::Range<u64>) -> impl Iterator<Item = u64> {
        numbers.map(|number| (number % 64) << 26 | (number / 64) << 20 | 2)
    }

    #[test]
    fn of_the_keys_of_a_page_the_closest_to_new_goes_first_and_a_refused_one_never() {
        let (table, clock) = (table(10), ManualClock::new());
        let keys: Vec<u64> = of_one_page(0..10).collect();
        let pages = keys
            .iter()
            .map(|key| table.pages.sight(*key).unwrap().index);
        assert!(pages.clone().all(|index| index == 0));
        // Of each number of requests from 1 to 5 there are two.
        for (key, cost) in keys.iter().zip((1..=LIMIT).cycle()) {
            assert!(allows(&table, &clock, *key, cost));
        }
        let newcomers: Vec<u64> = of_one_page(10..19).collect();
        for (count, newcomer) in newcomers.iter().enumerate() {
            assert!(allows(&table, &clock, *newcomer, LIMIT));
            let left = |cost: u32| {
                let keys = keys.iter().zip((1..=LIMIT).cycle());
                let mut alike = keys.filter(|(_, other)| *other == cost);
                let left = alike.by_ref().filter(|(key, _)| stands(&table, **key));
                left.count()
            };
            let gone = (count + 1).min(8);
            for cost in 1..LIMIT {
                let expected = (2 * cost as usize).saturating_sub(gone).min(2);
                assert_eq!(left(cost), expected, "{cost} used, {gone} gone");
            }
            assert_eq!(left(LIMIT), 2);
        }
        let fill = table.fill();
        assert_eq!((fill.keys, fill.evicted, fill.overflowed), (10, 8, 1));
    }

    #[test]
    fn a_key_that_is_as_good_as_new_goes_before_the_closest_to_new() {
        let (table, clock) = (table(10), ManualClock::new());
        let keys: Vec<u64> = of_one_page(0..10).collect();
        for key in &keys[..3] {
            assert!(allows(&table, &clock, *key, LIMIT));
        }
        clock.advance(std::time::Duration::from_secs(60));
        for key in &keys[3..] {
            assert!(allows(&table, &clock, *key, 1));
        }
        for newcomer in of_one_page(10..13) {
            assert!(allows(&table, &clock, newcomer, 1));
        }
        assert!(keys[..3].iter().all(|key| !stands(&table, *key)));
        assert!(keys[3..].iter().all(|key| stands(&table, *key)));
        assert_eq!(table.fill().evicted, 0);
    }
}
