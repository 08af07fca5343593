//! A rule whose limit is an argument.
//!
//! A state depends on the name, the period and the slots of its algorithm, and on no limit. A table that
//! keeps states under any limit therefore makes the rule of a request from the limit of that request. It is
//! compiled once, for all algorithms whose states have a fixed number of words.

use super::step::{Fixed, Step, WithRule, each_question};
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
        #[cfg(feature = "calendar")]
        if let Algorithm::ByHours(hours) = &self.0
            && let Some(in_force) = hours.in_force_for(words, now)
        {
            return in_force;
        }
        let _ = (words, now);
        &self.0
    }
}

/// Calls the rule of the algorithm with the form that it reads from words. A rule without words of its own
/// gets a new key.
macro_rules! ask {
    ($any:expr, $words:expr, ($($name:ident: $type:ty),*) -> $result:ty, $rule:ident, $state:ident => $value:expr) => {{
        struct Asking {
            words: Words,
            $($name: $type),*
        }

        impl WithRule for Asking {
            type Result = $result;

            #[inline]
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

        $any.with_rule(Asking { words: $words, $($name),* })
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

            #[inline]
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

/// Declares the methods, each of which calls the rule of the algorithm.
macro_rules! declare {
    (
        rule { $(fn $of:ident($($given:ident: $type:ty),*) -> $is:ty;)+ }
        judge { $(fn $judge:ident($at:ident: $at_type:ty, $cost:ident: $cost_type:ty) -> $verdict:ty;)+ }
        ask { $(fn $ask:ident($($asked:ident: $asked_type:ty),+) -> $answer:ty;)+ }
        change { $(fn $change:ident($now:ident: $now_type:ty, $units:ident: $units_type:ty);)+ }
    ) => {
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

            fn charge(&self, words: &mut Words, now: Micros, cost: u32) {
                let algorithm = self.in_force(words, now);
                change!(algorithm, words, (now: Micros, cost: u32), rule, state => rule.charge(&mut state, now, cost));
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

            $(fn $of(&self, $($given: $type),*) -> $is {
                ask!(self.0, [0; 3], ($($given: $type),*) -> $is, rule, _state => rule.$of($($given),*))
            })+

            $(fn $judge(&self, words: &Words, $at: $at_type, $cost: $cost_type) -> $verdict {
                let algorithm = self.in_force(words, $at);
                ask!(algorithm, *words, ($at: $at_type, $cost: $cost_type) -> $verdict, rule, state => rule.$judge(&state, $at, $cost))
            })+

            $(fn $ask(&self, words: &Words, $($asked: $asked_type),+) -> $answer {
                ask!(self.0, *words, ($($asked: $asked_type),+) -> $answer, rule, state => rule.$ask(&state, $($asked),+))
            })+

            $(fn $change(&self, words: &mut Words, $now: $now_type, $units: $units_type) {
                change!(self.0, words, ($now: $now_type, $units: $units_type), rule, state => rule.$change(&mut state, $now, $units));
            })+
        }
    };
}

each_question!(declare);

impl Fixed for AnyRule {
    fn words(&self, words: Words) -> Words {
        words
    }

    fn of_words(&self, words: Words) -> Words {
        words
    }
}
