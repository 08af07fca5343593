//! Makes the tables of a policy: the one place that names the form of the states of each rule.
//!
//! A program that restores no snapshot does not contain the code that fills a table, since only `snapshot/past.rs` refers
//! to it.

use std::sync::Arc;

use super::in_words::InWords;
use super::one_word::OneWord;
use super::tiers::{Counter, Tiers};
use super::timed::Override;
use crate::algorithm::{Algorithm, Fixed, Pack, State, Step, WithRule};
use crate::clock::Micros;

/// States are packed if that is exact for all times up to this one, in the year 2540, which is the end of the
/// longest possible wait before the year 2255.
const PACKED_UNTIL: Micros = Micros::new(2 * Micros::LONGEST.get());

/// Creates a counter for this algorithm with room for this many keys.
pub(super) fn counter(algorithm: &Algorithm, bound: usize) -> Arc<dyn Counter> {
    algorithm.with_rule(Make {
        algorithm: *algorithm,
        bound,
        states: Some((&[], Micros::ZERO)),
    })
}

/// Creates a counter that holds these overrides, and these states as of now, which another limit may have left. Also returns
/// the number of keys in it, and the number of keys without room.
pub(super) fn counter_with(
    algorithm: &Algorithm,
    bound: usize,
    states: Vec<(u64, State)>,
    overrides: Vec<(u64, Override)>,
    now: Micros,
) -> (Arc<dyn Counter>, (usize, usize)) {
    let counter = algorithm.with_rule(Make {
        algorithm: *algorithm,
        bound,
        states: overrides.is_empty().then_some((&states, now)),
    });
    let restored = counter.general().restore(states, overrides, now);
    (counter, restored)
}

struct Make<'a> {
    algorithm: Algorithm,
    bound: usize,
    /// The states that have to fit a word as of a moment; `None` if some keys have limits of their own.
    states: Option<(&'a [(u64, State)], Micros)>,
}

impl Make<'_> {
    fn wide(&self) -> Arc<dyn Counter> {
        Arc::new(Tiers::wide(self.bound, self.algorithm))
    }

    fn in_words(&self, rule: impl Fixed) -> Arc<dyn Counter> {
        Arc::new(InWords::new(rule, self.bound, self.algorithm))
    }

    /// Returns a table of one word for each key, if that is exact for all times and holds the states.
    fn in_one_word<P: Pack>(&self, rule: P) -> Option<OneWord<P>> {
        let (states, now) = self.states?;
        let until = rule.packs_until();
        let packs = until >= PACKED_UNTIL
            && now <= until
            && states.iter().all(|(_, state)| rule.fits(state, now));
        packs.then(|| OneWord::new(rule, self.bound, self.algorithm))
    }
}

impl WithRule for Make<'_> {
    type Result = Arc<dyn Counter>;

    fn fixed(self, _: impl Fixed) -> Arc<dyn Counter> {
        self.wide()
    }

    fn packed(self, rule: impl Fixed + Pack) -> Arc<dyn Counter> {
        let packed = rule.clone();
        self.in_two_forms(rule, || Some(packed))
    }

    fn in_two_forms<P: Pack>(
        self,
        rule: impl Fixed,
        packed: impl FnOnce() -> Option<P>,
    ) -> Arc<dyn Counter> {
        match packed().and_then(|packed| self.in_one_word(packed)) {
            Some(counter) => Arc::new(counter),
            None => self.in_words(rule),
        }
    }

    fn stateless(self, _: impl Step<Form = State>) -> Arc<dyn Counter> {
        self.wide()
    }

    fn long(self, _: impl Step<Form = State>) -> Arc<dyn Counter> {
        Arc::new(Tiers::long(self.bound, self.algorithm))
    }
}
