use std::sync::Arc;

use super::any_rule::AnyRule;
use super::cell::{Long, Words};
use super::counter::Counter;
use super::table::{Override, Table};
use super::tiers::Tiers;
use crate::algorithm::{Algorithm, Fixed, Long as LongRule, State, WithRule};
use crate::clock::Micros;

/// States are packed if that is exact for all times up to this one at least, in the year 2540: up to
/// the end of the longest wait that can be told before the year 2255.
const PACKED_UNTIL: Micros = Micros::new(2 * Micros::LONGEST.get());

const END_OF_TIME: Micros = Micros::new(u64::MAX);

/// A counter for this algorithm, with room for so many keys.
pub(super) fn counter(algorithm: &Algorithm, bound: usize) -> Arc<dyn Counter> {
    counter_for(algorithm, bound, &[], Vec::new(), Micros::ZERO)
}

/// A counter with these overrides that can hold these states, which are as of now, and which another limit may have
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

        fn packs(&self, rule: &impl Fixed, late: Micros) -> bool {
            let packs = |state: &State| rule.packs(rule.read(state.clone(), self.now), self.now);
            let mut states = self.states.iter();
            late >= PACKED_UNTIL && self.now <= late && states.all(|(_, state)| packs(state))
        }
    }

    impl WithRule for Make<'_> {
        type Result = Arc<dyn Counter>;

        fn fixed(self, rule: impl Fixed) -> Arc<dyn Counter> {
            match rule.packs_until() {
                late if self.overrides.is_empty() && self.packs(&rule, late) => {
                    Arc::new(Tiers::new(rule, late, self.bound, self.algorithm))
                }
                _ => self.wide(),
            }
        }

        fn of_two_widths(self, _: impl Fixed, narrow: Option<impl Fixed>) -> Arc<dyn Counter> {
            match narrow {
                Some(narrow) => self.fixed(narrow),
                None => self.wide(),
            }
        }

        fn stateless(self, _: impl LongRule) -> Arc<dyn Counter> {
            self.wide()
        }

        fn long(self, rule: impl LongRule) -> Arc<dyn Counter> {
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
