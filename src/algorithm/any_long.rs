//! A rule of any algorithm whose states have any number of words.

#[cfg(feature = "calendar")]
use super::by_hours::Timed;
use super::step::{Step, each_question};
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
            #[cfg(feature = "calendar")]
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

/// Declares the methods, each of which calls the rule of the algorithm.
macro_rules! declare {
    (
        rule { $(fn $of:ident($($given:ident: $type:ty),*) -> $is:ty;)+ }
        judge { $(fn $judge:ident($($judged:ident: $judged_type:ty),+) -> $verdict:ty;)+ }
        ask { $(fn $ask:ident($($asked:ident: $asked_type:ty),+) -> $answer:ty;)+ }
        change { $(fn $change:ident($now:ident: $now_type:ty, $units:ident: $units_type:ty);)+ }
    ) => {
        impl Step for AnyLong {
            type Form = State;

            fn read(&self, state: State) -> State {
                state
            }

            fn write(&self, state: State) -> State {
                state
            }

            fn charge(&self, state: &mut State, now: Micros, cost: u32) {
                ask!(self, rule => rule.charge(state, now, cost));
            }

            fn moved_back(&self, state: &State, now: Micros) -> Option<State> {
                ask!(self, rule => rule.moved_back(state, now))
            }

            fn size(&self, state: &State) -> usize {
                ask!(self, rule => rule.size(state))
            }

            fn compact_state(&self, state: &mut State) {
                ask!(self, rule => rule.compact_state(state));
            }

            $(fn $of(&self, $($given: $type),*) -> $is {
                ask!(self, rule => Step::$of(&rule, $($given),*))
            })+

            $(fn $judge(&self, state: &State, $($judged: $judged_type),+) -> $verdict {
                ask!(self, rule => rule.$judge(state, $($judged),+))
            })+

            $(fn $ask(&self, state: &State, $($asked: $asked_type),+) -> $answer {
                ask!(self, rule => rule.$ask(state, $($asked),+))
            })+

            $(fn $change(&self, state: &mut State, $now: $now_type, $units: $units_type) {
                ask!(self, rule => rule.$change(state, $now, $units));
            })+
        }
    };
}

each_question!(declare);
