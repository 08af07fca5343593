//! A rule of any algorithm whose states fit one word.
//!
//! Most of what a table does is rare: it gives a place to a new key, evicts, grows and amends. For that it
//! uses this rule, through a vtable, and so is compiled once for all algorithms. The decision on a known key
//! uses the type of its rule.

use std::sync::Arc;

use super::State;
use super::step::{Pack, Step};
use crate::clock::Micros;
use crate::decision::Outcome;

/// The rule of any algorithm whose states fit one word, under one limit.
#[derive(Clone)]
pub(crate) struct AnyPacked {
    rule: Arc<dyn OnWords>,
    strictest: Arc<dyn OnWords>,
}

impl AnyPacked {
    pub(crate) fn new(rule: &impl Pack) -> Self {
        Self {
            rule: Arc::new(rule.clone()),
            strictest: Arc::new(rule.strictest()),
        }
    }
}

/// A packed word, which is unpacked for each call. The default is that of a new key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Packed {
    word: u64,
    /// The moment as of which the word is unpacked.
    latest: Micros,
    /// Whether a charge after the fact exceeds what the word can hold.
    is_too_small: bool,
}

impl Packed {
    fn unpack<P: Pack>(self, rule: &P) -> P::Form {
        rule.unpack(self.word, self.latest)
    }

    fn pack<P: Pack>(rule: &P, state: P::Form, now: Micros) -> Self {
        Self {
            word: rule.pack(state),
            latest: now,
            is_too_small: false,
        }
    }
}

/// Declares the methods of a rule on words.
macro_rules! on_words {
    (
        ask { $(fn $ask:ident($($argument:ident: $argument_type:ty),+) -> $answer:ty;)+ }
        change { $(fn $change:ident($now:ident $(, $given:ident: $given_type:ty)+);)+ }
    ) => {
        /// A rule that reads and writes words.
        trait OnWords: Send + Sync {
            $(fn $ask(&self, word: Packed, $($argument: $argument_type),+) -> $answer;)+
            $(fn $change(&self, word: Packed, $now: Micros $(, $given: $given_type)+) -> Packed;)+
            fn settle(&self, word: Packed, now: Micros, units: u32) -> Packed;
            fn moved_back(&self, word: Packed, now: Micros) -> Option<Packed>;
            fn read(&self, state: State) -> Packed;
            fn write(&self, word: Packed) -> State;
            fn limit(&self) -> u32;
            fn limit_at(&self, now: Micros) -> u32;
            fn window(&self) -> Micros;
            fn longest_wait(&self) -> Micros;
            fn packs_until(&self) -> Micros;
            fn fits(&self, state: &State, now: Micros) -> bool;
        }

        impl<P: Pack> OnWords for P {
            $(fn $ask(&self, word: Packed, $($argument: $argument_type),+) -> $answer {
                Step::$ask(self, &word.unpack(self), $($argument),+)
            })+

            $(fn $change(&self, word: Packed, $now: Micros $(, $given: $given_type)+) -> Packed {
                let mut state = word.unpack(self);
                Step::$change(self, &mut state, $now $(, $given)+);
                Packed::pack(self, state, $now)
            })+

            fn settle(&self, word: Packed, now: Micros, units: u32) -> Packed {
                let mut state = word.unpack(self);
                Step::settle(self, &mut state, now, units);
                Packed {
                    is_too_small: !self.packs(state, now),
                    ..Packed::pack(self, state, now)
                }
            }

            fn moved_back(&self, word: Packed, now: Micros) -> Option<Packed> {
                let moved = Step::moved_back(self, &word.unpack(self), now)?;
                Some(Packed::pack(self, moved, now))
            }

            /// A debt as of the beginning of time is the same debt.
            fn read(&self, state: State) -> Packed {
                Packed::pack(self, Step::read(self, state), Micros::ZERO)
            }

            fn write(&self, word: Packed) -> State {
                Step::write(self, word.unpack(self))
            }

            fn limit(&self) -> u32 {
                Step::limit(self)
            }

            fn limit_at(&self, now: Micros) -> u32 {
                Step::limit_at(self, now)
            }

            fn window(&self) -> Micros {
                Step::window(self)
            }

            fn longest_wait(&self) -> Micros {
                Step::longest_wait(self)
            }

            fn packs_until(&self) -> Micros {
                Pack::packs_until(self)
            }

            fn fits(&self, state: &State, now: Micros) -> bool {
                Pack::fits(self, state, now)
            }
        }

        impl Step for AnyPacked {
            type Form = Packed;

            $(fn $ask(&self, word: &Packed, $($argument: $argument_type),+) -> $answer {
                self.rule.$ask(*word, $($argument),+)
            })+

            $(fn $change(&self, word: &mut Packed, $now: Micros $(, $given: $given_type)+) {
                *word = self.rule.$change(*word, $now $(, $given)+);
            })+

            fn settle(&self, word: &mut Packed, now: Micros, units: u32) {
                *word = self.rule.settle(*word, now, units);
            }

            fn moved_back(&self, word: &Packed, now: Micros) -> Option<Packed> {
                self.rule.moved_back(*word, now)
            }

            fn read(&self, state: State) -> Packed {
                self.rule.read(state)
            }

            fn write(&self, word: Packed) -> State {
                self.rule.write(word)
            }

            fn limit(&self) -> u32 {
                self.rule.limit()
            }

            fn limit_at(&self, now: Micros) -> u32 {
                self.rule.limit_at(now)
            }

            fn window(&self) -> Micros {
                self.rule.window()
            }

            fn longest_wait(&self) -> Micros {
                self.rule.longest_wait()
            }

            fn strictest(&self) -> Self {
                Self {
                    rule: Arc::clone(&self.strictest),
                    strictest: Arc::clone(&self.strictest),
                }
            }
        }
    };
}

on_words! {
    ask {
        fn admits(now: Micros, cost: u32) -> bool;
        fn allows(now: Micros, cost: u32) -> bool;
        fn are_last(now: Micros, turns: u32, begins: Micros) -> bool;
        fn remaining(now: Micros) -> u32;
        fn distance(now: Micros) -> u64;
        fn reset_after(now: Micros) -> Micros;
        fn retry_after(now: Micros, cost: u32) -> Micros;
        fn effective_window(now: Micros) -> Micros;
        fn present_window(now: Micros) -> Option<Micros>;
        fn delay(now: Micros, cost: u32) -> Micros;
        fn outcome(now: Micros, cost: u32, allowed: bool) -> Outcome;
    }
    change {
        fn charge(now, cost: u32);
        fn refund(now, units: u32);
    }
}

impl Pack for AnyPacked {
    fn packs_until(&self) -> Micros {
        self.rule.packs_until()
    }

    fn pack(&self, word: Packed) -> u64 {
        word.word
    }

    fn unpack(&self, word: u64, latest: Micros) -> Packed {
        Packed {
            word,
            latest,
            is_too_small: false,
        }
    }

    fn packs(&self, word: Packed, _: Micros) -> bool {
        !word.is_too_small
    }

    fn fits(&self, state: &State, now: Micros) -> bool {
        self.rule.fits(state, now)
    }
}

#[cfg(test)]
mod tests {
    // Not the trait `OnWords`, whose functions have the same names.
    use super::{AnyPacked, Micros, Pack, Packed, Step};
    use crate::algorithm::{Algorithm, Fixed, State, WithRule};

    /// Runs a rule in its own form and in words, and compares the results.
    struct Compare;

    impl WithRule for Compare {
        type Result = bool;

        fn fixed(self, _: impl Fixed) -> bool {
            false
        }

        fn packed(self, rule: impl Fixed + Pack) -> bool {
            compare(&rule);
            true
        }

        fn in_two_forms<P: Pack>(self, _: impl Fixed, packed: impl FnOnce() -> Option<P>) -> bool {
            packed().is_some_and(|rule| {
                compare(&rule);
                true
            })
        }

        fn long(self, _: impl Step<Form = State>) -> bool {
            false
        }
    }

    fn compare<P: Pack>(rule: &P) {
        let any = AnyPacked::new(rule);
        let (mut word, mut state) = (Packed::default(), P::Form::default());
        assert_eq!(rule.pack(state), 0, "a new key is a word of zero");
        let start = 1_800_000_000_000_000;
        for (step, seconds) in (0..400).zip([0, 1, 7, 0, 61, 3].iter().cycle()) {
            let now = Micros::new(start + step * 100_000 + seconds * 1_000_000);
            let cost = u32::try_from(step % 4).unwrap_or(0) + 1;
            // As in a table, which keeps the word alone and the moment of the latest change.
            state = rule.unpack(rule.pack(state), word.latest);
            if let Some(moved) = rule.moved_back(&state, now) {
                state = moved;
                word = any.moved_back(&word, now).expect("it is moved too");
            }
            match step % 9 {
                2 => {
                    rule.refund(&mut state, now, cost);
                    any.refund(&mut word, now, cost);
                }
                5 => {
                    rule.settle(&mut state, now, cost);
                    any.settle(&mut word, now, cost);
                    assert_eq!(any.packs(word, now), rule.packs(state, now));
                }
                7 => {
                    let are_last = rule.give_back(&mut state, now, cost, now);
                    assert_eq!(any.give_back(&mut word, now, cost, now), are_last);
                }
                _ if rule.allows(&state, now, cost) => {
                    rule.charge(&mut state, now, cost);
                    any.charge(&mut word, now, cost);
                }
                _ => {}
            }
            assert_eq!(any.pack(word), rule.pack(state));
            for allowed in [true, false] {
                assert_eq!(
                    any.outcome(&word, now, cost, allowed),
                    rule.outcome(&state, now, cost, allowed)
                );
            }
            assert_eq!(any.distance(&word, now), rule.distance(&state, now));
            assert_eq!(any.reset_after(&word, now), rule.reset_after(&state, now));
            // The debt may be written as of another moment.
            let written = rule.read(any.write(word));
            assert_eq!(rule.distance(&written, now), rule.distance(&state, now));
            let read = any.read(rule.write(state));
            assert_eq!(any.distance(&read, now), rule.distance(&state, now));
            let strictest = (any.strictest(), rule.strictest());
            let allows = strictest.0.allows(&word, now, 1);
            assert_eq!(allows, strictest.1.allows(&state, now, 1));
        }
    }

    #[test]
    fn a_rule_on_words_says_what_the_rule_says() {
        for algorithm in [
            "fixed-window 10/minute",
            "anchored-window 10/minute",
            "sliding-window 10/minute",
            "gcra 10/minute burst 5",
            "leaky-queue 10/minute places 5",
            "token-bucket-interval 10/minute",
        ] {
            let algorithm: Algorithm = algorithm.parse().expect(algorithm);
            assert!(algorithm.with_rule(Compare), "{algorithm} fits no word");
        }
    }
}
