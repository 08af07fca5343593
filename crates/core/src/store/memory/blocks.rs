//! The blocks of keys in memory, beside the tables.
//!
//! A block must survive eviction and a change of the algorithm, so it is not part of a state.

use super::offenders::{Offenders, TOO_MANY};
use super::timed::{Span, Timed};
use crate::clock::{Clock, Micros};
use crate::diagnostics::warn_once_of;
use crate::policy::NamedPenalty;

/// The blocked keys of one policy, by their fingerprints, and the keys whose refusals count for a penalty.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    blocked: Timed<()>,
    offenders: Offenders,
}

/// The number of keys that penalties block at most. Beyond that they block no further key.
const MOST_PENALTIES: usize = 262_144;

/// The blocks of one policy in a snapshot: for each the fingerprint of the key, its beginning and its end.
pub(super) type Blocked = Vec<(u64, Micros, Micros)>;

impl Blocks {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Returns whether any key has a block, which may have ended and not be removed yet.
    #[inline]
    pub(super) fn are_any(&self) -> bool {
        self.blocked.are_any()
    }

    /// Returns whether this key may be blocked. It is `true` for a few keys that are not.
    pub(super) fn may_hold(&self, fingerprint: u64, now: Micros) -> bool {
        self.blocked.may_hold(fingerprint, now)
    }

    /// Returns how much longer this key is blocked: see [`Timed::find`].
    pub(super) fn left(
        &self,
        fingerprint: u64,
        now: Micros,
        clock: &dyn Clock,
        only_asks: bool,
    ) -> Option<Micros> {
        let found = self.blocked.find(fingerprint, now, clock, only_asks);
        found.map(|((), left)| left)
    }

    /// Blocks a key from now on, unless it is already blocked for longer.
    pub(super) fn block(&self, fingerprint: u64, length: Micros, now: Micros) {
        let new = Span::new((), now, length);
        if new.until == now {
            return;
        }
        let is_longer = |old: Span<()>| new.until <= old.until.max(now);
        // The number of blocks has no bound.
        let _ = self.blocked.put(fingerprint, new, usize::MAX, is_longer);
    }

    /// Counts a refusal of this key, and blocks the key if the penalty asks for it. Returns the length of a
    /// new block.
    pub(super) fn note_refusal(
        &self,
        fingerprint: u64,
        penalty: &NamedPenalty,
        clock: &dyn Clock,
    ) -> Option<Micros> {
        let now = clock.now();
        let is_blocked = || self.left(fingerprint, now, clock, false).is_some();
        let block = |length| {
            let new = Span::new((), now, length);
            let mut begins = true;
            let is_longer = |old: Span<()>| {
                begins = new.until > old.until.max(now);
                !begins
            };
            let put = self
                .blocked
                .put(fingerprint, new, MOST_PENALTIES, is_longer);
            if put.is_err() {
                warn_once_of(&TOO_MANY, format!("policy {:?}", penalty.policy));
            }
            put.is_ok() && begins
        };
        self.offenders
            .note(fingerprint, now, penalty, is_blocked, block)
    }

    /// Returns how many refusals of this key count now.
    pub(super) fn refusals(
        &self,
        fingerprint: u64,
        penalty: &NamedPenalty,
        clock: &dyn Clock,
    ) -> u32 {
        self.offenders
            .counting(fingerprint, clock.now(), &penalty.penalty)
    }

    /// Returns the moment at which the last block has ended and the last refusal counts no more.
    pub(super) fn last_end(&self) -> Option<Micros> {
        self.blocked.last_end().max(self.offenders.last_end())
    }

    /// Returns all blocks that are not removed.
    pub(super) fn each(&self) -> Blocked {
        let spans = self.blocked.each().into_iter();
        spans
            .map(|(fingerprint, span)| (fingerprint, span.from, span.until))
            .collect()
    }

    /// Restores the blocks of a snapshot that have not ended.
    pub(super) fn restore(&self, blocks: Blocked, now: Micros) {
        let spans = blocks.into_iter().map(|(fingerprint, from, until)| {
            let what = ();
            (fingerprint, Span { what, from, until })
        });
        self.blocked.restore(spans, now);
    }

    /// Ends the block of a key, and removes its refusals. Returns whether the key was blocked.
    pub(super) fn unblock(&self, fingerprint: u64, now: Micros) -> bool {
        self.offenders.clear(fingerprint);
        let ended = self.blocked.end(fingerprint);
        ended.is_some_and(|block| block.length_from(now) > Micros::ZERO)
    }
}

#[cfg(all(test, not(tower_ratelimit_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::algorithm::FixedWindow;
    use crate::clock::ManualClock;
    use crate::policy::{Penalty, Policy};
    use crate::store::memory::timed::MARKS;

    const MINUTE: Micros = Micros::from_secs(60);

    fn at(seconds: u64) -> Micros {
        Micros::from_secs(1_000 + seconds)
    }

    fn counts(blocks: &Blocks) -> (usize, usize, u32) {
        blocks.blocked.sizes()
    }

    #[test]
    fn blocks_that_have_ended_are_forgotten_by_requests_of_others() {
        let blocks = Blocks::new();
        assert!(!blocks.are_any());
        for key in 0..100 {
            blocks.block(key, MINUTE, at(0));
        }
        blocks.block(1_000, Micros::from_secs(3_600), at(0));
        assert_eq!(counts(&blocks), (101, 101, 101));
        let mut left = Vec::new();
        for _ in 0..8 {
            assert!(!blocks.may_hold(5_555, at(60)));
            left.push(counts(&blocks).0);
        }
        assert_eq!(left, [85, 69, 53, 37, 21, 5, 1, 1]);
        assert!(blocks.are_any() && blocks.may_hold(1_000, at(60)));
        blocks.may_hold(5_555, at(3_600));
        assert!(!blocks.are_any());
        assert_eq!(counts(&blocks), (0, 0, 0));
    }

    #[test]
    fn a_key_that_shares_a_mark_with_a_blocked_key_is_not_blocked() {
        let clock = ManualClock::new();
        let blocks = Blocks::new();
        let now = clock.now();
        blocks.block(7, MINUTE, now);
        let other = 7 + MARKS as u64;
        assert!(blocks.may_hold(other, now));
        assert_eq!(blocks.left(other, now, &clock, false), None);
        assert_eq!(blocks.left(7, now, &clock, false), Some(MINUTE));
        assert!(!blocks.unblock(other, now));
        assert_eq!(blocks.left(7, now, &clock, false), Some(MINUTE));
    }

    #[test]
    fn a_penalty_blocks_so_many_keys_and_no_more_until_their_blocks_end() {
        let (clock, blocks) = (ManualClock::new(), Blocks::new());
        let penalty = Penalty::after(1, Duration::from_secs(60));
        let policy = Policy::new("closed", FixedWindow::per_minute(0)).penalty(penalty);
        let penalty = policy.named_penalty().unwrap();
        let most = MOST_PENALTIES as u64;
        let refused = |key| blocks.note_refusal(key, &penalty, &clock);
        assert!((0..most).all(|key| refused(key) == Some(MINUTE)));
        assert_eq!(refused(most), None);
        assert_eq!(counts(&blocks).0, MOST_PENALTIES);
        clock.advance(MINUTE.to_duration());
        assert_eq!(refused(most), Some(MINUTE));
        assert!(counts(&blocks).0 < MOST_PENALTIES);
    }

    #[test]
    fn a_key_that_is_blocked_again_takes_no_more_room() {
        let blocks = Blocks::new();
        for second in 0..50 {
            blocks.block(7, MINUTE, at(second));
        }
        assert_eq!(counts(&blocks), (1, 1, 1));
        assert!(blocks.unblock(7, at(49)));
        assert!(!blocks.unblock(7, at(49)));
        assert_eq!(counts(&blocks), (0, 0, 0));
        assert!(!blocks.are_any());
    }
}
