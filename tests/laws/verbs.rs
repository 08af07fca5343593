//! What can be asked besides a decision.

use proptest::prelude::*;

use crate::case::Case;
use crate::laws::Holds;
use crate::subject::Subject;
use crate::support::driver::Driver;

/// A refund takes out what was admitted last: from then on all is as if that had not been asked for.
pub(crate) fn a_refund_takes_out_what_was_admitted_last<D: Driver>(
    subject: &Subject,
    case: &Case,
) -> Holds {
    let mut driver = D::new(subject.algorithm);
    let mut model = subject.model();
    let mut walk = case.walk();
    for number in 0.. {
        let Some(asked) = walk.ask() else { break };
        if number % 3 == 2 {
            driver.refund(asked.at, asked.cost);
            model.refund(asked.at, asked.cost);
        }
        let seen = driver.decide(asked.at, asked.cost);
        prop_assert_eq!(seen, model.decide(asked.at, asked.cost), "{:?}", asked);
        walk.told(seen);
    }
    Ok(())
}

/// To peek changes nothing, and tells what a decision then tells.
pub(crate) fn to_peek_tells_what_a_decision_would<D: Driver>(
    subject: &Subject,
    case: &Case,
) -> Holds {
    let mut driver = D::new(subject.algorithm);
    let mut walk = case.walk();
    while let Some(asked) = walk.ask() {
        let before = driver.state();
        let peeked = [(); 2].map(|()| driver.peek(asked.at, asked.cost));
        prop_assert_eq!(before, driver.state());
        let seen = driver.decide(asked.at, asked.cost);
        prop_assert_eq!(peeked, [seen; 2]);
        walk.told(seen);
    }
    Ok(())
}

/// After a reset the key is new, whatever it was.
pub(crate) fn a_key_that_is_reset_is_new<D: Driver>(subject: &Subject, case: &Case) -> Holds {
    let mut driver = D::new(subject.algorithm);
    let mut fresh = subject.model();
    let mut walk = case.walk();
    for number in 0.. {
        let Some(asked) = walk.ask() else { break };
        if number % 3 == 2 {
            driver.reset(asked.at);
            fresh = subject.model();
        }
        let seen = driver.decide(asked.at, asked.cost);
        prop_assert_eq!(seen, fresh.decide(asked.at, asked.cost), "{:?}", asked);
        walk.told(seen);
    }
    Ok(())
}
