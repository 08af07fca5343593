//! A state may come from another program, and contain any words. For any state, a step answers with plausible
//! numbers, and leaves a state for which that holds again.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use tower_ratelimit::algorithm::State;
use tower_ratelimit::{
    Algorithm, AnchoredWindow, FixedWindow, Gcra, LeakyBucket, Micros, Quota, SlidingLog,
    SlidingSlots, SlidingWindow, TokenBucket,
};

/// Numbers near all edges, and any others.
fn number() -> impl Strategy<Value = u64> {
    let edges = prop::sample::select(vec![
        0,
        1,
        2,
        1_000,
        u64::from(u32::MAX),
        1_700_000_000_000_000,
        1_700_000_000_000_001,
        1 << 53,
        u64::MAX - 1,
        u64::MAX,
    ]);
    prop_oneof![3 => edges, 1 => any::<u64>()]
}

fn small() -> impl Strategy<Value = u32> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(7),
        Just(u32::MAX - 1),
        Just(u32::MAX),
        any::<u32>(),
    ]
}

fn algorithm() -> impl Strategy<Value = Algorithm> {
    let period = prop::sample::select(vec![
        1_000,
        1_001,
        1_000_000,
        86_400_000_000,
        31_622_400_000_000,
    ]);
    (0_u8..10, small(), period, small(), 1_u32..=128).prop_map(
        |(shape, limit, period, size, slots)| {
            let quota = Quota::new(limit, Duration::from_micros(period)).unwrap();
            match shape {
                0 => FixedWindow::of(quota).into(),
                1 => AnchoredWindow::of(quota).into(),
                2 => SlidingLog::up_to(u32::MAX, quota).unwrap().into(),
                3 => SlidingWindow::of(quota).into(),
                4 => SlidingSlots::cut(quota, slots)
                    .or(SlidingSlots::cut(quota, 1))
                    .unwrap()
                    .into(),
                5 => TokenBucket::of(quota).burst(size).into(),
                6 => TokenBucket::of(quota).burst(size).by_interval().into(),
                #[cfg(feature = "calendar")]
                7 => calendar(limit, slots),
                8 => LeakyBucket::of(quota).capacity(size).into(),
                _ => Gcra::of(quota).burst(size).into(),
            }
        },
    )
}

#[cfg(feature = "calendar")]
fn calendar(limit: u32, pick: u32) -> Algorithm {
    let unit = ["day", "week", "month", "year"][pick as usize % 4];
    let zone = ["UTC", "Pacific/Apia", "America/Havana"][pick as usize % 3];
    let text = format!("calendar-{unit} {limit} zone {zone}");
    text.parse().unwrap()
}

/// No state locks a key out for longer than the largest debt under any limit takes to drain at the present rate.
fn longest_wait(algorithm: &Algorithm) -> u128 {
    let longest = match algorithm {
        Algorithm::TokenBucket(bucket) => most_owed(bucket.quota()),
        Algorithm::LeakyBucket(bucket) => most_owed(bucket.quota()),
        Algorithm::Gcra(bucket) => most_owed(bucket.quota()),
        windows => windows.longest_wait().unwrap_or_default().as_micros(),
    };
    longest.min(Micros::LONGEST.get().into())
}

fn most_owed(quota: Quota) -> u128 {
    let most = 2 * u128::from(u32::MAX);
    let rate = u128::from(quota.limit().max(1));
    // By interval, the last refill counts whole.
    most.div_ceil(rate) * quota.period().as_micros()
}

/// As many cases as `PROPTEST_CASES` says, or 20,000.
fn config() -> ProptestConfig {
    let mut config = ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/proptest-regressions/hostile_states.txt"
        )))),
        ..ProptestConfig::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 20_000;
    }
    config
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_step_survives_any_state_at_any_time(
        algorithm in algorithm(),
        words in prop::collection::vec(number(), 0..8),
        asks in prop::collection::vec((number(), small()), 1..6),
    ) {
        let mut state = State::from_words(&words);
        for (now, cost) in asks {
            let before = state.clone();
            let (outcome, after) = algorithm.step(state, Micros::new(now), cost);
            prop_assert!(outcome.remaining() <= outcome.limit());
            prop_assert_eq!(outcome.used(), outcome.limit() - outcome.remaining());
            if outcome.is_allowed() {
                prop_assert_eq!(outcome.retry_after(), None);
            } else {
                let wait = outcome.retry_after().unwrap_or_default();
                prop_assert!(wait.as_micros() <= longest_wait(&algorithm), "{:?} of {:?}", outcome, before);
                let possible = (1..=outcome.limit()).contains(&cost);
                prop_assert!(possible || outcome.retry_after().is_none());
                // The state that it leaves is the state that it would leave of that state again.
                let (_, again) = algorithm.step(after.clone(), Micros::new(now), cost);
                prop_assert_eq!(&again, &after, "{:?} of {:?}", after, before);
            }
            let settled = algorithm.settle(after, Micros::new(now), cost);
            state = algorithm.refund(settled, Micros::new(now), cost / 2);
        }
    }
}
