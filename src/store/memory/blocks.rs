use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::clock::{Clock, Micros};

/// The keys that are blocked under one policy, by their fingerprints.
///
/// They stand apart from the policy's table, so that nothing evicts them, and a decision finds out
/// by one load that there are none.
pub(super) struct Blocks {
    /// The first end of any block, or [`NEVER`] if there is no block.
    first_end: AtomicU64,
    /// How many blocked keys have a fingerprint that ends in this number. Who finds none need not
    /// look further, and does not meet others at a lock.
    marks: OnceLock<Box<[AtomicU32]>>,
    held: RwLock<Held>,
}

#[derive(Default)]
struct Held {
    by_fingerprint: BTreeMap<u64, Block>,
    ends: BTreeSet<(Micros, u64)>,
}

/// The blocks under one policy, as a snapshot has them: of each, the fingerprint of the key, when
/// it began and when it ends.
pub(super) type Blocked = Vec<(u64, Micros, Micros)>;

#[derive(Clone, Copy)]
struct Block {
    from: Micros,
    until: Micros,
}

const NEVER: u64 = u64::MAX;

const MARKS: usize = 1024;

/// How many blocks that have ended one request forgets at most, so that none is slow.
const AT_ONCE: usize = 16;

impl Blocks {
    pub(super) fn new() -> Self {
        Self {
            first_end: AtomicU64::new(NEVER),
            marks: OnceLock::new(),
            held: RwLock::default(),
        }
    }

    /// Whether anybody is blocked, or was and is not forgotten.
    #[inline]
    pub(super) fn are_any(&self) -> bool {
        self.first_end.load(Ordering::Relaxed) != NEVER
    }

    /// Whether this key may be blocked; a few are suspected that are not.
    #[inline(never)]
    pub(super) fn may_hold(&self, fingerprint: u64, now: Micros) -> bool {
        if self.first_end.load(Ordering::Relaxed) <= now.get()
            && let Ok(mut held) = self.held.try_write()
        {
            self.forget_ended(&mut held, now);
        }
        self.mark(fingerprint)
            .is_some_and(|mark| mark.load(Ordering::Relaxed) > 0)
    }

    /// How long this key is blocked yet. If the clock has stepped back behind the beginning of the
    /// block, it begins now, which is written down unless the question `only_asks`.
    pub(super) fn left(
        &self,
        fingerprint: u64,
        now: Micros,
        clock: &dyn Clock,
        only_asks: bool,
    ) -> Option<Micros> {
        if !self.may_hold(fingerprint, now) {
            return None;
        }
        let block = *self.read().by_fingerprint.get(&fingerprint)?;
        let now = if now < block.from {
            // It was blocked after the clock was read, or the clock has stepped back.
            clock.now()
        } else {
            now
        };
        let left = block.length_from(now);
        if now < block.from && !only_asks {
            let mut held = self.write();
            if let Some(block) = held.by_fingerprint.get(&fingerprint).copied() {
                self.put(&mut held, fingerprint, block.moved_back(now));
            }
        }
        (left > Micros::ZERO).then_some(left)
    }

    /// Blocks a key from now on, unless it is blocked for longer.
    pub(super) fn block(&self, fingerprint: u64, length: Micros, now: Micros) {
        let mut held = self.write();
        self.forget_ended(&mut held, now);
        let new = Block {
            from: now,
            until: now.saturating_add(length.min(Micros::LONGEST)),
        };
        let old = held.by_fingerprint.get(&fingerprint);
        let old = old.map(|block| block.moved_back(now));
        if new.until > old.map_or(now, |old| old.until) {
            self.put(&mut held, fingerprint, new);
        }
    }

    /// All blocks that are not forgotten.
    pub(super) fn each(&self) -> Blocked {
        let held = self.read();
        let blocks = held.by_fingerprint.iter();
        blocks
            .map(|(fingerprint, block)| (*fingerprint, block.from, block.until))
            .collect()
    }

    /// Puts blocks back that were kept over a restart and have not ended.
    pub(super) fn restore(&self, blocks: Blocked, now: Micros) {
        let mut held = self.write();
        for (fingerprint, from, until) in blocks {
            let until = until.min(from.saturating_add(Micros::LONGEST));
            if until > now {
                self.put(&mut held, fingerprint, Block { from, until });
            }
        }
    }

    pub(super) fn unblock(&self, fingerprint: u64) {
        let mark = self.mark(fingerprint);
        if mark.is_some_and(|mark| mark.load(Ordering::Relaxed) > 0) {
            self.remove(&mut self.write(), fingerprint);
        }
    }

    fn put(&self, held: &mut Held, fingerprint: u64, block: Block) {
        if let Some(old) = held.by_fingerprint.insert(fingerprint, block) {
            held.ends.remove(&(old.until, fingerprint));
        } else {
            let none = || (0..MARKS).map(|_| AtomicU32::new(0)).collect();
            let marks = self.marks.get_or_init(none);
            marks[place(fingerprint)].fetch_add(1, Ordering::Relaxed);
        }
        held.ends.insert((block.until, fingerprint));
        self.tell_first_end(held);
    }

    fn remove(&self, held: &mut Held, fingerprint: u64) {
        if let Some(block) = held.by_fingerprint.remove(&fingerprint) {
            held.ends.remove(&(block.until, fingerprint));
            if let Some(mark) = self.mark(fingerprint) {
                mark.fetch_sub(1, Ordering::Relaxed);
            }
            self.tell_first_end(held);
        }
    }

    fn forget_ended(&self, held: &mut Held, now: Micros) {
        for _ in 0..AT_ONCE {
            match held.ends.first() {
                Some((until, fingerprint)) if *until <= now => {
                    let fingerprint = *fingerprint;
                    self.remove(held, fingerprint);
                }
                _ => break,
            }
        }
    }

    fn tell_first_end(&self, held: &Held) {
        let first = held.ends.first().map_or(NEVER, |(until, _)| until.get());
        self.first_end.store(first, Ordering::Relaxed);
    }

    fn mark(&self, fingerprint: u64) -> Option<&AtomicU32> {
        self.marks.get()?.get(place(fingerprint))
    }

    fn read(&self) -> RwLockReadGuard<'_, Held> {
        self.held.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Held> {
        self.held.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Block {
    /// What is left of it at this moment: its whole length, at most.
    fn length_from(self, now: Micros) -> Micros {
        self.until.saturating_sub(now.max(self.from))
    }

    /// The same length, beginning no later than now.
    fn moved_back(self, now: Micros) -> Self {
        let from = self.from.min(now);
        let length = self.until.saturating_sub(self.from);
        Self {
            from,
            until: from.saturating_add(length),
        }
    }
}

fn place(fingerprint: u64) -> usize {
    const LAST: u64 = MARKS as u64 - 1;
    usize::try_from(fingerprint & LAST).unwrap_or(0)
}

#[cfg(all(test, not(tower_ratelimit_loom)))]
mod tests {
    use super::*;

    const MINUTE: Micros = Micros::from_secs(60);

    fn at(seconds: u64) -> Micros {
        Micros::from_secs(1_000 + seconds)
    }

    fn held(blocks: &Blocks) -> (usize, usize, u32) {
        let held = blocks.read();
        let marks = blocks.marks.get().into_iter().flatten();
        let marked = marks.map(|mark| mark.load(Ordering::Relaxed)).sum();
        (held.by_fingerprint.len(), held.ends.len(), marked)
    }

    #[test]
    fn blocks_that_have_ended_are_forgotten_by_those_who_ask_about_others() {
        let blocks = Blocks::new();
        assert!(!blocks.are_any());
        for key in 0..100 {
            blocks.block(key, MINUTE, at(0));
        }
        blocks.block(1_000, Micros::from_secs(3_600), at(0));
        assert_eq!(held(&blocks), (101, 101, 101));
        let mut left = Vec::new();
        for _ in 0..8 {
            assert!(!blocks.may_hold(5_555, at(60)));
            left.push(held(&blocks).0);
        }
        assert_eq!(left, [85, 69, 53, 37, 21, 5, 1, 1]);
        assert!(blocks.are_any() && blocks.may_hold(1_000, at(60)));
        blocks.may_hold(5_555, at(3_600));
        assert!(!blocks.are_any());
        assert_eq!(held(&blocks), (0, 0, 0));
    }

    #[test]
    fn whoever_shares_a_mark_with_a_blocked_key_is_not_blocked() {
        let clock = crate::clock::ManualClock::new();
        let blocks = Blocks::new();
        let now = clock.now();
        blocks.block(7, MINUTE, now);
        let other = 7 + MARKS as u64;
        assert!(blocks.may_hold(other, now));
        assert_eq!(blocks.left(other, now, &clock, false), None);
        assert_eq!(blocks.left(7, now, &clock, false), Some(MINUTE));
        blocks.unblock(other);
        assert_eq!(blocks.left(7, now, &clock, false), Some(MINUTE));
    }

    #[test]
    fn a_key_that_is_blocked_again_takes_no_more_room() {
        let blocks = Blocks::new();
        for second in 0..50 {
            blocks.block(7, MINUTE, at(second));
        }
        assert_eq!(held(&blocks), (1, 1, 1));
        blocks.unblock(7);
        assert_eq!(held(&blocks), (0, 0, 0));
        assert!(!blocks.are_any());
    }
}
