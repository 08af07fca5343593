use proptest::prelude::*;
use tower_ratelimit::algorithm::State;

use crate::case::Case;
use crate::laws::{Holds, remaining_is_tight, reset_is_tight, retry_is_tight};
use crate::subject::Subject;
use crate::support::driver::{Driver, Step};

const TWO_TO_THE_53: u64 = 1 << 53;

/// Law 6: a denial leaves the state byte for byte as it was.
pub(crate) fn law_6_a_denial_leaves_the_state_byte_for_byte(
    subject: &Subject,
    case: &Case,
) -> Holds {
    let mut before = State::NEW;
    case.play(&mut Step::new(subject.algorithm), |driver, asked, seen| {
        let kept = &driver.state;
        if asked.cost == 0 || !seen.allowed {
            prop_assert_eq!(kept.words(), before.words());
        }
        before = kept.clone();
        Ok(())
    })
}

/// Law 8: from a state that another limit has left, laws 2 to 4 hold, and no wait is longer than
/// the longest.
pub(crate) fn law_8_the_state_of_another_limit_is_survived(
    [before, changed]: &[Subject; 2],
    case: &Case,
) -> Holds {
    let mut driver = Step::new(before.algorithm);
    let mut walk = case.walk();
    for asks_left in (0..case.asks.len()).rev() {
        let Some(asked) = walk.ask() else { break };
        if asks_left == 0 {
            driver.algorithm = changed.algorithm;
        }
        let seen = driver.decide(asked.at, asked.cost);
        walk.told(seen);
        if asks_left == 0 && asked.cost > 0 && seen.limit > 0 {
            prop_assert!(changed.is_within_the_longest_wait(&seen), "{:?}", seen);
            retry_is_tight(&driver, asked, seen)?;
            remaining_is_tight(&driver, asked, seen)?;
            reset_is_tight(&driver, asked, seen)?;
        }
    }
    Ok(())
}

/// F14: every word that is kept and every number that is told is below 2^53, so that a language
/// whose numbers are doubles holds it exactly.
pub(crate) fn f14_every_number_is_exact_as_a_double(subject: &Subject, case: &Case) -> Holds {
    case.play(&mut Step::new(subject.algorithm), |driver, _, seen| {
        let told = [seen.reset_after, seen.retry_after.unwrap_or(0)];
        let kept = driver.state.words();
        for number in told.iter().chain(kept) {
            prop_assert!(*number < TWO_TO_THE_53, "{number} in {told:?} {kept:?}");
        }
        Ok(())
    })
}
