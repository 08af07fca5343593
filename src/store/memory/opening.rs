//! Makes the table of a policy.
//!
//! This is the one place that names the cell of each rule. A program that restores no snapshot does not contain the code
//! that reads one, since only `snapshot/past.rs` refers to it.

use std::sync::Arc;

use super::cell::{Long, Words};
use super::counter::Counter;
use super::one_word::OneWord;
use super::table::Table;
use super::timed::Override;
use crate::algorithm::{
    Algorithm, AnyLong, AnyRule, Fixed, Long as LongRule, Pack, State, WithRule,
};
use crate::clock::Micros;

/// States are packed if that is exact for all times up to this one, in the year 2540, which is the end of the
/// longest possible wait before the year 2255.
const PACKED_UNTIL: Micros = Micros::new(2 * Micros::LONGEST.get());

const END_OF_TIME: Micros = Micros::new(u64::MAX);

/// Creates a counter for this algorithm with room for this many keys.
pub(super) fn counter(algorithm: &Algorithm, bound: usize) -> Arc<dyn Counter> {
    algorithm.with_rule(Make {
        algorithm: *algorithm,
        bound,
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
    let make = Make {
        algorithm: *algorithm,
        bound,
    };
    algorithm.with_rule(RestoreTable {
        make,
        states,
        overrides,
        now,
    })
}

struct Make {
    algorithm: Algorithm,
    bound: usize,
}

impl Make {
    fn wide_table(&self) -> Table<AnyRule, Words> {
        let rule = AnyRule::new(self.algorithm);
        let table = Table::new(rule, END_OF_TIME, self.bound);
        table.note_limit(&self.algorithm);
        table
    }

    /// One table for all such rules: a reload may give the policy hours.
    fn long_table(&self) -> Table<AnyLong, Long> {
        let rule = AnyLong::new(self.algorithm);
        let table = Table::new(rule, END_OF_TIME, self.bound);
        table.note_limit(&self.algorithm);
        table
    }

    /// Returns a table of one word for each key, if that is exact for all times.
    fn in_one_word<P: Pack>(&self, rule: P) -> Option<OneWord<P>> {
        let packs = rule.packs_until() >= PACKED_UNTIL;
        packs.then(|| OneWord::new(rule, self.bound, self.algorithm))
    }
}

impl WithRule for Make {
    type Result = Arc<dyn Counter>;

    fn fixed(self, _: impl Fixed) -> Arc<dyn Counter> {
        Arc::new(self.wide_table())
    }

    fn packed(self, rule: impl Fixed + Pack) -> Arc<dyn Counter> {
        let packed = rule.clone();
        self.in_two_forms(rule, || Some(packed))
    }

    fn in_two_forms<P: Pack>(
        self,
        _: impl Fixed,
        packed: impl FnOnce() -> Option<P>,
    ) -> Arc<dyn Counter> {
        match packed().and_then(|packed| self.in_one_word(packed)) {
            Some(counter) => Arc::new(counter),
            None => Arc::new(self.wide_table()),
        }
    }

    fn stateless(self, _: impl LongRule) -> Arc<dyn Counter> {
        Arc::new(self.wide_table())
    }

    fn long(self, _: impl LongRule) -> Arc<dyn Counter> {
        Arc::new(self.long_table())
    }
}

/// Makes a counter, and puts states into it. It is apart from [`Make`], so that a program that restores no snapshot does
/// not contain it.
struct RestoreTable {
    make: Make,
    states: Vec<(u64, State)>,
    overrides: Vec<(u64, Override)>,
    now: Micros,
}

impl RestoreTable {
    fn wide(self) -> (Arc<dyn Counter>, (usize, usize)) {
        let table = self.make.wide_table();
        table.restore_overrides(self.overrides, self.now);
        let restored = table.restore(self.states, self.now);
        (Arc::new(table), restored)
    }
}

impl WithRule for RestoreTable {
    type Result = (Arc<dyn Counter>, (usize, usize));

    fn fixed(self, _: impl Fixed) -> Self::Result {
        self.wide()
    }

    fn packed(self, rule: impl Fixed + Pack) -> Self::Result {
        let packed = rule.clone();
        self.in_two_forms(rule, || Some(packed))
    }

    fn in_two_forms<P: Pack>(
        self,
        _: impl Fixed,
        packed: impl FnOnce() -> Option<P>,
    ) -> Self::Result {
        let now = self.now;
        let packed = packed().filter(|rule| {
            let mut states = self.states.iter();
            self.overrides.is_empty()
                && now <= rule.packs_until()
                && states.all(|(_, state)| rule.fits(state, now))
        });
        match packed.and_then(|packed| self.make.in_one_word(packed)) {
            Some(counter) => {
                let restored = counter.restore(self.states, now);
                (Arc::new(counter), restored)
            }
            None => self.wide(),
        }
    }

    fn stateless(self, _: impl LongRule) -> Self::Result {
        self.wide()
    }

    fn long(self, _: impl LongRule) -> Self::Result {
        let table = self.make.long_table();
        table.restore_overrides(self.overrides, self.now);
        let restored = table.restore(self.states, self.now);
        (Arc::new(table), restored)
    }
}
