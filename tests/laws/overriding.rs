//! An override changes the limit of one key, and nothing else.

use proptest::prelude::*;
use tower_ratelimit::Algorithm;

use crate::case::{Case, CaseRequest};
use crate::laws::{Holds, remaining_is_tight};
use crate::subject::Subject;
use crate::support::driver::{Driver, Overriding, Step, micros};

/// The limit of the key, and the end of an override.
type Own = Option<u64>;

/// Changes the limit, or ends the override, before every third request. Returns whether it did.
fn now_and_then<D: Overriding>(
    driver: &mut D,
    own: &mut Own,
    number: u32,
    at: u64,
    case: (&Case, Algorithm),
) -> bool {
    let (case, limit) = case;
    match number % 6 {
        1 | 4 => {
            let any = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 13;
            let length = 1 + any % (2 * case.numbers.period);
            driver.override_limit(at, limit, length);
            *own = Some(at + length);
            true
        }
        5 if at.is_multiple_of(2) => {
            driver.end_override(at);
            *own = None;
            true
        }
        _ => false,
    }
}

/// All verbs, as the pure step has them.
pub(crate) fn an_overridden_key_goes_by_its_own_limit<D: Overriding>(
    subjects: &[Subject; 2],
    case: &Case,
) -> Holds {
    let limits = [subjects[0].algorithm, subjects[1].algorithm];
    let mut driver = D::new(limits[0]);
    let mut reference = Step::new(limits[0]);
    let mut own = None;
    let mut walk = case.walk();
    for number in 0.. {
        let Some(CaseRequest { at, cost }) = walk.ask() else {
            break;
        };
        own = own.filter(|until| at < *until);
        reference.algorithm = limits[usize::from(own.is_some())];
        if now_and_then(&mut driver, &mut own, number, at, (case, limits[1])) {
            // Until this moment a debt drains under the limit before.
            reference.refund(at, 0);
            reference.algorithm = limits[usize::from(own.is_some())];
        }
        match number % 7 {
            2 => {
                driver.settle(at, cost);
                reference.settle(at, cost);
            }
            3 => {
                driver.refund(at, cost);
                reference.refund(at, cost);
            }
            5 if at.is_multiple_of(3) => {
                driver.reset(at);
                reference.reset(at);
            }
            _ => {}
        }
        let peeked = driver.peek(at, cost);
        let seen = driver.decide(at, cost);
        let expected = reference.decide(at, cost);
        prop_assert_eq!(peeked, expected, "{} at {}, own until {:?}", cost, at, own);
        prop_assert_eq!(seen, expected, "{} at {}, own until {:?}", cost, at, own);
        walk.told(seen);
    }
    Ok(())
}

/// The model with another limit, for everything but the rate of a bucket, whose parts differ.
pub(crate) fn law_8_the_limit_of_a_key_is_a_change_of_quota<D: Overriding>(
    subjects: &[Subject; 2],
    case: &Case,
) -> Holds {
    let limits = [subjects[0].algorithm, subjects[1].algorithm];
    let is_bucket = limits[0].name().contains("bucket")
        || limits[0].name().contains("gcra")
        || limits[0].name().contains("queue");
    if is_bucket {
        return Ok(());
    }
    let mut driver = D::new(limits[0]);
    let mut model = subjects[0].model();
    let (mut own, mut is_own) = (None, false);
    let mut walk = case.walk();
    for number in 0.. {
        let Some(CaseRequest { at, cost }) = walk.ask() else {
            break;
        };
        own = own.filter(|until| at < *until);
        now_and_then(&mut driver, &mut own, number, at, (case, limits[1]));
        if is_own != own.is_some() {
            is_own = own.is_some();
            model = model.under(subjects[usize::from(is_own)].rule.clone());
        }
        let seen = driver.decide(at, cost);
        let mut expected = model.decide(at, cost);
        if expected.limit == 0 {
            // Under a limit of 0, the usage under another limit does not show.
            expected.reset_after = 0;
        }
        prop_assert_eq!(seen, expected, "{} at {}", cost, at);
        walk.told(seen);
    }
    Ok(())
}

/// However the clock steps, and whenever a limit changes: laws 2 and 3 hold under the current limit, and no wait
/// exceeds the longest waits of both together.
pub(crate) fn law_8_no_wait_is_longer_than_the_longest_of_both<D: Overriding>(
    subjects: &[Subject; 2],
    case: &Case,
) -> Holds {
    let limits = [subjects[0].algorithm, subjects[1].algorithm];
    let longest = limits.map(|limit| limit.longest_wait().map_or(0, micros));
    let longest = longest[0].saturating_add(longest[1]);
    let mut driver = D::new(limits[0]);
    let mut own = None;
    let mut walk = case.walk();
    for number in 0.. {
        let Some(asked) = walk.ask() else { break };
        now_and_then(&mut driver, &mut own, number, asked.at, (case, limits[1]));
        let seen = driver.decide(asked.at, asked.cost);
        walk.told(seen);
        if asked.cost == 0 {
            continue;
        }
        prop_assert!(seen.reset_after <= longest, "{:?}", seen);
        prop_assert!(seen.retry_after.unwrap_or(0) <= longest, "{:?}", seen);
        remaining_is_tight(&driver, asked, seen)?;
    }
    Ok(())
}
