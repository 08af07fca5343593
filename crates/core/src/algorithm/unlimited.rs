//! The rule without a limit.

use super::State;
use super::step::Step;
use crate::clock::Micros;

/// The rule of a policy without a limit: every request passes, and the store keeps nothing.
#[derive(Clone, Copy)]
pub(super) struct Unlimited;

impl Step for Unlimited {
    type Form = State;

    fn read(&self, state: State) -> State {
        state
    }

    fn write(&self, state: State) -> State {
        state
    }

    fn limit(&self) -> u32 {
        u32::MAX
    }

    fn window(&self) -> Micros {
        Micros::ZERO
    }

    fn longest_wait(&self) -> Micros {
        Micros::ZERO
    }

    fn moved_back(&self, _: &State, _: Micros) -> Option<State> {
        None
    }

    fn admits(&self, _: &State, _: Micros, _: u32) -> bool {
        true
    }

    fn charge(&self, _: &mut State, _: Micros, _: u32) {}

    fn settle(&self, _: &mut State, _: Micros, _: u32) {}

    fn refund(&self, _: &mut State, _: Micros, _: u32) {}

    fn remaining(&self, _: &State, _: Micros) -> u32 {
        u32::MAX
    }

    fn distance(&self, _: &State, _: Micros) -> u64 {
        0
    }

    fn reset_after(&self, _: &State, _: Micros) -> Micros {
        Micros::ZERO
    }

    fn retry_after(&self, _: &State, _: Micros, _: u32) -> Micros {
        Micros::ZERO
    }

    fn effective_window(&self, _: &State, _: Micros) -> Micros {
        Micros::ZERO
    }
}
