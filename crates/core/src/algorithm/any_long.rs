//! A rule of any algorithm whose states have any number of words.

use super::by_hours::Timed;
use super::step::Step;
use super::unlimited::Unlimited;
use super::{Algorithm, Limit, State};
use crate::clock::Micros;
use crate::decision::Outcome;

/// The rule of any algorithm whose states have any number of words, under any limit, which may depend on the hour. One
/// table of memory for all of them is less code than one for each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnyLong(Algorithm);

impl AnyLong {
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        Self(algorithm)
    }

    /// Returns the rule under this limit at all hours, if it can have it.
    pub(crate) fn limited(self, limit: Limit) -> Self {
        self.0.without_hours().under(limit).map_or(self, Self)
    }
}

/// Calls the rule of the algorithm.
macro_rules! ask {
    ($any:expr, $rule:ident => $value:expr) => {
        match $any.0 {
            Algorithm::SlidingLog($rule) => $value,
            Algorithm::SlidingSlots($rule) => $value,
            Algorithm::ByHours(hours) => {
                let $rule = Timed::<AnyLong>::new(hours);
                $value
            }
            _ => {
                let $rule = Unlimited;
                $value
            }
        }
    };
}

/// Each method calls the rule of the algorithm.
impl Step for AnyLong {
    type Form = State;

    fn read(&self, state: State) -> State {
        state
    }

    fn write(&self, state: State) -> State {
        state
    }

    fn limit(&self) -> u32 {
        ask!(self, rule => rule.limit())
    }

    fn limit_at(&self, now: Micros) -> u32 {
        ask!(self, rule => rule.limit_at(now))
    }

    fn window(&self) -> Micros {
        ask!(self, rule => rule.window())
    }

    fn longest_wait(&self) -> Micros {
        ask!(self, rule => Step::longest_wait(&rule))
    }

    fn moved_back(&self, state: &State, now: Micros) -> Option<State> {
        ask!(self, rule => rule.moved_back(state, now))
    }

    fn admits(&self, state: &State, now: Micros, cost: u32) -> bool {
        ask!(self, rule => rule.admits(state, now, cost))
    }

    fn allows(&self, state: &State, now: Micros, cost: u32) -> bool {
        ask!(self, rule => rule.allows(state, now, cost))
    }

    fn charge(&self, state: &mut State, now: Micros, cost: u32) {
        ask!(self, rule => rule.charge(state, now, cost));
    }

    fn settle(&self, state: &mut State, now: Micros, units: u32) {
        ask!(self, rule => rule.settle(state, now, units));
    }

    fn refund(&self, state: &mut State, now: Micros, units: u32) {
        ask!(self, rule => rule.refund(state, now, units));
    }

    fn remaining(&self, state: &State, now: Micros) -> u32 {
        ask!(self, rule => rule.remaining(state, now))
    }

    fn distance(&self, state: &State, now: Micros) -> u64 {
        ask!(self, rule => rule.distance(state, now))
    }

    fn reset_after(&self, state: &State, now: Micros) -> Micros {
        ask!(self, rule => rule.reset_after(state, now))
    }

    fn retry_after(&self, state: &State, now: Micros, cost: u32) -> Micros {
        ask!(self, rule => rule.retry_after(state, now, cost))
    }

    fn effective_window(&self, state: &State, now: Micros) -> Micros {
        ask!(self, rule => rule.effective_window(state, now))
    }

    fn size(&self, state: &State) -> usize {
        ask!(self, rule => rule.size(state))
    }

    fn compact_state(&self, state: &mut State) {
        ask!(self, rule => rule.compact_state(state));
    }

    fn next_unit(&self, state: &State, now: Micros) -> Micros {
        ask!(self, rule => rule.next_unit(state, now))
    }

    fn outcome(&self, state: &State, now: Micros, cost: u32, allowed: bool) -> Outcome {
        ask!(self, rule => rule.outcome(state, now, cost, allowed))
    }
}
