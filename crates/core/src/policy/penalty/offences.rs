//! The refusals and blocks of one key, and the rule that begins a block.
//!
//! The same rule in Lua is `state.lua`; both are tested against each other.

use smallvec::SmallVec;

use super::Penalty;
use crate::clock::Micros;

/// The refusals of a key that may still count, and its blocks. `state.lua` has the same rule for Redis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offences {
    /// The number of blocks of the key so far.
    blocks: u32,
    /// When the blocks are forgotten.
    until: Micros,
    /// The times of its refusals, in order.
    refusals: SmallVec<[Micros; 4]>,
}

/// A larger number of blocks does not lengthen the next one.
const MOST_BLOCKS: u32 = 64;

impl Offences {
    /// Reads what [`words`](Self::words) has written. Other words are read as an empty record.
    pub(crate) fn of_words(words: &[u64]) -> Self {
        let [blocks, until, refusals @ ..] = words else {
            return Self::default();
        };
        Self {
            blocks: u32::try_from(*blocks)
                .unwrap_or(MOST_BLOCKS)
                .min(MOST_BLOCKS),
            until: Micros::new(*until),
            refusals: refusals.iter().copied().map(Micros::new).collect(),
        }
    }

    pub(crate) fn words(&self) -> SmallVec<[u64; 6]> {
        let refusals = self.refusals.iter().copied();
        let words = [Micros::new(self.blocks.into()), self.until];
        words.into_iter().chain(refusals).map(Micros::get).collect()
    }

    /// Records a refusal, and returns the length of the block that begins with it, if one does.
    pub(crate) fn note(
        &mut self,
        now: Micros,
        penalty: &Penalty,
        is_blocked: bool,
    ) -> Option<Micros> {
        if is_blocked {
            if !penalty.is_extended {
                return None;
            }
            let length = penalty.length(self.blocks.saturating_sub(1));
            self.until = now.saturating_add(length).saturating_add(penalty.memory);
            return Some(length);
        }
        // The clock may have stepped back: nothing counts for longer than from now on.
        let longest = penalty.most().saturating_add(penalty.memory);
        self.until = self.until.min(now.saturating_add(longest));
        if self.until <= now {
            self.blocks = 0;
        }
        for refusal in &mut self.refusals {
            *refusal = (*refusal).min(now);
        }
        self.refusals
            .retain(|refusal| now.saturating_sub(*refusal) < penalty.within);
        self.refusals.push(now);
        if self.refusals.len() < penalty.refusals as usize {
            return None;
        }
        let length = penalty.length(self.blocks);
        self.blocks = (self.blocks + 1).min(MOST_BLOCKS);
        self.until = now.saturating_add(length).saturating_add(penalty.memory);
        self.refusals.clear();
        Some(length)
    }

    /// Returns how many refusals count now.
    pub(crate) fn counting(&self, now: Micros, penalty: &Penalty) -> u32 {
        let refusals = self.refusals.iter();
        let counting = refusals.filter(|refusal| now.saturating_sub(**refusal) < penalty.within);
        u32::try_from(counting.count()).unwrap_or(u32::MAX)
    }

    /// Returns the moment from which nothing of it counts.
    pub(crate) fn last_until(&self, penalty: &Penalty) -> Micros {
        let refusals = self.refusals.last();
        let refusals = refusals.map(|refusal| refusal.saturating_add(penalty.within));
        let blocks = if self.blocks > 0 {
            self.until
        } else {
            Micros::ZERO
        };
        blocks.max(refusals.unwrap_or(Micros::ZERO))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Micros {
        Micros::from_secs(1_000_000 + seconds)
    }

    fn noted(offences: &mut Offences, penalty: &Penalty, times: &[u64]) -> Vec<Option<u64>> {
        let note = |second: &u64| offences.note(at(*second), penalty, false);
        let lengths = times.iter().map(note);
        lengths
            .map(|length| Some(length?.get() / 1_000_000))
            .collect()
    }

    #[test]
    fn any_span_of_the_time_that_has_so_many_refusals_blocks() {
        let penalty = Penalty::after(3, MINUTE);
        let mut offences = Offences::default();
        // The first refusal is 60 seconds old when the third comes, and the second one is younger when the
        // fourth comes.
        for (second, counting) in [(0, 1), (50, 2), (60, 2)] {
            assert_eq!(noted(&mut offences, &penalty, &[second]), [None]);
            assert_eq!(offences.counting(at(second), &penalty), counting);
        }
        let lengths = noted(&mut offences, &penalty, &[100]);
        assert_eq!(lengths, [Some(60)]);
        assert_eq!(offences.counting(at(100), &penalty), 0);
        // Each of them counts once.
        let lengths = noted(&mut offences, &penalty, &[161, 162, 163]);
        assert_eq!(lengths, [None, None, Some(60)]);
    }

    #[test]
    fn blocks_grow_up_to_the_most_and_are_forgotten() {
        let penalty = Penalty::after(1, MINUTE)
            .block(MINUTE)
            .times(3)
            .up_to(10 * MINUTE);
        let penalty = penalty.forget_after(MINUTE);
        let mut offences = Offences::default();
        let lengths = noted(&mut offences, &penalty, &[0, 100, 339, 938, 1_597, 2_257]);
        assert_eq!(
            lengths,
            [
                Some(60),
                Some(180),
                Some(540),
                Some(600),
                Some(600),
                Some(60)
            ]
        );
    }

    #[test]
    fn a_refusal_during_a_block_counts_nothing_and_lengthens_it_if_that_was_said() {
        let penalty = Penalty::after(2, MINUTE).times(2);
        let mut offences = Offences::default();
        assert_eq!(noted(&mut offences, &penalty, &[0, 1]), [None, Some(60)]);
        let before = offences.clone();
        assert_eq!(offences.note(at(2), &penalty, true), None);
        assert_eq!(offences.refusals, before.refusals);
        assert_eq!(offences.blocks, 1);
        let extended = penalty.extended_by_refusals();
        let length = offences.note(at(2), &extended, true);
        assert_eq!(length, Some(Micros::from_secs(60)));
    }

    #[test]
    fn a_clock_that_steps_back_makes_nothing_count_for_longer() {
        let penalty = Penalty::after(3, MINUTE).forget_after(MINUTE);
        let mut offences = Offences::default();
        noted(&mut offences, &penalty, &[5_000, 5_001, 5_002]);
        noted(&mut offences, &penalty, &[5_100]);
        assert_eq!(noted(&mut offences, &penalty, &[0, 59]), [None, Some(60)]);
        let until = offences.last_until(&penalty);
        assert!(until <= at(59 + 120), "{until:?}");
    }

    #[test]
    fn written_values_are_read_back() {
        let penalty = Penalty::after(3, MINUTE);
        let mut offences = Offences::default();
        noted(&mut offences, &penalty, &[0, 1, 2, 70, 71]);
        assert_eq!(Offences::of_words(&offences.words()), offences);
        assert_eq!(Offences::of_words(&[]), Offences::default());
        // Refusals from the future count as refusals of now, and block for no longer than others.
        let mut hostile = Offences::of_words(&[u64::MAX; 200]);
        let length = hostile.note(at(0), &penalty, false);
        assert_eq!(length, Some(penalty.length(MOST_BLOCKS)));
    }
}
