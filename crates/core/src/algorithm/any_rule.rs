//! A rule whose limit is an argument.
//!
//! A state depends on the name, the period and the slots of its algorithm, and on no limit. A table that
//! keeps states under any limit therefore makes the rule of a request from the limit of that request. It is
//! compiled once, for all algorithms whose states have a fixed number of words.

use super::by_hours::Timed;
use super::step::{Fixed, Step, WithRule};
use super::{Algorithm, Limit, State};
use crate::clock::Micros;
use crate::decision::Outcome;

/// The rule of any algorithm whose states have a fixed number of words, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnyRule(Algorithm);

type Words = [u64; 3];

impl AnyRule {
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        Self(algorithm)
    }

    /// Returns the rule under this limit at all hours, if it can have it.
    pub(crate) fn limited(self, limit: Limit) -> Self {
        self.0.without_hours().under(limit).map_or(self, Self)
    }

    /// Returns the algorithm that decides and charges now: that of the present hours, unless a debt has to
    /// drain through other hours first.
    #[inline]
    fn in_force(&self, words: &Words, now: Micros) -> &Algorithm {
        if let Algorithm::ByHours(hours) = &self.0
            && let Some(in_force) = hours.in_force_for(words, now)
        {
            return in_force;
        }
        &self.0
    }
}

/// Calls the rule of the algorithm with the form that it reads from words. A rule without words of its own
/// gets a new key.
macro_rules! ask {
    ($any:expr, $words:expr, ($($name:ident: $type:ty),*) -> $result:ty, $rule:ident, $state:ident => $value:expr) => {{
        struct Call {
            words: Words,
            $($name: $type),*
        }

        impl WithRule for Call {
            type Result = $result;

            fn fixed(self, $rule: impl Fixed) -> $result {
                let $state = $rule.of_words(self.words);
                let Self { $($name,)* .. } = self;
                $value
            }

            fn long(self, $rule: impl Step<Form = State>) -> $result {
                let $state = State::NEW;
                let Self { $($name,)* .. } = self;
                $value
            }
        }

        $any.with_rule(Call { words: $words, $($name),* })
    }};
}

/// Lets the rule of the algorithm change words. A rule without words of its own changes nothing.
macro_rules! change {
    ($any:expr, $words:expr, ($($name:ident: $type:ty),*), $rule:ident, $state:ident => $change:expr) => {{
        struct Changing {
            words: Words,
            $($name: $type),*
        }

        impl WithRule for Changing {
            type Result = Words;

            fn fixed(self, $rule: impl Fixed) -> Words {
                let mut $state = $rule.of_words(self.words);
                let Self { $($name,)* .. } = self;
                $change;
                $rule.words($state)
            }

            fn long(self, _: impl Step<Form = State>) -> Words {
                self.words
            }
        }

        let words = $any.with_rule(Changing { words: *$words, $($name),* });
        *$words = words;
    }};
}

/// Each method calls the rule of the algorithm.
impl Step for AnyRule {
    type Form = Words;

    fn read(&self, state: State) -> Words {
        struct Reading(State);

        impl WithRule for Reading {
            type Result = Words;

            fn fixed(self, rule: impl Fixed) -> Words {
                rule.words(rule.read(self.0))
            }

            fn long(self, _: impl Step<Form = State>) -> Words {
                [0; 3]
            }
        }

        self.0.with_rule(Reading(state))
    }

    fn write(&self, words: Words) -> State {
        ask!(self.0, words, () -> State, rule, state => rule.write(state))
    }

    fn limit(&self) -> u32 {
        self.0.limit().unwrap_or(u32::MAX)
    }

    fn limit_at(&self, now: Micros) -> u32 {
        ask!(self.0, [0; 3], (now: Micros) -> u32, rule, _kept => rule.limit_at(now))
    }

    fn window(&self) -> Micros {
        ask!(self.0, [0; 3], () -> Micros, rule, _kept => rule.window())
    }

    fn longest_wait(&self) -> Micros {
        ask!(self.0, [0; 3], () -> Micros, rule, _kept => rule.longest_wait())
    }

    fn moved_back(&self, words: &Words, now: Micros) -> Option<Words> {
        struct Moving(Words, Micros);

        impl WithRule for Moving {
            type Result = Option<Words>;

            fn fixed(self, rule: impl Fixed) -> Option<Words> {
                let moved = rule.moved_back(&rule.of_words(self.0), self.1)?;
                Some(rule.words(moved))
            }

            fn long(self, _: impl Step<Form = State>) -> Option<Words> {
                None
            }
        }

        self.0.with_rule(Moving(*words, now))
    }

    fn admits(&self, words: &Words, now: Micros, cost: u32) -> bool {
        let algorithm = self.in_force(words, now);
        ask!(algorithm, *words, (now: Micros, cost: u32) -> bool, rule, state => rule.admits(&state, now, cost))
    }

    fn allows(&self, words: &Words, now: Micros, cost: u32) -> bool {
        let algorithm = self.in_force(words, now);
        ask!(algorithm, *words, (now: Micros, cost: u32) -> bool, rule, state => rule.allows(&state, now, cost))
    }

    fn charge(&self, words: &mut Words, now: Micros, cost: u32) {
        let algorithm = self.in_force(words, now);
        change!(algorithm, words, (now: Micros, cost: u32), rule, state => rule.charge(&mut state, now, cost));
    }

    fn settle(&self, words: &mut Words, now: Micros, units: u32) {
        change!(self.0, words, (now: Micros, units: u32), rule, state => rule.settle(&mut state, now, units));
    }

    fn refund(&self, words: &mut Words, now: Micros, units: u32) {
        change!(self.0, words, (now: Micros, units: u32), rule, state => rule.refund(&mut state, now, units));
    }

    fn are_last(&self, words: &Words, now: Micros, turns: u32, begins: Micros) -> bool {
        ask!(
            self.0,
            *words,
            (now: Micros, turns: u32, begins: Micros) -> bool,
            rule,
            state => rule.are_last(&state, now, turns, begins)
        )
    }

    fn remaining(&self, words: &Words, now: Micros) -> u32 {
        ask!(self.0, *words, (now: Micros) -> u32, rule, state => rule.remaining(&state, now))
    }

    fn distance(&self, words: &Words, now: Micros) -> u64 {
        ask!(self.0, *words, (now: Micros) -> u64, rule, state => rule.distance(&state, now))
    }

    fn reset_after(&self, words: &Words, now: Micros) -> Micros {
        ask!(self.0, *words, (now: Micros) -> Micros, rule, state => rule.reset_after(&state, now))
    }

    fn retry_after(&self, words: &Words, now: Micros, cost: u32) -> Micros {
        ask!(self.0, *words, (now: Micros, cost: u32) -> Micros, rule, state => rule.retry_after(&state, now, cost))
    }

    fn effective_window(&self, words: &Words, now: Micros) -> Micros {
        ask!(self.0, *words, (now: Micros) -> Micros, rule, state => rule.effective_window(&state, now))
    }

    fn delay(&self, words: &Words, now: Micros, cost: u32) -> Micros {
        ask!(self.0, *words, (now: Micros, cost: u32) -> Micros, rule, state => rule.delay(&state, now, cost))
    }

    fn outcome(&self, words: &Words, now: Micros, cost: u32, allowed: bool) -> Outcome {
        if let Algorithm::ByHours(hours) = &self.0 {
            return Timed::<Self>::new(*hours).outcome(words, now, cost, allowed);
        }
        ask!(
            self.0,
            *words,
            (now: Micros, cost: u32, allowed: bool) -> Outcome,
            rule,
            state => rule.outcome(&state, now, cost, allowed)
        )
    }
}

impl Fixed for AnyRule {
    fn words(&self, words: Words) -> Words {
        words
    }

    fn of_words(&self, words: Words) -> Words {
        words
    }
}
