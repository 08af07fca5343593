use std::sync::Arc;

use super::cell::{Long, Words};
use super::counter::Counter;
use super::one_word::OneWord;
use super::table::{Override, Table};
use crate::algorithm::{
    Algorithm, AnyLong, AnyRule, Fixed, Long as LongRule, Pack, State, WithRule,
};
use crate::clock::Micros;

/// States are packed if that is exact for all times up to this one, in the year 2540, which is the end of the
/// longest wait that can be told before the year 2255.
const PACKED_UNTIL: Micros = Micros::new(2 * Micros::LONGEST.get());

const END_OF_TIME: Micros = Micros::new(u64::MAX);

/// Creates a counter for this algorithm with room for this many keys.
pub(super) fn counter(algorithm: &Algorithm, bound: usize) -> Arc<dyn Counter> {
    counter_for(algorithm, bound, &[], Vec::new(), Micros::ZERO)
}

/// Creates a counter that holds these overrides, and these states as of now, which another limit may have
/// left.
pub(super) fn counter_for(
    algorithm: &Algorithm,
    bound: usize,
    states: &[(u64, State)],
    overrides: Vec<(u64, Override)>,
    now: Micros,
) -> Arc<dyn Counter> {
    struct Make<'a> {
        algorithm: Algorithm,
        bound: usize,
        states: &'a [(u64, State)],
        overrides: Vec<(u64, Override)>,
        now: Micros,
    }

    impl Make<'_> {
        fn wide(self) -> Arc<dyn Counter> {
            let rule = AnyRule::new(self.algorithm);
            let table = Table::<_, Words>::new(rule, END_OF_TIME, self.bound);
            table.meet(&self.algorithm);
            table.restore_overrides(self.overrides, self.now);
            Arc::new(table)
        }

        /// Creates a table with one word for each key, if that is exact for all times and for all states to
        /// hold.
        fn in_one_word(&self, rule: impl Pack) -> Option<Arc<dyn Counter>> {
            let late = rule.packs_until();
            let mut states = self.states.iter();
            let packs = self.overrides.is_empty()
                && late >= PACKED_UNTIL
                && self.now <= late
                && states.all(|(_, state)| rule.fits(state, self.now));
            packs.then(|| -> Arc<dyn Counter> {
                Arc::new(OneWord::new(rule, self.bound, self.algorithm))
            })
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
            _: impl Fixed,
            packed: impl FnOnce() -> Option<P>,
        ) -> Arc<dyn Counter> {
            let packed = packed().and_then(|packed| self.in_one_word(packed));
            packed.unwrap_or_else(|| self.wide())
        }

        fn stateless(self, _: impl LongRule) -> Arc<dyn Counter> {
            self.wide()
        }

        /// One table for all such rules, since a reload may give the policy hours.
        fn long(self, _: impl LongRule) -> Arc<dyn Counter> {
            let rule = AnyLong::new(self.algorithm);
            let table = Table::<_, Long>::new(rule, END_OF_TIME, self.bound);
            table.meet(&self.algorithm);
            table.restore_overrides(self.overrides, self.now);
            Arc::new(table)
        }
    }

    algorithm.with_rule(Make {
        algorithm: *algorithm,
        bound,
        states,
        overrides,
        now,
    })
}
