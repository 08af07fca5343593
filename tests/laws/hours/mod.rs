//! Limits by the hour: laws 2, 9 and 11 through the switches of a timetable.
//!
//! The model reads the wall clock, minute by minute, to find the edges of intervals. A debt drains from edge to edge,
//! and the model tries every stretch between two edges for the first moment at which a request passes.

mod cases;
mod model;
mod several;
mod zone_data;

use proptest::prelude::*;

use self::cases::{Ask, Case, Cost, Gap, cases};
use self::model::{BEYOND, HORIZON, Slow};
pub(crate) use self::several::{AtOnce, Several};
use crate::laws::{Holds, remaining_is_tight};
use crate::property;
use crate::support::driver::{Driver, Memory, Seen, Shared, Step};

const MINUTE: i128 = 60_000_000;

const SECOND: u64 = 1_000_000;

/// Every number equals that of the model, and a request that waits as announced passes.
fn the_outcome_is_the_models<D: Driver>(case: &Case) -> Holds {
    let algorithm = case.algorithm();
    let mut driver = D::new(algorithm);
    let mut slow = Slow::new(case);
    let mut at = case.start;
    let mut last: Option<Seen> = None;
    for Ask { gap, cost } in &case.asks {
        let retry = last.and_then(|seen| seen.retry_after).unwrap_or(0);
        let reset = last.map_or(0, |seen| seen.reset_after);
        let edge = || {
            let now = i128::from(at);
            let edges = slow.wall.switches(now, now + HORIZON);
            edges
                .first()
                .map_or(0, |edge| u64::try_from(edge - now).unwrap())
        };
        at += match gap {
            Gap::None => 0,
            Gap::Micros(micros) => *micros,
            Gap::Periods(parts) => case.own.period / 4_096 * parts,
            Gap::Retry => retry,
            Gap::JustBeforeRetry => retry.saturating_sub(1),
            Gap::Reset => reset,
            Gap::JustBeforeReset => reset.saturating_sub(1),
            Gap::ToNextEdge => edge(),
            Gap::JustBeforeNextEdge => edge().saturating_sub(1),
        };
        if at > case.start + 40 * 86_400 * SECOND {
            break;
        }
        let limit = last.map_or(case.own.limit, |seen| seen.limit);
        let cost = match cost {
            Cost::This(cost) => *cost,
            Cost::Remaining => last.map_or(1, |seen| seen.remaining),
            Cost::Limit => limit,
        };
        let peeked = driver.peek(at, cost);
        let seen = driver.decide(at, cost);
        prop_assert_eq!(peeked, seen);
        let expected = slow.decide(at, cost);
        let is_beyond = |wait: u64| i128::from(wait) >= HORIZON;
        if seen.retry_after.is_some_and(is_beyond) {
            prop_assert_eq!(expected.retry_after, None);
            break;
        }
        if is_beyond(seen.reset_after) {
            prop_assert_eq!(expected.reset_after, BEYOND);
            break;
        }
        prop_assert_eq!(seen, expected, "at {} under {:?}", at, algorithm);
        remaining_is_tight(&driver, crate::case::CaseRequest { at, cost }, seen)?;
        if let Some(wait) = seen.retry_after {
            prop_assert!(driver.fork().decide(at + wait, cost).allowed);
        }
        last = Some(seen);
    }
    Ok(())
}

fn check<D: Driver>(price: u32) {
    property::check_at(property::seeds!(hours), price, cases(), &|case| {
        if !D::takes(&case.algorithm()) {
            return Ok(());
        }
        the_outcome_is_the_models::<D>(case)
    });
}

#[test]
fn the_step_tells_what_the_model_does() {
    check::<Step>(10);
}

#[test]
fn the_store_in_memory_tells_what_the_model_does() {
    check::<Memory>(10);
}

#[test]
fn a_shared_store_tells_what_the_model_does() {
    check::<Shared>(10);
}

#[cfg(feature = "redis")]
#[test]
fn redis_tells_what_the_model_does() {
    check::<crate::redis::Redis>(50);
}
