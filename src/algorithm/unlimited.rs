use super::State;
use super::step::Step;
use crate::clock::Micros;

/// The rule of a policy without a limit: everything passes and nothing is kept.
pub(super) struct Unlimited;

impl Step for Unlimited {
    fn limit(&self) -> u32 {
        u32::MAX
    }

    fn longest_wait(&self) -> Option<Micros> {
        None
    }

    fn moved_back(&self, _: State, _: Micros) -> State {
        State::NEW
    }

    fn admit(&self, state: State, _: Micros, _: u32) -> Option<State> {
        Some(state)
    }

    fn remaining(&self, _: State, _: Micros) -> u32 {
        u32::MAX
    }

    fn reset_after(&self, _: State, _: Micros) -> Micros {
        Micros::ZERO
    }

    fn retry_after(&self, _: State, _: Micros, _: u32) -> Option<Micros> {
        None
    }

    fn effective_window(&self, _: State, _: Micros) -> Option<Micros> {
        None
    }
}
