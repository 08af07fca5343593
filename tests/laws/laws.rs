use proptest::prelude::*;
use tower_ratelimit::Micros;

use crate::case::{Case, CaseRequest};
use crate::subject::Subject;
use crate::support::driver::{Driver, Seen, micros};

pub(crate) type Holds = Result<(), TestCaseError>;

/// The most requests of cost 1 that are sent one by one. Law 7 says that one request of the whole cost is the same.
const ONE_BY_ONE: u32 = 6;

pub(crate) const LONGEST: u64 = Micros::LONGEST.get();

/// Law 1: no closed span has more admissions than the bound of the algorithm, and each admission follows the rule.
pub(crate) fn law_1_never_one_too_many<D: Driver>(subject: &Subject, case: &Case) -> Holds {
    let mut admitted: Vec<CaseRequest> = Vec::new();
    let mut model = subject.model();
    case.play(&mut D::new(subject.algorithm), |_, asked, seen| {
        prop_assert_eq!(seen.allowed, model.decide(asked.at, asked.cost).allowed);
        if !seen.allowed {
            return Ok(());
        }
        admitted.push(asked);
        let mut sum = 0;
        for first in admitted.iter().rev() {
            sum += i128::from(first.cost);
            let span = asked.at - first.at;
            let most = subject.rule.most_within(span.into());
            prop_assert!(sum <= most, "{sum} in {span} µs, where {most} may be");
        }
        Ok(())
    })
}

/// Law 2: a request that is denied with a wait is denied one microsecond before its end and allowed at its end. A
/// request that is denied without a wait is never allowed.
pub(crate) fn law_2_retry_is_tight<D: Driver>(subject: &Subject, case: &Case) -> Holds {
    case.play(&mut D::new(subject.algorithm), retry_is_tight)
}

pub(crate) fn retry_is_tight<D: Driver>(driver: &D, asked: CaseRequest, seen: Seen) -> Holds {
    let CaseRequest { at, cost } = asked;
    let allowed_after = |wait: u64| driver.fork().decide(at + wait, cost).allowed;
    match seen.retry_after {
        None if seen.allowed => {}
        None => {
            prop_assert!(cost > seen.limit || seen.limit == 0);
            prop_assert!(!allowed_after(seen.reset_after));
            prop_assert!(!allowed_after(LONGEST));
        }
        Some(wait) => {
            prop_assert!(!seen.allowed);
            prop_assert!((1..=LONGEST).contains(&wait), "a wait of {wait} µs");
            prop_assert!(!allowed_after(wait - 1), "allowed too early");
            prop_assert!(
                wait == LONGEST || allowed_after(wait),
                "denied at {wait} µs"
            );
        }
    }
    Ok(())
}

/// Law 3: as many requests of cost 1 as remain are allowed at the same instant, and the next is denied.
pub(crate) fn law_3_remaining_is_tight<D: Driver>(subject: &Subject, case: &Case) -> Holds {
    case.play(&mut D::new(subject.algorithm), remaining_is_tight)
}

pub(crate) fn remaining_is_tight<D: Driver>(driver: &D, asked: CaseRequest, seen: Seen) -> Holds {
    let mut fork = driver.fork();
    let ones = seen.remaining.min(ONE_BY_ONE);
    if seen.remaining > ones {
        let first = fork.decide(asked.at, seen.remaining - ones);
        prop_assert!(first.allowed);
        prop_assert_eq!(first.remaining, ones);
    }
    for left in (0..ones).rev() {
        let next = fork.decide(asked.at, 1);
        prop_assert!(next.allowed, "denied with {} remaining", left + 1);
        prop_assert_eq!(next.remaining, left);
    }
    let next = fork.decide(asked.at, 1);
    prop_assert!(!next.allowed, "allowed with none remaining");
    prop_assert_eq!(next.remaining, 0);
    Ok(())
}

/// Law 4: the whole limit is available after the reset, and not one microsecond before.
pub(crate) fn law_4_reset_is_tight<D: Driver>(subject: &Subject, case: &Case) -> Holds {
    case.play(&mut D::new(subject.algorithm), reset_is_tight)
}

pub(crate) fn reset_is_tight<D: Driver>(driver: &D, asked: CaseRequest, seen: Seen) -> Holds {
    let Seen {
        limit, reset_after, ..
    } = seen;
    prop_assert!(reset_after <= LONGEST);
    if reset_after > 0 {
        let just_before = asked.at + reset_after - 1;
        prop_assert!(!driver.fork().decide(just_before, limit).allowed);
    }
    if reset_after < LONGEST {
        let whole = driver.fork().decide(asked.at + reset_after, limit);
        prop_assert_eq!(whole.allowed, limit > 0);
    }
    Ok(())
}

/// Law 5: after the reset, each decision equals that for a new key.
pub(crate) fn law_5_idle_is_new<D: Driver>(subject: &Subject, case: &Case) -> Holds {
    let mut walk = case.walk();
    let mut old = D::new(subject.algorithm);
    for _ in 0..case.asks.len() / 2 {
        let Some(CaseRequest { at, cost }) = walk.ask() else {
            break;
        };
        walk.told(old.decide(at, cost));
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

/// Law 6: denied requests do not change later decisions.
pub(crate) fn law_6_a_denial_charges_nothing<D: Driver>(subject: &Subject, case: &Case) -> Holds {
    let mut quiet = D::new(subject.algorithm);
    case.play(&mut D::new(subject.algorithm), |flooded, asked, seen| {
        if seen.allowed {
            prop_assert_eq!(quiet.decide(asked.at, asked.cost), seen);
        }
        prop_assert_eq!(quiet.state(), flooded.state());
        Ok(())
    })
}

/// Law 7: a request is allowed exactly if as many requests of cost 1 at the same instant would all be allowed, and
/// leaves the same state.
pub(crate) fn law_7_one_cost_one_step<D: Driver>(subject: &Subject, case: &Case) -> Holds {
    let mut walk = case.walk();
    let mut driver = D::new(subject.algorithm);
    while let Some(CaseRequest { at, cost }) = walk.ask() {
        let mut one_by_one = driver.fork();
        let seen = driver.decide(at, cost);
        walk.told(seen);
        let ones = cost.min(ONE_BY_ONE);
        let rest = Some(cost - ones).filter(|&rest| rest > 0);
        let mut last = seen;
        let mut each = rest.into_iter().chain((0..ones).map(|_| 1));
        let all = each.all(|cost| {
            last = one_by_one.decide(at, cost);
            last.allowed
        });
        if cost > 0 {
            prop_assert_eq!(seen.allowed, all);
        }
        if seen.allowed {
            prop_assert_eq!(seen, last);
            prop_assert_eq!(one_by_one.state(), driver.state());
        }
    }
    Ok(())
}

/// Law 9: every number equals the one that the reference model finds by trial.
pub(crate) fn law_9_the_outcome_is_the_models<D: Driver>(subject: &Subject, case: &Case) -> Holds {
    let mut model = subject.model();
    case.play(&mut D::new(subject.algorithm), |_, asked, seen| {
        prop_assert_eq!(seen, model.decide(asked.at, asked.cost), "{:?}", asked);
        Ok(())
    })
}

/// A whole limit, used up at the beginning of windows, has the longest wait of the algorithm.
pub(crate) fn the_longest_wait_is_reached<D: Driver>(subject: &Subject, case: &Case) -> Holds {
    let at = case.aligned_start();
    let mut driver = D::new(subject.algorithm);
    let limit = driver.decide(at, 0).limit;
    let reset = driver.decide(at, limit).reset_after;
    let longest = subject.algorithm.longest_wait().map(micros);
    if subject.rule.longest_wait_is_a_bound() {
        prop_assert!(longest.is_none_or(|longest| reset <= longest));
        prop_assert_eq!(longest.is_some(), limit > 0);
        return Ok(());
    }
    prop_assert_eq!(longest, (limit > 0).then_some(reset));
    Ok(())
}
