//! The server's processing of a request for units and of reports: the twin of `lease.lua`.

use super::{Class, Demand, Leased, charge};
use crate::lease::terms::{Terms, times};
use crate::lease::{Grant, UnitsReport, UnitsRequest};
use tower_ratelimit_core::__internal::LEAST_LEASED;
use tower_ratelimit_core::__internal::Step;
use tower_ratelimit_core::clock::Micros;

/// Nodes with different settings may need more classes than two. A grant that needs one too many is not made.
const MOST_CLASSES: usize = 8;

/// After this many steps of the clock, classes may have an end that other classes had.
const MOST_MOVES: u64 = 1_000;

const MOST_DEMAND: u64 = u32::MAX as u64;

impl Leased {
    /// Processes a report on units. Units of a class that has ended are charged already.
    pub(in crate::lease) fn hear<S: Step>(
        &mut self,
        rule: &S,
        kept: &mut S::Form,
        now: Micros,
        tells: &[UnitsReport],
    ) {
        for tell in tells {
            let end = tell.end.get();
            let Some(class) = self.classes.iter_mut().find(|class| class.end == end) else {
                continue;
            };
            let spent = u64::from(tell.spent).min(class.units);
            class.units -= spent;
            class.units = class.units.saturating_sub(tell.unspent.into());
            charge(rule, kept, now.get(), spent);
        }
        self.classes.retain(|class| class.units > 0);
    }

    /// Grants units to a node whose request was allowed and charged.
    ///
    /// A node gets what it asks for, as long as there is plenty: at most a quarter of what remains, and at
    /// most its share of a part of what remains, or of more than that if the limit drains. The share is what it
    /// asks for, divided by the demand of all nodes. So grants shrink as the limit runs out, and all nodes
    /// run out of units at about the same time, however many there are. Towards the end of a window, grants shrink to a
    /// quarter of what the node can spend until then, since unspent units are lost with the window.
    ///
    /// Units for which requests wait are granted while there are any, since they are spent at once. A limit that admits less
    /// than eight such requests at once is not leased, whatever gives the limit.
    pub(in crate::lease) fn grant<S: Step>(
        &mut self,
        rule: &S,
        kept: &S::Form,
        now: Micros,
        ask: &UnitsRequest,
        terms: Terms,
    ) -> Option<Grant> {
        // No node leases the key.
        if ask.units == 0 && *self == Self::default() {
            return None;
        }
        let epoch = terms.epoch();
        let covers = terms.covers.get().max(1);
        self.demand.add(now, covers, ask.seen);
        let demand = self.demand.at(now, covers);
        let least = LEAST_LEASED.saturating_mul(ask.cost.max(1));
        if ask.units == 0 || rule.limit() < least {
            return None;
        }
        let end = (now.get() / epoch + 2).saturating_mul(epoch);
        // Nodes know a class by its end. If ends were moved, nodes may hold units of a class that would end
        // at this moment.
        let end = end.min(rule.bin_end(kept, now).get());
        let end = end.saturating_sub(self.moves % MOST_MOVES);
        let lasts = end.saturating_sub(now.get());
        if lasts == 0 {
            return None;
        }
        let wanted = u64::from(ask.units);
        let most = terms.until_the_end(wanted, lasts);
        let room = u64::from(rule.remaining(kept, now)).saturating_sub(self.units());
        let demand = demand.max(wanted).max(1);
        let (shares, of) = terms.shares();
        let share = times(shares * wanted, room, of * demand);
        let units = most.min(room / 4).min(share);
        // A grant that is too small for another request like this one would be given back.
        let units = if units < ask.cost.into() { 0 } else { units };
        let units = units.max(u64::from(ask.awaited).min(room));
        let is_added = units > 0 && self.add(end, units);
        if is_added {
            self.life = self.life.max(lasts);
        }
        let units = u32::try_from(units).unwrap_or(0);
        Some(Grant {
            units: if is_added { units } else { 0 },
            end: Micros::new(end),
            lasts: Micros::new(lasts),
        })
    }

    /// Returns the numbers of the mark in Lua.
    pub(in crate::lease) fn words(&self) -> Vec<u64> {
        let Demand {
            span,
            before,
            present,
        } = self.demand;
        let classes = self
            .classes
            .iter()
            .flat_map(|class| [class.end, class.units]);
        [self.life, self.moves, span, before, present]
            .into_iter()
            .chain(classes)
            .collect()
    }

    fn add(&mut self, end: u64, units: u64) -> bool {
        if let Some(class) = self.classes.iter_mut().find(|class| class.end == end) {
            class.units += units;
            return true;
        }
        if self.classes.len() == MOST_CLASSES {
            return false;
        }
        let place = self.classes.partition_point(|class| class.end < end);
        self.classes.insert(place, Class { end, units });
        true
    }
}

impl Demand {
    fn at_span(self, span: u64) -> Self {
        match span.checked_sub(self.span) {
            Some(0) => self,
            Some(1) => Self {
                span,
                before: self.present,
                present: 0,
            },
            _ => Self {
                span,
                ..Self::default()
            },
        }
    }

    fn add(&mut self, now: Micros, covers: u64, units: u32) {
        *self = self.at_span(now.get() / covers);
        self.present = (self.present + u64::from(units)).min(MOST_DEMAND);
    }

    /// Returns the demand of the last span of this length.
    fn at(self, now: Micros, covers: u64) -> u64 {
        let left = covers - now.get() % covers;
        times(self.before, left, covers) + self.present
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::FileFailurePersistence;

    use super::*;
    use tower_ratelimit_core::__internal::{Fixed, WithRule};
    use tower_ratelimit_core::algorithm::{Algorithm, FixedWindow, State};

    /// A sequence of asks: for each the time since the previous one, the cost, and how many units.
    struct AskSequence<'a> {
        algorithm: Algorithm,
        life: Micros,
        asks: &'a [(u32, u32, u32)],
    }

    impl AskSequence<'_> {
        fn waits_are_true<S: Step>(self, rule: &S) {
            let terms = Terms::of(&self.algorithm, self.life).unwrap();
            let mut now = Micros::new(1_790_000_000_123_456);
            let (mut kept, mut leased) = (S::Form::default(), Leased::default());
            for &(gap, cost, units) in self.asks {
                now = now.saturating_add(Micros::new(gap.into()));
                leased.end(rule, &mut kept, now);
                if leased.allows(rule, &kept, now, cost) {
                    if cost > 0 {
                        rule.charge(&mut kept, now, cost);
                    }
                    let ask = UnitsRequest {
                        units,
                        ..UnitsRequest::default()
                    };
                    leased.grant(rule, &kept, now, &ask, terms);
                    continue;
                }
                let wait = leased.retry_after(rule, &kept, now, cost);
                let wait = wait.expect("the cost is not above the limit").get();
                let is_allowed_after = |wait: u64| {
                    let (mut kept, mut leased) = (kept.clone(), leased.clone());
                    let then = now.saturating_add(Micros::new(wait));
                    leased.end(rule, &mut kept, then);
                    leased.allows(rule, &kept, then, cost)
                };
                assert!(is_allowed_after(wait), "{} after {wait}", self.algorithm);
                assert!(
                    !is_allowed_after(wait - 1),
                    "{} before {wait}",
                    self.algorithm
                );
            }
        }
    }

    impl WithRule for AskSequence<'_> {
        type Result = ();

        fn fixed(self, rule: impl Fixed) {
            self.waits_are_true(&rule);
        }

        fn long(self, rule: impl Step<Form = State>) {
            self.waits_are_true(&rule);
        }
    }

    #[test]
    fn a_report_about_an_ended_class_changes_nothing() {
        let rule = FixedWindow::per_minute(1_000);
        let terms = Terms::of(&rule.into(), Micros::new(20_000)).unwrap();
        let mut kept = <FixedWindow as Step>::Form::default();
        let mut leased = Leased::default();
        let ask = UnitsRequest {
            units: 10,
            ..UnitsRequest::default()
        };
        let first = Micros::new(1_790_000_000_000_000);
        let ended = leased.grant(&rule, &kept, first, &ask, terms).unwrap();
        leased.end(&rule, &mut kept, ended.end);
        assert_eq!((leased.units(), rule.remaining(&kept, ended.end)), (0, 990));
        leased.grant(&rule, &kept, ended.end, &ask, terms).unwrap();
        let tell = UnitsReport {
            end: ended.end,
            spent: 0,
            unspent: 10,
        };
        leased.hear(&rule, &mut kept, ended.end, &[tell]);
        assert_eq!(
            (leased.units(), rule.remaining(&kept, ended.end)),
            (10, 990)
        );
    }

    #[test]
    fn a_limit_that_lets_less_than_eight_requests_pass_at_once_is_not_leased() {
        let granted = |limit: u32, cost: u32| {
            let rule = FixedWindow::per_minute(limit);
            let terms = Terms::of(&rule.into(), Micros::new(1_000_000)).unwrap();
            let kept = <FixedWindow as Step>::Form::default();
            let ask = UnitsRequest {
                cost,
                units: 3,
                awaited: 3,
                ..UnitsRequest::default()
            };
            let now = Micros::new(1_790_000_000_000_000);
            Leased::default().grant(&rule, &kept, now, &ask, terms)
        };
        for (limit, cost, is_leased) in [(7, 0, false), (8, 0, true), (15, 2, false), (16, 2, true)]
        {
            assert_eq!(granted(limit, cost).is_some(), is_leased, "{limit} {cost}");
        }
    }

    /// Units for which requests wait are spent at once, so there is no reason to leave it to others.
    #[test]
    fn units_that_requests_wait_for_are_granted_while_there_are_any() {
        let rule = FixedWindow::per_minute(100);
        let terms = Terms::of(&rule.into(), Micros::new(1_000_000)).unwrap();
        let mut kept = <FixedWindow as Step>::Form::default();
        let now = Micros::new(1_790_000_000_000_000);
        rule.charge(&mut kept, now, 91);
        for (units, awaited, granted) in [(40, 0, 1), (40, 6, 6), (40, 40, 9)] {
            let ask = UnitsRequest {
                units,
                awaited,
                ..UnitsRequest::default()
            };
            let grant = Leased::default().grant(&rule, &kept, now, &ask, terms);
            assert_eq!(grant.map(|grant| grant.units), Some(granted));
        }
    }

    /// Its unspent units are lost when the window ends.
    #[test]
    fn towards_the_end_of_a_window_a_node_gets_a_quarter_of_what_it_can_spend_until_then() {
        let rule = FixedWindow::per_minute(100_000);
        let terms = Terms::of(&rule.into(), Micros::new(1_000_000)).unwrap();
        let kept = <FixedWindow as Step>::Form::default();
        let end = 1_790_000_040_000_000;
        let ask = UnitsRequest {
            units: 1_000,
            ..UnitsRequest::default()
        };
        for (before, units) in [
            (500_000, 1_000),
            (400_000, 1_000),
            (100_000, 250),
            (10_000, 25),
        ] {
            let now = Micros::new(end - before);
            let grant = Leased::default().grant(&rule, &kept, now, &ask, terms);
            assert_eq!(grant.map(|grant| grant.units), Some(units), "{before}");
        }
    }

    /// A node may report units of a class that was moved, and knows it by the end that it had.
    #[test]
    fn no_class_gets_the_end_that_one_had_before_the_clock_stepped_back() {
        let rule = FixedWindow::per_minute(1_000);
        let terms = Terms::of(&rule.into(), Micros::new(1_000_000)).unwrap();
        let kept = <FixedWindow as Step>::Form::default();
        let ask = UnitsRequest {
            units: 10,
            ..UnitsRequest::default()
        };
        let start = 1_790_000_010_000_000;
        let at = |micros: u64| Micros::new(start + micros);
        let mut leased = Leased::default();
        let moved = leased
            .grant(&rule, &kept, at(100_000), &ask, terms)
            .unwrap();
        leased.end(&rule, &mut kept.clone(), Micros::new(start - 200_000));
        let other = leased.grant(&rule, &kept, at(50_000), &ask, terms).unwrap();
        assert_ne!(moved.end, other.end);
        let tell = UnitsReport {
            end: moved.end,
            spent: 0,
            unspent: 10,
        };
        leased.hear(&rule, &mut kept.clone(), at(60_000), &[tell]);
        assert_eq!(leased.units(), 20);
    }

    proptest! {
        // By itself, proptest looks for them beside the file that has this module.
        #![proptest_config(ProptestConfig {
            failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
                "proptest-regressions/leases/granting.txt",
            ))),
            ..ProptestConfig::default()
        })]

        /// Law 2, while nodes hold units and report nothing.
        #[test]
        fn a_wait_is_over_when_it_was_told_to_be(
            text in proptest::sample::select(vec![
                "fixed-window 20/100ms",
                "anchored-window 20/100ms",
                "sliding-window 20/100ms",
                "sliding-log 20/100ms",
                "sliding-slots 20/100ms",
                "gcra 20/100ms",
                "token-bucket-interval 5/25ms burst 20",
            ]),
            life in 2_000_u64..80_000,
            asks in proptest::collection::vec((0_u32..20_000, 0_u32..12, 0_u32..30), 1..60),
        ) {
            let algorithm: Algorithm = text.parse().unwrap();
            let life = Micros::new(life);
            algorithm.with_rule(AskSequence { algorithm, life, asks: &asks });
        }
    }
}
