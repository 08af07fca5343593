use crate::algorithm::{Fixed, State, Step};
use crate::clock::Micros;
use crate::decision::Outcome;

/// A rule of any type that keeps a fixed number of words, so that one table is compiled for all of them.
pub(super) struct AnyRule(Box<dyn InWords>);

impl AnyRule {
    pub(super) fn new(rule: impl Fixed) -> Self {
        Self(Box::new(rule))
    }

    /// Of a rule that keeps nothing.
    pub(super) fn stateless(rule: impl Step<Kept = State>) -> Self {
        Self(Box::new(Stateless(rule)))
    }
}

type Words = [u64; 3];

/// A rule, on words in place of what it makes of them.
trait InWords: Send + Sync {
    fn read(&self, state: State) -> Words;
    fn write(&self, words: Words) -> State;
    fn limit(&self) -> u32;
    fn window(&self) -> Micros;
    fn longest_wait(&self) -> Micros;
    fn moved_back(&self, words: Words, now: Micros) -> Option<Words>;
    fn admits(&self, words: Words, now: Micros, cost: u32) -> bool;
    fn charge(&self, words: &mut Words, now: Micros, cost: u32);
    fn settle(&self, words: &mut Words, now: Micros, units: u32);
    fn refund(&self, words: &mut Words, now: Micros, units: u32);
    fn give_back(&self, words: &mut Words, now: Micros, cost: u32, departure: Micros);
    fn remaining(&self, words: Words, now: Micros) -> u32;
    fn distance(&self, words: Words, now: Micros) -> u64;
    fn reset_after(&self, words: Words, now: Micros) -> Micros;
    fn retry_after(&self, words: Words, now: Micros, cost: u32) -> Micros;
    fn effective_window(&self, words: Words, now: Micros) -> Micros;
    fn delay(&self, words: Words, now: Micros, cost: u32) -> Micros;
    fn outcome(&self, words: Words, now: Micros, cost: u32, allowed: bool) -> Outcome;
}

/// Changes what a rule makes of words.
fn change<F: Fixed>(rule: &F, words: &mut Words, change: impl FnOnce(&mut F::Kept)) {
    let mut kept = rule.of_words(*words);
    change(&mut kept);
    *words = rule.words(kept);
}

impl<F: Fixed> InWords for F {
    fn read(&self, state: State) -> Words {
        self.words(Step::read(self, state))
    }

    fn write(&self, words: Words) -> State {
        Step::write(self, self.of_words(words))
    }

    fn limit(&self) -> u32 {
        Step::limit(self)
    }

    fn window(&self) -> Micros {
        Step::window(self)
    }

    fn longest_wait(&self) -> Micros {
        Step::longest_wait(self)
    }

    fn moved_back(&self, words: Words, now: Micros) -> Option<Words> {
        let moved = Step::moved_back(self, &self.of_words(words), now)?;
        Some(self.words(moved))
    }

    fn admits(&self, words: Words, now: Micros, cost: u32) -> bool {
        Step::admits(self, &self.of_words(words), now, cost)
    }

    fn charge(&self, words: &mut Words, now: Micros, cost: u32) {
        change(self, words, |kept| Step::charge(self, kept, now, cost));
    }

    fn settle(&self, words: &mut Words, now: Micros, units: u32) {
        change(self, words, |kept| Step::settle(self, kept, now, units));
    }

    fn refund(&self, words: &mut Words, now: Micros, units: u32) {
        change(self, words, |kept| Step::refund(self, kept, now, units));
    }

    fn give_back(&self, words: &mut Words, now: Micros, cost: u32, departure: Micros) {
        change(self, words, |kept| {
            Step::give_back(self, kept, now, cost, departure);
        });
    }

    fn remaining(&self, words: Words, now: Micros) -> u32 {
        Step::remaining(self, &self.of_words(words), now)
    }

    fn distance(&self, words: Words, now: Micros) -> u64 {
        Step::distance(self, &self.of_words(words), now)
    }

    fn reset_after(&self, words: Words, now: Micros) -> Micros {
        Step::reset_after(self, &self.of_words(words), now)
    }

    fn retry_after(&self, words: Words, now: Micros, cost: u32) -> Micros {
        Step::retry_after(self, &self.of_words(words), now, cost)
    }

    fn effective_window(&self, words: Words, now: Micros) -> Micros {
        Step::effective_window(self, &self.of_words(words), now)
    }

    fn delay(&self, words: Words, now: Micros, cost: u32) -> Micros {
        Step::delay(self, &self.of_words(words), now, cost)
    }

    fn outcome(&self, words: Words, now: Micros, cost: u32, allowed: bool) -> Outcome {
        Step::outcome(self, &self.of_words(words), now, cost, allowed)
    }
}

/// A rule under which every key is as good as new, whatever it is charged.
struct Stateless<S>(S);

impl<S: Step<Kept = State>> InWords for Stateless<S> {
    fn read(&self, _: State) -> Words {
        [0; 3]
    }

    fn write(&self, _: Words) -> State {
        State::NEW
    }

    fn limit(&self) -> u32 {
        Step::limit(&self.0)
    }

    fn window(&self) -> Micros {
        Step::window(&self.0)
    }

    fn longest_wait(&self) -> Micros {
        Step::longest_wait(&self.0)
    }

    fn moved_back(&self, _: Words, _: Micros) -> Option<Words> {
        None
    }

    fn admits(&self, _: Words, now: Micros, cost: u32) -> bool {
        Step::admits(&self.0, &State::NEW, now, cost)
    }

    fn charge(&self, _: &mut Words, _: Micros, _: u32) {}

    fn settle(&self, _: &mut Words, _: Micros, _: u32) {}

    fn refund(&self, _: &mut Words, _: Micros, _: u32) {}

    fn give_back(&self, _: &mut Words, _: Micros, _: u32, _: Micros) {}

    fn remaining(&self, _: Words, now: Micros) -> u32 {
        Step::remaining(&self.0, &State::NEW, now)
    }

    fn distance(&self, _: Words, now: Micros) -> u64 {
        Step::distance(&self.0, &State::NEW, now)
    }

    fn reset_after(&self, _: Words, now: Micros) -> Micros {
        Step::reset_after(&self.0, &State::NEW, now)
    }

    fn retry_after(&self, _: Words, now: Micros, cost: u32) -> Micros {
        Step::retry_after(&self.0, &State::NEW, now, cost)
    }

    fn effective_window(&self, _: Words, now: Micros) -> Micros {
        Step::effective_window(&self.0, &State::NEW, now)
    }

    fn delay(&self, _: Words, now: Micros, cost: u32) -> Micros {
        Step::delay(&self.0, &State::NEW, now, cost)
    }

    fn outcome(&self, _: Words, now: Micros, cost: u32, allowed: bool) -> Outcome {
        Step::outcome(&self.0, &State::NEW, now, cost, allowed)
    }
}

/// Each call is one of the rule that is kept here.
impl Step for AnyRule {
    type Kept = Words;

    fn read(&self, state: State) -> Words {
        self.0.read(state)
    }

    fn write(&self, kept: Words) -> State {
        self.0.write(kept)
    }

    fn limit(&self) -> u32 {
        self.0.limit()
    }

    fn window(&self) -> Micros {
        self.0.window()
    }

    fn longest_wait(&self) -> Micros {
        self.0.longest_wait()
    }

    fn moved_back(&self, kept: &Words, now: Micros) -> Option<Words> {
        self.0.moved_back(*kept, now)
    }

    fn admits(&self, kept: &Words, now: Micros, cost: u32) -> bool {
        self.0.admits(*kept, now, cost)
    }

    fn charge(&self, kept: &mut Words, now: Micros, cost: u32) {
        self.0.charge(kept, now, cost);
    }

    fn settle(&self, kept: &mut Words, now: Micros, units: u32) {
        self.0.settle(kept, now, units);
    }

    fn refund(&self, kept: &mut Words, now: Micros, units: u32) {
        self.0.refund(kept, now, units);
    }

    fn give_back(&self, kept: &mut Words, now: Micros, cost: u32, departure: Micros) {
        self.0.give_back(kept, now, cost, departure);
    }

    fn remaining(&self, kept: &Words, now: Micros) -> u32 {
        self.0.remaining(*kept, now)
    }

    fn distance(&self, kept: &Words, now: Micros) -> u64 {
        self.0.distance(*kept, now)
    }

    fn reset_after(&self, kept: &Words, now: Micros) -> Micros {
        self.0.reset_after(*kept, now)
    }

    fn retry_after(&self, kept: &Words, now: Micros, cost: u32) -> Micros {
        self.0.retry_after(*kept, now, cost)
    }

    fn effective_window(&self, kept: &Words, now: Micros) -> Micros {
        self.0.effective_window(*kept, now)
    }

    fn delay(&self, kept: &Words, now: Micros, cost: u32) -> Micros {
        self.0.delay(*kept, now, cost)
    }

    fn outcome(&self, kept: &Words, now: Micros, cost: u32, allowed: bool) -> Outcome {
        self.0.outcome(*kept, now, cost, allowed)
    }
}
