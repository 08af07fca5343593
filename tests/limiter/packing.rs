//! A state is kept in one word where that is exact, and else in more. Which of the two it is, is
//! not seen outside: a store decides as the pure step does, field by field, on both sides of the
//! edge and up to the end of the clock.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use tower_ratelimit::{
    Algorithm, AnchoredWindow, FixedWindow, Gcra, LeakyQueue, ManualClock, Micros, Quota,
    SlidingLog, SlidingSlots, SlidingWindow, TokenBucket,
};

use crate::support::driver::{Driver, Seen, Step, limiter, limiter_over, small_store};

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
                limiter.settle(key as u64, cost).now();
                steps[key].settle(now, cost);
            }
            let decision = limiter.check(key as u64, cost).now();
            let (_, outcome) = decision.binding().expect("a policy was asked");
            prop_assert_eq!(Seen::from(outcome), steps[key].decide(now, cost), "{} at {}", cost, now);
        }
    }
}

const SECOND: u64 = 1_000_000;

/// The average length of a year.
const YEAR: u64 = 31_556_952 * SECOND;

/// The last moments at which a word can hold the states of an algorithm are near some of these, which are the years from
/// 2255 to the end of the clock.
fn far_moments(algorithm: Algorithm) -> Vec<u64> {
    let period = algorithm.period().unwrap_or(Duration::from_secs(1));
    // A word holds a moment, or the number of a window, above a count. The moment of a debt is in parts of a microsecond.
    let units = [1, SECOND, Micros::from(period).get()];
    let counted = (0..64).flat_map(|bits| units.map(|unit| unit.checked_mul(u64::MAX >> bits)));
    let parts = (1..=1_023).step_by(10).map(|parts| u64::MAX / parts);
    let years = [3_059, 3_100, 9_000, 9_999].map(|year| (year - 1_970) * YEAR);
    let all = counted.flatten().chain(parts).chain(years);
    all.filter(|moment| *moment > Micros::LONGEST.get())
        .chain([u64::MAX])
        .collect()
}

/// Algorithms of which no word holds a state, too.
fn any_algorithm() -> impl Strategy<Value = Algorithm> {
    let others = (1_u16..2_000).prop_map(|limit| -> [Algorithm; 3] {
        [
            SlidingLog::per_minute(limit).into(),
            SlidingSlots::per_minute(limit.into()).into(),
            LeakyQueue::per_minute(limit.into()).places(10).into(),
        ]
    });
    prop_oneof![
        3 => algorithm(),
        1 => others.prop_flat_map(|others| prop::sample::select(others.to_vec())),
    ]
}

#[derive(Clone, Copy, Debug)]
enum Verb {
    Check,
    Peek,
    Settle,
    Refund,
    StepBack,
}

proptest! {
    #![proptest_config(config())]

    /// As far away as the clock of the store can be, and beside another policy, which takes the general path.
    #[test]
    fn a_state_stays_as_it_is_where_the_range_of_a_word_ends(
        algorithm in any_algorithm(),
        moment in any::<prop::sample::Index>(),
        asks in prop::collection::vec((ask(), verb()), 1..60),
        begins in 0_u64..1_200,
        is_alone in any::<bool>(),
    ) {
        let span: u64 = asks.iter().map(|(ask, _)| ask.gap).sum();
        let far = *moment.get(&far_moments(algorithm));
        // In thousandths of the time that the requests take before that moment.
        let mut now = far - span / 1_000 * begins;
        let clock = ManualClock::new();
        let beside = (!is_alone).then_some(("beside", Algorithm::Unlimited));
        let policies = [("policy", algorithm)].into_iter().chain(beside);
        let limiter = limiter_over(&small_store(&clock), policies);
        let mut step = Step::new(algorithm);
        let limit = u64::from(algorithm.limit().unwrap());
        for (Ask { cost, gap, .. }, verb) in asks {
            now = match verb {
                Verb::StepBack => now - gap,
                _ => now.saturating_add(gap),
            };
            clock.set_micros(Micros::new(now));
            let cost = match cost {
                Ok(thousandths) => u32::try_from(limit * u64::from(thousandths) / 1_000),
                Err(cost) => Ok(cost),
            };
            let cost = cost.unwrap_or(u32::MAX);
            let (decision, expected) = match verb {
                Verb::Settle => {
                    limiter.settle("key", cost).now();
                    step.settle(now, cost);
                    continue;
                }
                Verb::Refund => {
                    limiter.refund("key", cost).now();
                    step.refund(now, cost);
                    continue;
                }
                Verb::Peek => (limiter.peek("key", cost).now(), step.peek(now, cost)),
                _ => (limiter.check("key", cost).now(), step.decide(now, cost)),
            };
            let (_, outcome) = decision.binding().expect("a policy was asked");
            prop_assert_eq!(Seen::from(outcome), expected, "{:?} of {} at {}", verb, cost, now);
        }
    }
}

fn verb() -> impl Strategy<Value = Verb> {
    prop_oneof![
        6 => Just(Verb::Check),
        1 => Just(Verb::Peek),
        1 => Just(Verb::Settle),
        1 => Just(Verb::Refund),
        1 => Just(Verb::StepBack),
    ]
}

/// A word holds the seconds of a calendar window until the year 3058.
#[cfg(feature = "calendar")]
#[test]
fn a_calendar_window_that_is_used_up_where_its_words_end_waits_for_its_own_end_and_no_longer() {
    let month: Algorithm = FixedWindow::per_calendar_month(2).into();
    let border = (1_u64 << 35) * SECOND;
    let clock = ManualClock::new();
    let limiter = limiter(&clock, [("policy", month)]);
    let mut step = Step::new(month);
    let years = [3_100, 9_999].map(|year| (year - 1_970) * YEAR);
    for moment in [border, years[0], years[1], u64::MAX - YEAR] {
        for (offset, allowed) in [(0, true), (1, true), (2, false), (2 * SECOND, false)] {
            let now = moment - SECOND + offset;
            clock.set_micros(Micros::new(now));
            let decision = limiter.check("key", 1).now();
            let (_, outcome) = decision.binding().expect("a policy was asked");
            let seen = Seen::from(outcome);
            assert_eq!(seen, step.decide(now, 1), "at {now}");
            assert_eq!(seen.allowed, allowed, "at {now}");
            if let Some(wait) = seen.retry_after {
                assert!(step.peek(now + wait, 1).allowed);
                clock.set_micros(Micros::new(now + wait));
                assert!(limiter.peek("key", 1).now().is_allowed(), "at {now}");
            }
        }
    }
}

/// Each table goes through all moments in their order, and so past the end of its words.
#[test]
fn no_algorithm_forgets_what_was_used_before_its_words_end() {
    let algorithms: Vec<Algorithm> = vec![
        FixedWindow::per_second(1_000_000).into(),
        AnchoredWindow::per_minute(10).into(),
        SlidingWindow::per_second(1_000).into(),
        SlidingLog::per_minute(10).into(),
        SlidingSlots::per_minute(10).into(),
        Gcra::per_minute(10).into(),
        Gcra::per_second(1_021).burst(3).into(),
        LeakyQueue::per_minute(10).places(9).into(),
        TokenBucket::per_hour(10).into(),
        TokenBucket::per_minute(10).by_interval().into(),
    ];
    #[cfg(feature = "calendar")]
    let algorithms = algorithms.into_iter().chain((5..SHAPES).map(|shape| {
        let quota = Quota::new(10, Duration::from_mins(1)).unwrap();
        by_calendar(shape, quota, 5)
    }));
    for algorithm in algorithms {
        let clock = ManualClock::new();
        let limiter = limiter_over(&small_store(&clock), [("policy", algorithm)]);
        let mut moments = far_moments(algorithm);
        moments.sort_unstable();
        let window = Micros::from(algorithm.period().unwrap()).get();
        let quarters = (1..12).rev().map(|quarters| window / 4 * quarters);
        let (before, after) = (quarters.chain([2, 1, 0]), [1, 2, window / 4]);
        let around = |moment: u64| {
            let before = before.clone().map(move |gap| moment - gap);
            before.chain(after.map(move |gap| moment.saturating_add(gap)))
        };
        let cost = algorithm.limit().unwrap().min(7);
        let mut step = Step::new(algorithm);
        let mut now = 0;
        for at in moments.into_iter().flat_map(around) {
            now = at.max(now);
            clock.set_micros(Micros::new(now));
            let decision = limiter.check("key", cost).now();
            let (_, outcome) = decision.binding().expect("a policy was asked");
            let expected = step.decide(now, cost);
            assert_eq!(Seen::from(outcome), expected, "{algorithm} at {now}");
        }
    }
}
