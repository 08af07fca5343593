//! A state is kept in one word where that is exact, and else in more. Which of the two it is, is
//! not seen outside: a store decides as the pure step does, field by field, on both sides of the
//! edge and up to the last moment that is ever told.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use tower_ratelimit::{
    Algorithm, AnchoredWindow, FixedWindow, Gcra, ManualClock, Micros, Quota, SlidingWindow,
    TokenBucket,
};

use crate::support::driver::{Driver, Seen, Step, limiter};

/// Numbers around the powers of two at which states cease to fit.
fn around(exponents: impl Iterator<Item = u32> + Clone) -> impl Strategy<Value = u32> {
    let powers: Vec<u64> = exponents.map(|exponent| 1 << exponent).collect();
    (prop::sample::select(powers), -2_i64..=2).prop_map(|(power, off)| {
        let near = power.saturating_add_signed(off).clamp(1, u32::MAX.into());
        u32::try_from(near).unwrap()
    })
}

fn algorithm() -> impl Strategy<Value = Algorithm> {
    let period = prop::sample::select(vec![
        1_000,
        1_009,
        1_000_000,
        60_000_000,
        86_399_999_999,
        86_400_000_000,
        31_622_400_000_000,
    ]);
    let limit = prop_oneof![
        around(0..33),
        around(8..14),
        prop::sample::select(vec![3, 997, 1_021, 1_031, 2_039, 2_053, 999_983]),
    ];
    let burst = prop_oneof![around(0..33), around(9..14)];
    (0_u8..SHAPES, limit, period, burst).prop_map(|(shape, limit, period, burst)| {
        let quota = Quota::new(limit, Duration::from_micros(period)).unwrap();
        match shape {
            0 => FixedWindow::of(quota).into(),
            1 => AnchoredWindow::of(quota).into(),
            2 => SlidingWindow::of(quota).into(),
            3 => TokenBucket::of(quota).burst(burst).by_interval().into(),
            #[cfg(feature = "calendar")]
            5.. => by_calendar(shape, quota, burst),
            _ => Gcra::of(quota).burst(burst).into(),
        }
    })
}

const SHAPES: u8 = if cfg!(feature = "calendar") { 11 } else { 5 };

/// Windows of a calendar, and windows by hours, of which this is the other limit.
#[cfg(feature = "calendar")]
fn by_calendar(shape: u8, quota: Quota, other: u32) -> Algorithm {
    use tower_ratelimit::Hours;
    use tower_ratelimit::calendar::Zone;

    let zone = Zone::named("America/Sao_Paulo").unwrap();
    let of = |limit| -> [Algorithm; 4] {
        let quota = Quota::new(limit, quota.period()).unwrap();
        [
            FixedWindow::per_calendar_day(limit).zone(zone).into(),
            FixedWindow::per_calendar_month(limit).zone(zone).into(),
            FixedWindow::of(quota).into(),
            AnchoredWindow::of(quota).into(),
        ]
    };
    let (own, other) = (of(quota.limit()), of(other));
    let by_hours = |place: usize| {
        let hours = Hours::of(zone).at("22:00-06:00", other[place]).unwrap();
        hours.over(own[place]).unwrap()
    };
    match shape {
        5 => own[0],
        6 => own[1],
        shape => by_hours(usize::from(shape) - 7),
    }
}

#[derive(Clone, Copy, Debug)]
struct Ask {
    key: usize,
    /// Whether it is charged after the fact too.
    settles: bool,
    /// In thousandths of the limit, or as it is.
    cost: Result<u32, u32>,
    gap: u64,
}

fn ask() -> impl Strategy<Value = Ask> {
    let gap = prop_oneof![
        3 => Just(0),
        3 => 1_u64..3,
        2 => 1_u64..2_000_000,
        1 => 1_u64..100_000_000_000,
    ];
    let cost = prop_oneof![
        1 => (0_u32..4).prop_map(Err),
        2 => prop::sample::select(vec![1, 333, 500, 999, 1_000, 1_001]).prop_map(Ok),
    ];
    (0..KEYS, 0..4_u8, cost, gap).prop_map(|(key, settles, cost, gap)| Ask {
        key,
        settles: settles == 0,
        cost,
        gap,
    })
}

/// More than there are pages, so that some share one: a packed debt is told as of the latest
/// charge on its page.
const KEYS: usize = 24;

const NEW_YEAR: u64 = 1_704_067_200_000_000;

/// As many cases as `PROPTEST_CASES` says, or 10,000.
fn config() -> ProptestConfig {
    let mut config = ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/proptest-regressions/packing.txt"
        )))),
        ..ProptestConfig::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 10_000;
    }
    config
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_packed_state_decides_as_a_wide_one(
        algorithm in algorithm(),
        asks in prop::collection::vec(ask(), 1..80),
        at_the_end_of_time in any::<bool>(),
    ) {
        let span: u64 = asks.iter().map(|ask| ask.gap).sum();
        let mut now = if at_the_end_of_time {
            Micros::LONGEST.get() - span
        } else {
            NEW_YEAR
        };
        let clock = ManualClock::new();
        let limiter = limiter(&clock, [("policy", algorithm)]);
        let mut steps = vec![Step::new(algorithm); KEYS];
        let limit = u64::from(algorithm.limit().unwrap());
        for Ask { key, settles, cost, gap } in asks {
            now += gap;
            clock.set_micros(Micros::new(now));
            let cost = match cost {
                Ok(thousandths) => u32::try_from(limit * u64::from(thousandths) / 1_000),
                Err(cost) => Ok(cost),
            };
            let cost = cost.unwrap_or(u32::MAX);
            if settles {
                limiter.settle_now(key as u64, cost);
                steps[key].settle(now, cost);
            }
            let decision = limiter.check_now(key as u64, cost);
            let (_, outcome) = decision.binding().expect("a policy was asked");
            prop_assert_eq!(Seen::from(outcome), steps[key].decide(now, cost), "{} at {}", cost, now);
        }
    }
}
