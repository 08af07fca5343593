//! A seqlock over data of atomics.
//!
//! A refusal must not write: a lock that readers take would make all threads that refuse one key wait for its
//! cache line.

#[cfg(not(tower_ratelimit_loom))]
use std::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(tower_ratelimit_loom))]
use std::{hint::spin_loop, thread::yield_now};

#[cfg(tower_ratelimit_loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(tower_ratelimit_loom)]
use loom::{hint::spin_loop, thread::yield_now};

/// A seqlock: guards data that is read often and changed seldom, and readers write nothing. It counts the
/// changes, and is odd while one is under way.
///
/// A reader takes the version, reads, and checks that the version is still the same. A writer locks the
/// version that it has read, so its conclusions hold for the change as well.
///
/// The guarded data has to be atomic, since it may be read while it changes; `Relaxed` is enough.
#[derive(Debug)]
pub(super) struct Seqlock(AtomicU64);

const ONE_CHANGE: u64 = 2;
const UNDER_WAY: u64 = 1;

/// The version of data that has moved elsewhere for good. It is odd, so the fast path needs no check of its
/// own.
const RETIRED: u64 = u64::MAX;

/// Most changes take some ten instructions. A thread that waits longer than this many spins yields: the
/// change is a larger one, or its thread was suspended.
const SPINS: u32 = 64;

impl Default for Seqlock {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl Seqlock {
    /// Returns the version now, unless a change is under way. Data that is read after this is of this version, if
    /// [`still_is`](Self::still_is) returns `true`.
    #[inline]
    pub(super) fn seen_at_rest(&self) -> Option<u64> {
        let seen = self.0.load(Ordering::Acquire);
        (seen & UNDER_WAY == 0).then_some(seen)
    }

    /// Returns the version once no change is under way, or `None` if it is [retired](Lock::retire).
    #[inline]
    pub(super) fn seen(&self) -> Option<u64> {
        let mut looks = 0;
        loop {
            let seen = self.0.load(Ordering::Acquire);
            if seen & UNDER_WAY == 0 {
                return Some(seen);
            }
            if seen == RETIRED {
                return None;
            }
            looks += 1;
            if looks < SPINS {
                spin_loop();
            } else {
                yield_now();
            }
        }
    }

    /// Returns whether nothing has changed since this version was seen.
    #[inline]
    pub(super) fn still_is(&self, seen: u64) -> bool {
        // Keeps the reads of the data before the read of the version.
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
        // A reader that sees a part of the change also sees that it is under way.
        fence(Ordering::Release);
        Some(Lock {
            seqlock: self,
            next: seen,
        })
    }

    /// Begins a change once no other is under way, and returns the version that the owner of the lock reads
    /// meanwhile. Returns `None` if it is [retired](Lock::retire).
    pub(super) fn wait_and_lock(&self) -> Option<(Lock<'_>, u64)> {
        loop {
            let seen = self.seen()?;
            if let Some(lock) = self.lock(seen) {
                return Some((lock, seen | UNDER_WAY));
            }
        }
    }

    /// Retires data that no other thread has found yet.
    pub(super) fn retire_unseen(&self) {
        self.0.store(RETIRED, Ordering::Release);
    }
}

/// A change that is under way. Dropping it ends the change.
#[derive(Debug)]
pub(super) struct Lock<'a> {
    seqlock: &'a Seqlock,
    next: u64,
}

impl Lock<'_> {
    /// Marks the data as changed, so that earlier readers read again.
    #[inline]
    pub(super) fn changes(&mut self) {
        self.next = self.next.wrapping_add(ONE_CHANGE) & !UNDER_WAY;
    }

    /// Leaves the seqlock locked for good: the guarded data has moved elsewhere.
    pub(super) fn retire(mut self) {
        self.next = RETIRED;
    }
}

impl Drop for Lock<'_> {
    #[inline]
    fn drop(&mut self) {
        self.seqlock.0.store(self.next, Ordering::Release);
    }
}

#[cfg(all(test, not(tower_ratelimit_loom)))]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_version_comes_again() {
        let seqlock = Seqlock::default();
        let mut seen = HashSet::new();
        for _ in 0..100 {
            let (mut lock, under_way) = seqlock.wait_and_lock().unwrap();
            lock.changes();
            drop(lock);
            assert!(seen.insert(under_way) && !seqlock.still_is(under_way));
            assert!(seen.insert(seqlock.seen_at_rest().unwrap()));
        }
    }
}

/// Checks every order in which threads can meet, by loom: see `make model`.
#[cfg(all(test, tower_ratelimit_loom))]
mod models {
    use loom::model;
    use loom::sync::Arc;
    use loom::thread::spawn;

    use super::*;

    /// Two words that are always written together, and are always equal.
    #[derive(Default)]
    struct Pair {
        seqlock: Seqlock,
        words: [AtomicU64; 2],
    }

    impl Pair {
        fn words(&self) -> [u64; 2] {
            self.words
                .each_ref()
                .map(|word| word.load(Ordering::Relaxed))
        }

        fn read(&self) -> Option<[u64; 2]> {
            let seen = self.seqlock.seen().unwrap();
            let words = self.words();
            self.seqlock.still_is(seen).then_some(words)
        }

        fn write(&self, lock: &mut Lock<'_>, value: u64) {
            lock.changes();
            for word in &self.words {
                word.store(value, Ordering::Relaxed);
            }
        }

        /// Does what a decision does: changes what it has read, if that is still the same.
        fn admit(&self, limit: u64) -> bool {
            loop {
                let seen = self.seqlock.seen().unwrap();
                let [used, again] = self.words();
                if self.seqlock.still_is(seen) {
                    assert_eq!(used, again, "a decision is made on a torn pair");
                    if used >= limit {
                        return false;
                    }
                    if let Some(mut lock) = self.seqlock.lock(seen) {
                        self.write(&mut lock, used + 1);
                        return true;
                    }
                }
                spin_loop();
            }
        }
    }

    fn assert_whole(read: Option<[u64; 2]>) {
        if let Some([left, right]) = read {
            assert_eq!(left, right, "a torn pair is read");
        }
    }

    #[test]
    fn loom_no_torn_pair_is_read_while_one_thread_writes() {
        model(|| {
            let pair = Arc::new(Pair::default());
            let writer = spawn({
                let pair = Arc::clone(&pair);
                move || {
                    for value in 1..=2 {
                        pair.write(&mut pair.seqlock.wait_and_lock().unwrap().0, value);
                    }
                }
            });
            assert_whole(pair.read());
            writer.join().unwrap();
            assert_eq!(pair.read(), Some([2, 2]));
        });
    }

    #[test]
    fn loom_no_torn_pair_is_read_while_two_threads_write() {
        // All orders take minutes; those with at most three preemptions take a second.
        let mut some = model::Builder::new();
        some.preemption_bound = Some(3);
        some.check(|| {
            let pair = Arc::new(Pair::default());
            let writers = [1, 2].map(|value| {
                let pair = Arc::clone(&pair);
                spawn(move || pair.write(&mut pair.seqlock.wait_and_lock().unwrap().0, value))
            });
            assert_whole(pair.read());
            for writer in writers {
                writer.join().unwrap();
            }
            assert!(matches!(pair.read(), Some([1, 1] | [2, 2])));
        });
    }

    #[test]
    fn loom_two_requests_that_see_room_for_one_admit_one() {
        model(|| {
            let pair = Arc::new(Pair::default());
            let other = spawn({
                let pair = Arc::clone(&pair);
                move || pair.admit(1)
            });
            let one = pair.admit(1);
            assert!(one ^ other.join().unwrap());
            assert_eq!(pair.read(), Some([1, 1]));
        });
    }

    #[test]
    fn loom_no_charge_is_lost() {
        model(|| {
            let pair = Arc::new(Pair::default());
            let others = [(); 2].map(|()| {
                let pair = Arc::clone(&pair);
                spawn(move || pair.admit(2))
            });
            let admitted = others.map(|other| other.join().unwrap());
            assert_eq!(admitted, [true, true]);
            assert!(!pair.admit(2));
            assert_eq!(pair.read(), Some([2, 2]));
        });
    }

    #[test]
    fn loom_a_lock_under_which_nothing_changes_lets_readers_and_writers_stand() {
        model(|| {
            let pair = Arc::new(Pair::default());
            let seen = pair.seqlock.seen().unwrap();
            let other = spawn({
                let pair = Arc::clone(&pair);
                move || drop(pair.seqlock.wait_and_lock())
            });
            assert_eq!(pair.words(), [0, 0]);
            other.join().unwrap();
            assert!(pair.seqlock.still_is(seen));
            assert!(pair.seqlock.lock(seen).is_some());
        });
    }

    /// Models the split of a page: a key moves to another page, and a thread that looks it up meanwhile
    /// charges it where it is, or looks again. A thread that has found it need not read the size a second
    /// time.
    #[test]
    fn loom_a_key_that_moves_is_charged_where_it_is() {
        const ABSENT: u64 = 0;

        #[derive(Default)]
        struct Pages {
            size: AtomicU64,
            versions: [Seqlock; 2],
            keys: [AtomicU64; 2],
        }

        impl Pages {
            fn split(&self) {
                let (mut lock, _) = self.versions[0].wait_and_lock().unwrap();
                lock.changes();
                let key = self.keys[0].load(Ordering::Relaxed);
                self.keys[1].store(key, Ordering::Relaxed);
                self.keys[0].store(ABSENT, Ordering::Relaxed);
                self.size.store(1, Ordering::Release);
            }

            fn charge(&self) -> Option<()> {
                let page = usize::from(self.size.load(Ordering::Acquire) == 1);
                let version = &self.versions[page];
                let seen = version.seen_at_rest()?;
                let key = self.keys[page].load(Ordering::Relaxed);
                if key == ABSENT {
                    return None;
                }
                let mut lock = version.lock(seen)?;
                lock.changes();
                self.keys[page].store(key + 1, Ordering::Relaxed);
                Some(())
            }
        }

        model(|| {
            let pages = Arc::new(Pages::default());
            pages.keys[0].store(1, Ordering::Relaxed);
            let other = spawn({
                let pages = Arc::clone(&pages);
                move || pages.charge().is_some()
            });
            pages.split();
            let charged = pages.charge().is_some();
            let charged = u64::from(charged) + u64::from(other.join().unwrap());
            assert!(charged > 0, "a thread failed without another in its way");
            let keys = pages.keys.each_ref().map(|key| key.load(Ordering::Relaxed));
            assert_eq!(keys, [ABSENT, 1 + charged]);
        });
    }

    /// Models the move of a page to another table: a charge is made where the page is, and the move happens
    /// once.
    #[test]
    fn loom_a_page_that_moves_for_good_is_charged_where_it_is() {
        #[derive(Default)]
        struct Tables {
            packed: Pair,
            wide: Pair,
        }

        impl Tables {
            fn retire(&self) {
                let Some((mut lock, _)) = self.packed.seqlock.wait_and_lock() else {
                    return;
                };
                lock.changes();
                let [used, _] = self.packed.words();
                let mut of_wide = self.wide.seqlock.wait_and_lock().unwrap().0;
                let [before, _] = self.wide.words();
                self.wide.write(&mut of_wide, before + used);
                drop(of_wide);
                lock.retire();
            }

            fn charge(&self) {
                loop {
                    let (pair, seen) = match self.packed.seqlock.seen() {
                        Some(seen) => (&self.packed, seen),
                        None => (&self.wide, self.wide.seqlock.seen().unwrap()),
                    };
                    let [used, _] = pair.words();
                    if let Some(mut lock) = pair.seqlock.lock(seen) {
                        pair.write(&mut lock, used + 1);
                        return;
                    }
                    spin_loop();
                }
            }
        }

        model(|| {
            let tables = Arc::new(Tables::default());
            let other = spawn({
                let tables = Arc::clone(&tables);
                move || {
                    tables.charge();
                    tables.retire();
                }
            });
            tables.retire();
            tables.charge();
            other.join().unwrap();
            assert_eq!(tables.packed.seqlock.seen(), None);
            assert_eq!(tables.wide.read(), Some([2, 2]));
        });
    }

    /// Models a charge of two policies: both are read, both are locked in the same order, and either both are
    /// charged or none is.
    #[test]
    fn loom_of_two_policies_both_are_charged_or_none() {
        fn admit(policies: &[Pair; 2]) -> bool {
            loop {
                let seen = policies
                    .each_ref()
                    .map(|policy| policy.seqlock.seen().unwrap());
                let used = policies.each_ref().map(Pair::words);
                let mut stands = policies.iter().zip(seen);
                if stands.all(|(policy, seen)| policy.seqlock.still_is(seen)) {
                    if used.iter().any(|[used, _]| *used >= 1) {
                        return false;
                    }
                    if let Some(mut first) = policies[0].seqlock.lock(seen[0])
                        && let Some(mut second) = policies[1].seqlock.lock(seen[1])
                    {
                        policies[0].write(&mut first, used[0][0] + 1);
                        policies[1].write(&mut second, used[1][0] + 1);
                        return true;
                    }
                }
                spin_loop();
            }
        }

        model(|| {
            let policies = Arc::new([Pair::default(), Pair::default()]);
            let other = spawn({
                let policies = Arc::clone(&policies);
                move || admit(&policies)
            });
            // Another request concerns the second policy alone.
            let alone = policies[1].admit(1);
            let together = other.join().unwrap();
            assert!(alone ^ together);
            let charged = if together { 1 } else { 0 };
            assert_eq!(policies[0].read(), Some([charged; 2]));
            assert_eq!(policies[1].read(), Some([1, 1]));
        });
    }
}
