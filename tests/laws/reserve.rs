//! Requests of low priority pass if the reserve remains after them, and their waits are exact. All requests of a key
//! are counted together.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tower_ratelimit::{Algorithm, Policy};

use crate::factors::{Memory, Scaled, Shared, algorithms};
use crate::property::{check_at, seeds};

#[derive(Clone, Debug)]
struct Case {
    algorithm: Algorithm,
    reserve: u32,
    start: u64,
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    /// In 2^12ths of a period.
    gap: u64,
    cost: u32,
    is_low: bool,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Alone,
    /// Waits as announced, if it was denied.
    Waits,
    /// Takes as many units as remain.
    Drains,
    GivesBack,
}

fn steps() -> impl Strategy<Value = Step> {
    let gap = prop_oneof![2 => Just(0), 2 => 0_u64..4_096, 1 => 0_u64..20_000];
    let cost = prop_oneof![3 => Just(1_u32), 3 => 1_u32..12, 1 => 0_u32..1_200];
    let kind = select(vec![
        Kind::Alone,
        Kind::Waits,
        Kind::Drains,
        Kind::GivesBack,
    ]);
    (gap, cost, any::<bool>(), kind).prop_map(|(gap, cost, is_low, kind)| Step {
        gap,
        cost,
        is_low,
        kind,
    })
}

fn cases() -> impl Strategy<Value = Case> {
    let start = 1_600_000_000_000_000_u64..1_700_000_000_000_000;
    let share = 0_u32..1_000;
    (algorithms(), share, start, vec(steps(), 1..12)).prop_map(
        |(algorithm, share, start, steps)| {
            let limit = algorithm.limit().unwrap();
            Case {
                algorithm,
                reserve: limit * share / 1_000,
                start,
                steps,
            }
        },
    )
}

fn the_reserve_remains<D: Scaled>(case: &Case) -> Result<(), TestCaseError> {
    let driver = D::over(Policy::new("reserved", case.algorithm).reserve(case.reserve));
    // The same requests without a reserve: the numbers are those of the whole limit.
    let whole = D::over(Policy::new("whole", case.algorithm));
    let limit = case.algorithm.limit().unwrap();
    let period = u64::try_from(case.algorithm.period().unwrap().as_micros()).unwrap();
    let mut at = case.start;
    for step in &case.steps {
        at += step.gap * period / 4_096;
        let left = if step.is_low { case.reserve } else { 0 };
        let decide = |at, cost| {
            if step.is_low {
                driver.decide_low(at, cost)
            } else {
                driver.decide(at, cost)
            }
        };
        let passes = |at, cost| {
            let remaining = whole.decide(at, 0).remaining;
            cost == 0 || u64::from(remaining) >= u64::from(cost) + u64::from(left)
        };
        let is_expected = passes(at, step.cost);
        let mut seen = decide(at, step.cost);
        prop_assert_eq!(seen.allowed, is_expected, "{:?}", seen);
        prop_assert_eq!(seen.limit, limit - left);
        if let (Kind::Waits, Some(wait)) = (step.kind, seen.retry_after) {
            at += wait - 1;
            prop_assert!(!decide(at, step.cost).allowed, "1 µs early: {:?}", seen);
            at += 1;
            prop_assert!(passes(at, step.cost));
            let due = decide(at, step.cost);
            prop_assert!(due.allowed, "told {:?}, and then {:?}", seen, due);
            seen = due;
        }
        if seen.allowed && step.cost > 0 {
            prop_assert!(whole.decide(at, step.cost).allowed);
        }
        let remaining = whole.decide(at, 0).remaining;
        prop_assert_eq!(seen.remaining, remaining.saturating_sub(left));
        match step.kind {
            Kind::Alone | Kind::Waits => {}
            Kind::Drains => {
                for left in (0..seen.remaining).rev() {
                    let next = decide(at, 1);
                    prop_assert!(next.allowed && next.remaining == left, "{:?}", next);
                    prop_assert!(whole.decide(at, 1).allowed);
                }
                prop_assert!(!decide(at, 1).allowed);
            }
            Kind::GivesBack => {
                driver.give_back(at, step.cost.min(3));
                whole.give_back(at, step.cost.min(3));
            }
        }
    }
    Ok(())
}

macro_rules! mount {
    ($($(#[$when:meta])* $store:ident: $driver:ty;)+) => {$(
        $(#[$when])*
        mod $store {
            use super::*;

            #[test]
            fn low_priority_passes_if_the_reserve_remains_and_is_told_the_truth() {
                let price = 2 * <$driver as Scaled>::PRICE;
                check_at(seeds!(reserve), price, cases(), &the_reserve_remains::<$driver>);
            }
        }
    )+};
}
mount! {
    memory: Memory;
    shared: Shared;
    #[cfg(feature = "redis")]
    redis: crate::redis::Redis;
}
