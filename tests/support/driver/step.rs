//! The step of an algorithm itself.

use tower_ratelimit::algorithm::{Limit, State};
use tower_ratelimit::{Algorithm, Micros};

use super::{Driver, Limited, Seen};

/// The algorithm's pure step.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) algorithm: Algorithm,
    pub(crate) state: State,
}

impl Driver for Step {
    fn new(algorithm: Algorithm) -> Self {
        Self {
            algorithm,
            state: State::NEW,
        }
    }

    fn decide(&mut self, at: u64, cost: u32) -> Seen {
        let (outcome, state) = self
            .algorithm
            .step(self.state.clone(), Micros::new(at), cost);
        if cost > 0 {
            self.state = state;
        }
        Seen::from(&outcome)
    }

    fn peek(&mut self, at: u64, cost: u32) -> Seen {
        let (outcome, _) = self
            .algorithm
            .step(self.state.clone(), Micros::new(at), cost);
        Seen::from(&outcome)
    }

    fn refund(&mut self, at: u64, units: u32) {
        let state = self.state.clone();
        self.state = self.algorithm.refund(state, Micros::new(at), units);
    }

    fn settle(&mut self, at: u64, units: u32) {
        let state = self.state.clone();
        self.state = self.algorithm.settle(state, Micros::new(at), units);
    }

    fn reset(&mut self, _: u64) {
        self.state = State::NEW;
    }

    fn fork(&self) -> Self {
        self.clone()
    }

    fn state(&self) -> Option<State> {
        Some(self.state.clone())
    }
}

impl Limited for Step {
    fn under(&mut self, algorithm: Algorithm, _: Limit) {
        self.algorithm = algorithm;
    }
}
