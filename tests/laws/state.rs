use proptest::prelude::*;
use tower_ratelimit::algorithm::State;

use crate::case::Case;
use crate::laws::Holds;
use crate::subject::Subject;
use crate::support::driver::{Driver, Step};

const TWO_TO_THE_53: u64 = 1 << 53;

/// Law 6: a denial leaves the state unchanged, byte for byte.
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

/// Every stored word and every number of an outcome is below 2^53, so that a language whose numbers are doubles holds
/// it exactly.
pub(crate) fn every_number_is_exact_as_a_double(subject: &Subject, case: &Case) -> Holds {
    case.play(&mut Step::new(subject.algorithm), |driver, _, seen| {
        let told = [seen.reset_after, seen.retry_after.unwrap_or(0)];
        let kept = driver.state.words();
        for number in told.iter().chain(kept) {
            prop_assert!(*number < TWO_TO_THE_53, "{number} in {told:?} {kept:?}");
        }
        Ok(())
    })
}
