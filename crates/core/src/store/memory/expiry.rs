//! The expiry index of a table: where a key can be evicted.
//!
//! A newcomer at the bound must not look at all pages, so each page has a time in an array, and each 64 pages
//! have one too.

#[cfg(not(tower_ratelimit_loom))]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(tower_ratelimit_loom)]
use self::models::{AtomicU64, Ordering};

use crate::clock::Micros;

/// The expiry index of a table: for each page, a lower bound of the time at which a key there can be evicted.
/// A search among thousands of keys then reads a few words.
///
/// The time of a page changes under that page's lock. Pages are in groups, and the time of a group is at most
/// the earliest of its pages.
#[derive(Debug)]
pub(super) struct ExpiryIndex {
    pages: Box<[AtomicU64]>,
    groups: Box<[AtomicU64]>,
}

const GROUP: usize = 64;

/// The time of a page without keys.
const NEVER: u64 = u64::MAX;

impl ExpiryIndex {
    pub(super) fn new(pages: usize) -> Self {
        let never = |_| AtomicU64::new(NEVER);
        Self {
            pages: (0..pages).map(never).collect(),
            groups: (0..pages.div_ceil(GROUP)).map(never).collect(),
        }
    }

    /// Lowers the time of this page to `at`, if it is later.
    pub(super) fn lower_to(&self, page: usize, at: Micros) {
        lower(&self.pages[page], at.get());
        lower(&self.groups[page / GROUP], at.get());
    }

    /// Raises the time of this page to `at`, or to never.
    pub(super) fn raise_to(&self, page: usize, at: Option<Micros>) {
        self.pages[page].store(at.map_or(NEVER, Micros::get), Ordering::SeqCst);
        let group = page / GROUP;
        let known = self.groups[group].load(Ordering::SeqCst);
        let earliest = self.earliest_of(group);
        if earliest <= known {
            return;
        }
        let raised = self.groups[group].compare_exchange(
            known,
            earliest,
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        if raised.is_ok() {
            // Another page may have become earlier after its time was read here, and have left the time of
            // the group alone because that was early enough.
            lower(&self.groups[group], self.earliest_of(group));
        }
    }

    /// Returns the first page from `from` on whose time has come.
    pub(super) fn due(&self, now: Micros, from: usize) -> Option<usize> {
        // A thread that finds a page here sees the keys that were put there before.
        let is_due = |time: &AtomicU64| time.load(Ordering::Acquire) <= now.get();
        let groups = self.groups.len();
        let (group, place) = (from / GROUP, from % GROUP);
        let in_group = |group: usize, from: usize| {
            let members = self.members(group);
            let places = (from..members.len()).chain(0..from.min(members.len()));
            let mut due = places.filter(|place| is_due(&members[*place]));
            due.next().map(|place| group * GROUP + place)
        };
        (group..groups)
            .chain(0..group.min(groups))
            .filter(|group| is_due(&self.groups[*group]))
            .find_map(|found| in_group(found, if found == group { place } else { 0 }))
    }

    /// Returns whether the time of this page has come.
    pub(super) fn is_due(&self, page: usize, now: Micros) -> bool {
        self.of(page) <= now
    }

    /// Returns the time of this page.
    pub(super) fn of(&self, page: usize) -> Micros {
        Micros::new(self.pages[page].load(Ordering::SeqCst))
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<AtomicU64>() * (self.pages.len() + self.groups.len())
    }

    fn members(&self, group: usize) -> &[AtomicU64] {
        let end = self.pages.len().min((group + 1) * GROUP);
        &self.pages[group * GROUP..end]
    }

    fn earliest_of(&self, group: usize) -> u64 {
        let times = self.members(group).iter();
        times
            .map(|time| time.load(Ordering::SeqCst))
            .min()
            .unwrap_or(NEVER)
    }
}

fn lower(time: &AtomicU64, to: u64) {
    if time.load(Ordering::SeqCst) > to {
        time.fetch_min(to, Ordering::SeqCst);
    }
}

/// Checks every order in which threads can meet, by loom: see `make model`.
#[cfg(all(test, tower_ratelimit_loom))]
mod models {
    use loom::model;
    pub(super) use loom::sync::atomic::Ordering;
    use loom::sync::atomic::fence;
    use loom::sync::{Arc, atomic};
    use loom::thread::spawn;

    use super::*;

    /// Loom takes sequentially consistent accesses for acquire and release, unless there are fences.
    #[derive(Debug)]
    pub(super) struct AtomicU64(atomic::AtomicU64);

    fn fenced<R>(order: Ordering, act: impl FnOnce() -> R) -> R {
        let is_total = order == Ordering::SeqCst;
        if is_total {
            fence(order);
        }
        let result = act();
        if is_total {
            fence(order);
        }
        result
    }

    impl AtomicU64 {
        pub(super) fn new(value: u64) -> Self {
            Self(atomic::AtomicU64::new(value))
        }

        pub(super) fn load(&self, order: Ordering) -> u64 {
            fenced(order, || self.0.load(order))
        }

        pub(super) fn store(&self, value: u64, order: Ordering) {
            fenced(order, || self.0.store(value, order));
        }

        pub(super) fn fetch_min(&self, value: u64, order: Ordering) -> u64 {
            fenced(order, || self.0.fetch_min(value, order))
        }

        pub(super) fn compare_exchange(
            &self,
            current: u64,
            new: u64,
            success: Ordering,
            failure: Ordering,
        ) -> Result<u64, u64> {
            let exchange = || self.0.compare_exchange(current, new, success, failure);
            fenced(success, exchange)
        }
    }

    const NOW: Micros = Micros::new(10);

    fn at(time: u64) -> Option<Micros> {
        Some(Micros::new(time))
    }

    /// Runs both at once, each on a page of its own, as the locks of the pages guarantee.
    fn at_once(
        before: impl Fn(&ExpiryIndex) + Send + Sync + 'static,
        one: fn(&ExpiryIndex),
        other: fn(&ExpiryIndex),
        after: impl Fn(&ExpiryIndex) + Send + Sync + 'static,
    ) {
        model(move || {
            let times = Arc::new(ExpiryIndex::new(3));
            before(&times);
            let one = spawn({
                let times = Arc::clone(&times);
                move || one(&times)
            });
            other(&times);
            one.join().unwrap();
            after(&times);
        });
    }

    #[test]
    fn loom_a_page_that_becomes_due_is_found_while_another_ceases_to_be() {
        at_once(
            |times| times.lower_to(0, Micros::new(3)),
            |times| times.raise_to(0, None),
            |times| times.lower_to(1, Micros::new(5)),
            |times| assert_eq!(times.due(NOW, 0), Some(1)),
        );
    }

    #[test]
    fn loom_a_page_that_becomes_due_is_found_while_another_is_put_off() {
        at_once(
            |times| times.lower_to(0, Micros::new(3)),
            |times| times.raise_to(0, at(20)),
            |times| times.lower_to(1, Micros::new(3)),
            |times| {
                assert_eq!(times.due(NOW, 0), Some(1));
                assert_eq!(times.due(Micros::new(2), 0), None);
            },
        );
    }

    #[test]
    fn loom_both_pages_are_found_that_are_put_off_and_become_due_again() {
        at_once(
            |times| {
                times.lower_to(0, Micros::new(1));
                times.lower_to(1, Micros::new(2));
            },
            |times| {
                times.raise_to(0, None);
                times.lower_to(0, Micros::new(7));
            },
            |times| {
                times.raise_to(1, at(30));
                times.lower_to(1, Micros::new(8));
            },
            |times| {
                assert_eq!(times.due(Micros::new(7), 0), Some(0));
                times.raise_to(0, None);
                assert_eq!(times.due(Micros::new(8), 0), Some(1));
            },
        );
    }

    #[test]
    fn loom_two_pages_that_are_put_off_leave_a_third_to_be_found() {
        at_once(
            |times| {
                times.lower_to(0, Micros::new(1));
                times.lower_to(1, Micros::new(1));
                times.lower_to(2, Micros::new(9));
            },
            |times| times.raise_to(0, None),
            |times| times.raise_to(1, None),
            |times| assert_eq!(times.due(NOW, 0), Some(2)),
        );
    }
}
