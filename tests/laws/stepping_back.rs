use std::mem;

use proptest::prelude::*;

use crate::case::Case;
use crate::laws::{Holds, remaining_is_tight, reset_is_tight, retry_is_tight};
use crate::subject::Subject;
use crate::support::driver::Driver;

/// Law 8: a state from the future moves back to now, also by a denial, and no wait exceeds the longest one.
pub(crate) fn law_8_time_never_hurts<D: Driver>(subject: &Subject, case: &Case) -> Holds {
    let mut model = subject.model();
    case.play(&mut D::new(subject.algorithm), |_, asked, seen| {
        prop_assert_eq!(seen, model.decide(asked.at, asked.cost), "{:?}", asked);
        prop_assert!(subject.is_within_the_longest_wait(&seen), "{:?}", seen);
        Ok(())
    })
}

/// Law 8: the numbers after a step back are as exact as before. (A request of cost 0 writes nothing, so the next one
/// finds a state of the future again.)
pub(crate) fn law_8_laws_2_to_4_hold_after_a_step_back<D: Driver>(
    subject: &Subject,
    case: &Case,
) -> Holds {
    let mut latest = 0;
    case.play(&mut D::new(subject.algorithm), |driver, asked, seen| {
        if asked.cost == 0 {
            return Ok(());
        }
        if asked.at < mem::replace(&mut latest, asked.at) {
            retry_is_tight(driver, asked, seen)?;
            remaining_is_tight(driver, asked, seen)?;
            reset_is_tight(driver, asked, seen)?;
        }
        Ok(())
    })
}

/// Law 8: over the time that went forward, no more is admitted than without steps back, except one more limit for
/// each step back.
pub(crate) fn law_8_a_step_back_admits_at_most_one_limit_more<D: Driver>(
    subject: &Subject,
    case: &Case,
) -> Holds {
    let mut now = None;
    let (mut admitted, mut gone_on, mut steps_back) = (0, 0, 0);
    case.play(&mut D::new(subject.algorithm), |_, asked, seen| {
        let before = now.replace(asked.at).unwrap_or(asked.at);
        gone_on += i128::from(asked.at.saturating_sub(before));
        steps_back += i128::from(asked.at < before);
        if seen.allowed {
            admitted += i128::from(asked.cost);
        }
        let most = subject.rule.most_within(gone_on) + steps_back * subject.rule.limit();
        prop_assert!(admitted <= most, "{admitted} admitted, where {most} may be");
        Ok(())
    })
}
