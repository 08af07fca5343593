//! The rule of slots, as a count. Time changes nothing: a store counts the slots that requests hold.

use super::Concurrency;
use crate::algorithm::State;
use crate::algorithm::step::{Fixed, Step};
use crate::clock::Micros;

impl Step for Concurrency {
    /// The number of taken slots.
    type Form = u32;

    fn read(&self, state: State) -> u32 {
        let [taken] = state.first();
        u32::try_from(taken).unwrap_or(u32::MAX)
    }

    fn write(&self, taken: u32) -> State {
        State::unless_new([taken.into(), 0, 0, 0])
    }

    fn limit(&self) -> u32 {
        self.most
    }

    fn window(&self) -> Micros {
        Micros::ZERO
    }

    fn longest_wait(&self) -> Micros {
        Micros::ZERO
    }

    fn moved_back(&self, _: &u32, _: Micros) -> Option<u32> {
        None
    }

    fn admits(&self, taken: &u32, _: Micros, cost: u32) -> bool {
        taken.checked_add(cost).is_some_and(|all| all <= self.most)
    }

    fn charge(&self, taken: &mut u32, _: Micros, cost: u32) {
        *taken = taken.saturating_add(cost);
    }

    fn settle(&self, _: &mut u32, _: Micros, _: u32) {}

    fn refund(&self, taken: &mut u32, _: Micros, units: u32) {
        *taken = taken.saturating_sub(units);
    }

    fn remaining(&self, taken: &u32, _: Micros) -> u32 {
        self.most.saturating_sub(*taken)
    }

    fn distance(&self, taken: &u32, _: Micros) -> u64 {
        (*taken).into()
    }

    /// Unknown, and returned as zero.
    fn reset_after(&self, _: &u32, _: Micros) -> Micros {
        Micros::ZERO
    }

    /// Unknown, and returned as zero.
    fn retry_after(&self, _: &u32, _: Micros, _: u32) -> Micros {
        Micros::ZERO
    }

    fn effective_window(&self, _: &u32, _: Micros) -> Micros {
        Micros::ZERO
    }
}

impl Fixed for Concurrency {
    fn words(&self, taken: u32) -> [u64; 3] {
        [taken.into(), 0, 0]
    }

    fn of_words(&self, [taken, ..]: [u64; 3]) -> u32 {
        u32::try_from(taken).unwrap_or(u32::MAX)
    }
}
