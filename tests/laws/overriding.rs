//! A limit of one key, in place of its policy's, is a change of quota and of nothing else.

use proptest::prelude::*;
use tower_ratelimit::Algorithm;

use crate::case::{Asked, Case};
use crate::laws::{Holds, remaining_is_tight};
use crate::subject::Subject;
use crate::support::driver::{Driver, Memory, Step, micros};

/// Whose limit it is, and when it ends.
type Own = Option<u64>;

/// Changes the limit, or ends that, before every third request.
fn now_and_then(
    driver: &mut Memory,
    own: &mut Own,
    number: u32,
    at: u64,
    case: (&Case, Algorithm),
) {
    let (case, limit) = case;
    match number % 6 {
        1 | 4 => {
            let any = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 13;
            let length = 1 + any % (2 * case.numbers.period);
            driver.override_limit(at, limit, length);
            *own = Some(at + length);
        }
        5 if at.is_multiple_of(2) => {
            driver.end_override(at);
            *own = None;
        }
        _ => {}
    }
}

/// The pure step under the limit of the moment, which is told when that changes.
struct Reference {
    step: Step,
    limits: [Algorithm; 2],
    own: Own,
}

impl Reference {
    fn new(limits: [Algorithm; 2]) -> Self {
        Self {
            step: Step::new(limits[0]),
            limits,
            own: None,
        }
    }

    /// What was used until then stays used under the other limit.
    fn change(&mut self, at: u64, limit: usize) {
        self.step.refund(at, 0);
        self.step.algorithm = self.limits[limit];
        self.step.refund(at, 0);
    }

    fn moves_to(&mut self, at: u64, own: Own) {
        if let Some(until) = self.own.filter(|until| *until <= at) {
            self.change(until, 0);
            self.own = None;
        }
        if self.own != own {
            self.change(at, usize::from(own.is_some()));
            self.own = own;
        }
    }
}

/// All verbs, as the pure step has them.
pub(crate) fn an_overridden_key_goes_by_its_own_limit(
    subjects: &[Subject; 2],
    case: &Case,
) -> Holds {
    let limits = [subjects[0].algorithm, subjects[1].algorithm];
    let mut driver = Memory::new(limits[0]);
    let mut reference = Reference::new(limits);
    let mut own = None;
    let mut walk = case.walk();
    for number in 0.. {
        let Some(Asked { at, cost }) = walk.ask() else {
            break;
        };
        own = own.filter(|until| at < *until);
        now_and_then(&mut driver, &mut own, number, at, (case, limits[1]));
        reference.moves_to(at, own);
        match number % 7 {
            2 => {
                driver.settle(at, cost);
                reference.step.settle(at, cost);
            }
            3 => {
                driver.refund(at, cost);
                reference.step.refund(at, cost);
            }
            5 if at.is_multiple_of(3) => {
                driver.reset(at);
                reference.step.reset(at);
            }
            _ => {}
        }
        let peeked = driver.peek(at, cost);
        let seen = driver.decide(at, cost);
        let expected = reference.step.decide(at, cost);
        prop_assert_eq!(peeked, expected, "{} at {}, own until {:?}", cost, at, own);
        prop_assert_eq!(seen, expected, "{} at {}, own until {:?}", cost, at, own);
        walk.told(seen);
    }
    Ok(())
}

/// The model with its limit swapped: all but the rate of a bucket, a part of a request of which is
/// not the same part of another's.
pub(crate) fn law_8_the_limit_of_a_key_is_a_change_of_quota(
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
    let mut driver = Memory::new(limits[0]);
    let mut model = subjects[0].model();
    let (mut own, mut is_own) = (None, false);
    let mut walk = case.walk();
    for number in 0.. {
        let Some(Asked { at, cost }) = walk.ask() else {
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
            // What another limit has left is not told under one of 0, which nothing passes.
            expected.reset_after = 0;
        }
        prop_assert_eq!(seen, expected, "{} at {}", cost, at);
        walk.told(seen);
    }
    Ok(())
}

/// However the clock steps, and whenever a limit changes: laws 2 and 3 hold under that of the
/// moment, and nobody waits for longer than the longest wait of either.
pub(crate) fn law_8_no_wait_is_longer_than_the_longest_of_both(
    subjects: &[Subject; 2],
    case: &Case,
) -> Holds {
    let limits = [subjects[0].algorithm, subjects[1].algorithm];
    let longest = limits.map(|limit| limit.longest_wait().map_or(0, micros));
    let longest = longest[0].max(longest[1]);
    let mut driver = Memory::new(limits[0]);
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
