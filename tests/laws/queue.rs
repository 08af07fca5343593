use std::sync::Arc;

use proptest::prelude::*;
use tower_ratelimit::algorithm::State;
use tower_ratelimit::{Algorithm, LeakyQueue, Micros};

use crate::case::{Case, steadily};
use crate::property::{check, seeds};
use crate::support::buckets::Bucket;
use crate::support::driver::micros;
use crate::support::driver::{Driver, Seen, Step};
use crate::support::model::{Admitted, Rule};

/// A request leaves when all requests before it have had their turn, exactly to the microsecond. So requests leave in
/// the order of arrival, a turn apart.
#[test]
fn a_request_leaves_the_queue_at_its_turn() {
    check(seeds!(queue), steadily(), &|case| {
        let Case { numbers, .. } = case;
        let places = numbers.size.saturating_sub(1);
        let algorithm = Algorithm::from(LeakyQueue::of(numbers.quota()).places(places));
        let rule = Bucket {
            limit: numbers.limit,
            period: numbers.period,
            burst: places + 1,
        };
        let mut queue = Queue::new(algorithm, rule);
        let mut walk = case.walk();
        while let Some(asked) = walk.ask() {
            walk.told(queue.decide(asked.at, asked.cost)?);
        }
        Ok(())
    });
}

struct Queue {
    algorithm: Algorithm,
    rule: Arc<Bucket>,
    state: State,
    admitted: Vec<Admitted>,
    last_departure: u64,
}

impl Queue {
    fn new(algorithm: Algorithm, rule: Bucket) -> Self {
        Self {
            algorithm,
            rule: Arc::new(rule),
            state: State::NEW,
            admitted: Vec::new(),
            last_departure: 0,
        }
    }

    fn decide(&mut self, at: u64, cost: u32) -> Result<Seen, TestCaseError> {
        let state = std::mem::replace(&mut self.state, State::NEW);
        let (outcome, state) = self.algorithm.step(state, Micros::new(at), cost);
        self.state = state;
        let delay = micros(outcome.delay());
        if cost == 0 || !outcome.is_allowed() {
            prop_assert_eq!(delay, 0);
            return Ok(Seen::from(&outcome));
        }
        let leaves = at + delay;
        let is_its_turn = |at: u64| self.rule.is_new(&self.admitted, at.into());
        // The longest time in an outcome.
        prop_assert!(is_its_turn(leaves) || delay == Micros::LONGEST.get());
        prop_assert!(delay == 0 || !is_its_turn(leaves - 1));
        prop_assert!(leaves >= self.last_departure);
        self.last_departure = leaves;
        self.admitted.push(Admitted {
            at: at.into(),
            cost: cost.into(),
        });
        Ok(Seen::from(&outcome))
    }
}

/// Under every other algorithm, an allowed request goes on at once.
#[test]
fn nothing_else_holds_requests() {
    check(seeds!(queue), steadily(), &|case| {
        let Case { numbers, .. } = case;
        for text in ["fixed-window", "sliding-log", "token-bucket", "gcra"] {
            let quota = numbers.quota().to_string();
            let Ok(algorithm) = format!("{text} {quota}").parse::<Algorithm>() else {
                continue;
            };
            let mut driver = Step::new(algorithm);
            case.play(&mut driver, |_, _, _| Ok(()))?;
            let (outcome, _) = algorithm.step(driver.state, Micros::new(1 << 52), 1);
            prop_assert!(outcome.delay().is_zero());
        }
        Ok(())
    });
}
