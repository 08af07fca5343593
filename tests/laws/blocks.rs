//! A block denies all requests of a key, and leaves no other trace.

use proptest::prelude::*;

use crate::case::{Case, CaseRequest};
use crate::laws::{Holds, LONGEST};
use crate::subject::Subject;
use crate::support::driver::{Blocking, Seen};

/// The block of a key: `(from, until)`.
type Block = (u64, u64);

/// Blocks the key, or ends its block, before every third request.
fn now_and_then<D: Blocking>(
    driver: &mut D,
    block: &mut Option<Block>,
    number: u32,
    at: u64,
    case: &Case,
) {
    match number % 6 {
        2 => {
            let length = length(at, case);
            driver.block(at, length);
            let (from, until) = block.unwrap_or((at, at));
            let until = until - from.saturating_sub(at);
            if at + length > until.max(at) {
                *block = Some((at, at + length));
            }
        }
        5 if at.is_multiple_of(2) => {
            let was_blocked = driver.unblock(at);
            let until = block.map_or(0, |(from, until)| until - from.saturating_sub(at));
            assert_eq!(was_blocked, until > at, "at {at} µs");
            *block = None;
        }
        _ => {}
    }
}

/// Up to two periods, in microseconds: any length, and the same in each run.
fn length(at: u64, case: &Case) -> u64 {
    let any = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 13;
    any % (2 * case.numbers.period)
}

/// During a block, every request is denied until its end, or for the key's own wait if that is longer, and is charged
/// nothing. The model is not asked.
pub(crate) fn a_blocked_key_is_denied_and_then_as_if_it_had_not_asked<D: Blocking>(
    subject: &Subject,
    case: &Case,
) -> Holds {
    let mut driver = D::new(subject.algorithm);
    let mut model = subject.model();
    let mut block = None;
    let mut walk = case.walk();
    for number in 0.. {
        let Some(asked) = walk.ask() else { break };
        let CaseRequest { at, cost } = asked;
        now_and_then(&mut driver, &mut block, number, at, case);
        let left = block.map_or(0, |(_, until)| until.saturating_sub(at));
        let expected = if left > 0 {
            let own = model.clone().decide(at, 0);
            let wait = model.clone().decide(at, cost).retry_after;
            Seen {
                allowed: false,
                limit: own.limit,
                remaining: 0,
                reset_after: own.reset_after.max(left),
                retry_after: Some(wait.unwrap_or(0).max(left)),
            }
        } else {
            model.decide(at, cost)
        };
        prop_assert_eq!(driver.peek(at, cost), expected, "peeked at {:?}", asked);
        let seen = driver.decide(at, cost);
        prop_assert_eq!(seen, expected, "{:?}, {} left", asked, left);
        walk.told(seen);
    }
    Ok(())
}

/// A denied request is denied one microsecond before the end of the wait, and allowed at the end if it ever can be.
pub(crate) fn the_wait_of_a_blocked_key_is_tight<D: Blocking>(
    subject: &Subject,
    case: &Case,
) -> Holds {
    let mut driver = D::new(subject.algorithm);
    let mut block = None;
    let mut walk = case.walk();
    for number in 0.. {
        let Some(CaseRequest { at, cost }) = walk.ask() else {
            break;
        };
        now_and_then(&mut driver, &mut block, number, at, case);
        let seen = driver.decide(at, cost);
        walk.told(seen);
        if block.is_none_or(|(_, until)| until <= at) {
            continue;
        }
        prop_assert!(!seen.allowed);
        let wait = seen.retry_after.expect("a block ends");
        let just_before = driver.fork().decide(at + wait - 1, cost);
        prop_assert!(!just_before.allowed, "allowed too early");
        let can_pass = cost <= seen.limit && seen.limit > 0;
        if wait < LONGEST {
            let then = driver.fork().decide(at + wait, cost);
            prop_assert_eq!(then.allowed, can_pass, "after {} µs", wait);
        }
    }
    Ok(())
}

/// Law 8: when the clock steps back behind the beginning of a block, the block begins again, and that is kept unless
/// the request only asked.
pub(crate) fn law_8_no_wait_is_longer_than_the_block<D: Blocking>(
    subject: &Subject,
    case: &Case,
) -> Holds {
    let mut driver = D::new(subject.algorithm);
    let mut block: Option<Block> = None;
    let mut walk = case.walk();
    for number in 0.. {
        let Some(CaseRequest { at, cost }) = walk.ask() else {
            break;
        };
        now_and_then(&mut driver, &mut block, number, at, case);
        let moved = block.map(|(from, until)| (from.min(at), until - from.saturating_sub(at)));
        if cost > 0 {
            block = moved;
        }
        let peeked = driver.peek(at, cost);
        let seen = driver.decide(at, cost);
        prop_assert_eq!(seen, peeked);
        walk.told(seen);
        match moved {
            Some((from, until)) if at < until => {
                let left = until - at.max(from);
                let longest = subject.algorithm.longest_wait();
                let longest = longest.map_or(0, crate::support::driver::micros);
                let told = seen.retry_after.unwrap_or(u64::MAX);
                prop_assert!(!seen.allowed);
                prop_assert!(left <= told && told <= left.max(longest), "{told} µs");
            }
            _ => {
                // The store forgets it at the first request after its end.
                if cost > 0 || D::FORGETS_WHEN_ASKED {
                    block = None;
                }
                prop_assert!(subject.is_within_the_longest_wait(&seen));
            }
        }
    }
    Ok(())
}
