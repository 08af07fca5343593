//! The verbs besides decisions.

use proptest::prelude::*;

use crate::case::{Case, CaseRequest};
use crate::laws::{Holds, LONGEST, remaining_is_tight, reset_is_tight, retry_is_tight};
use crate::subject::Subject;
use crate::support::driver::{Driver, micros};

/// A refund removes the latest admissions: from then on, everything is as if they had never been requested.
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

/// A peek changes nothing, and returns the numbers of the decision that follows.
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

/// After a reset, the key is new.
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

/// A charge after the fact counts like an admission, as far as a window can count and a bucket can owe.
pub(crate) fn what_is_settled_counts<D: Driver>(subject: &Subject, case: &Case) -> Holds {
    let mut driver = D::new(subject.algorithm);
    let mut model = subject.model();
    let mut walk = case.walk();
    for number in 0.. {
        let Some(CaseRequest { at, cost }) = walk.ask() else {
            break;
        };
        match number % 8 {
            1 | 3 | 6 => {
                driver.settle(at, cost);
                model.settle(at, cost);
            }
            4 => {
                driver.refund(at, cost);
                model.refund(at, cost);
            }
            7 if at.is_multiple_of(2) => {
                driver.reset(at);
                model = subject.model();
            }
            _ => {}
        }
        let seen = driver.decide(at, cost);
        prop_assert_eq!(seen, model.decide(at, cost), "{} at {}", cost, at);
        walk.told(seen);
    }
    Ok(())
}

/// Laws 2 to 4 after a charge after the fact. No wait exceeds the longest one, or twice that for a bucket.
pub(crate) fn laws_2_to_4_hold_after_a_settlement<D: Driver>(
    subject: &Subject,
    case: &Case,
) -> Holds {
    let mut driver = D::new(subject.algorithm);
    let longest = subject.algorithm.longest_wait().map_or(0, micros);
    let longest = longest.saturating_mul(2).min(LONGEST);
    let mut walk = case.walk();
    while let Some(asked) = walk.ask() {
        driver.settle(asked.at, asked.cost);
        let seen = driver.decide(asked.at, asked.cost);
        walk.told(seen);
        if asked.cost > 0 && seen.limit > 0 {
            let retry = seen.retry_after.unwrap_or(0);
            prop_assert!(seen.reset_after.max(retry) <= longest, "{:?}", seen);
            retry_is_tight(&driver, asked, seen)?;
            remaining_is_tight(&driver, asked, seen)?;
            reset_is_tight(&driver, asked, seen)?;
        }
    }
    Ok(())
}

/// Law 5: after the reset, it is as if nothing had been charged after the fact.
pub(crate) fn law_5_idle_is_new_after_a_settlement<D: Driver>(
    subject: &Subject,
    case: &Case,
) -> Holds {
    let mut walk = case.walk();
    let mut old = D::new(subject.algorithm);
    for _ in 0..case.asks.len() / 2 {
        let Some(CaseRequest { at, cost }) = walk.ask() else {
            break;
        };
        old.settle(at, cost);
        walk.told(old.decide(at, 0));
    }
    if !walk.rests_until_reset() {
        return Ok(());
    }
    let mut new = D::new(subject.algorithm);
    while let Some(CaseRequest { at, cost }) = walk.ask() {
        let seen = old.decide(at, cost);
        walk.told(seen);
        prop_assert_eq!(seen, new.decide(at, cost));
    }
    Ok(())
}

/// A charge of nothing after the fact changes nothing, and neither does a charge under a limit of 0.
pub(crate) fn nothing_is_settled_by_0_units<D: Driver>(subject: &Subject, case: &Case) -> Holds {
    let mut driver = D::new(subject.algorithm);
    let mut quiet = D::new(subject.algorithm);
    let mut walk = case.walk();
    while let Some(CaseRequest { at, cost }) = walk.ask() {
        driver.settle(at, 0);
        let seen = driver.decide(at, cost);
        if seen.limit == 0 {
            driver.settle(at, cost);
        }
        prop_assert_eq!(seen, quiet.decide(at, cost));
        prop_assert_eq!(driver.state(), quiet.state());
        walk.told(seen);
    }
    Ok(())
}
