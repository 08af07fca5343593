use std::time::Duration;

use tower_ratelimit::algorithm::State;
use tower_ratelimit::{
    Algorithm, AnchoredWindow, FixedWindow, Gcra, LeakyBucket, Micros, Quota, SlidingWindow,
    TokenBucket,
};

use crate::scenarios::{
    DAY, HOUR, MILLISECOND, MINUTE, SECOND, START, buckets, every, exhaust, key, quota, retry,
    windows,
};
use crate::support::driver::{Driver, Step, micros};

/// The longest.
const YEAR: Duration = Duration::from_secs(366 * 86_400);

#[test]
fn exactly_the_limit_is_admitted_at_one_frozen_instant() {
    for limit in [3, 5, 7, 9, 10, 30, 60, 77, 99, 100, 333, 1000] {
        for period in [MILLISECOND, SECOND, MINUTE, HOUR, 7 * HOUR] {
            for algorithm in every(quota(limit, period)) {
                let mut key = key(algorithm);
                for remaining in (0..limit).rev() {
                    let seen = key.decide(START + 12_345, 1);
                    assert!(seen.allowed, "{algorithm}: {seen:?}");
                    assert_eq!(seen.remaining, remaining, "{algorithm}");
                }
                for _ in 0..3 {
                    let seen = key.decide(START + 12_345, 1);
                    assert!(!seen.allowed, "{algorithm}: {seen:?}");
                    assert_eq!(seen.remaining, 0, "{algorithm}");
                }
            }
        }
    }
}

#[test]
fn a_rate_above_one_in_a_microsecond_is_exact() {
    for per_second in [2_000_000, 10_000_000, 33_333_333, 600_000_000, u32::MAX] {
        let burst = 10_000;
        for bucket in &buckets(quota(per_second, SECOND), burst)[..3] {
            let mut key = key(*bucket);
            let mut admitted = u64::from(exhaust(&mut key, START)) - u64::from(burst);
            for micros in 1..=1_000 {
                let free = key.decide(START + micros, 0).remaining;
                assert!(key.decide(START + micros, free).allowed);
                admitted += u64::from(free);
                let drained = u64::from(per_second) * micros / 1_000_000;
                assert_eq!(admitted, drained, "{bucket} after {micros} µs");
            }
        }
        for algorithm in every(quota(per_second, SECOND)) {
            let mut key = key(algorithm);
            assert!(key.decide(START, per_second).allowed, "{algorithm}");
            assert!(!key.decide(START, 1).allowed, "{algorithm}");
        }
    }
}

#[test]
fn the_largest_limits_costs_and_periods_do_not_overflow() {
    let limit = u32::MAX;
    for period in [MILLISECOND, DAY, YEAR] {
        for algorithm in every(quota(limit, period)) {
            let mut key = key(algorithm);
            let seen = key.decide(START, limit);
            assert!(seen.allowed, "{algorithm}");
            assert_eq!((seen.remaining, seen.limit), (0, limit), "{algorithm}");
            assert!(!key.decide(START, 1).allowed, "{algorithm}");

            let seen = key.decide(START, limit);
            assert!(!seen.allowed, "{algorithm}");
            assert_eq!(Some(seen.reset_after), seen.retry_after, "{algorithm}");
            let wait = retry(seen);
            assert!(!key.fork().decide(START + wait - 1, limit).allowed);
            assert!(key.decide(START + wait, limit).allowed, "{algorithm}");
        }
    }
}

#[test]
fn a_debt_of_longer_than_can_be_told_is_told_as_the_longest_wait() {
    for bucket in buckets(quota(1, YEAR), u32::MAX) {
        let mut key = key(bucket);
        assert!(key.decide(START, u32::MAX).allowed);
        let seen = key.decide(START, u32::MAX);
        assert_eq!(seen.reset_after, Micros::LONGEST.get(), "{bucket}");
        assert_eq!(seen.retry_after, Some(Micros::LONGEST.get()), "{bucket}");
        let next = key.decide(START, 1);
        assert_eq!(next.retry_after, Some(micros(YEAR)), "{bucket}");
        assert!(key.decide(START + micros(YEAR), 1).allowed, "{bucket}");
    }
}

#[test]
fn a_period_that_cannot_be_held_is_refused() {
    for period in [
        Duration::from_nanos(1),
        Duration::from_nanos(999_999),
        YEAR + MILLISECOND,
        100 * YEAR,
    ] {
        let error = Quota::new(1, period).unwrap_err();
        assert_eq!(error.field(), "period", "{period:?}");
    }
}

/// Returns how many requests of cost 1 a client gets in this many microseconds, if it asks at the end of each wait.
fn admitted_when_saturated(algorithm: Algorithm, span: u64) -> u64 {
    let (mut state, mut now, mut admitted) = (State::NEW, START, 0);
    while now < START + span {
        let (outcome, after) = algorithm.step(state, Micros::new(now), 1);
        state = after;
        if outcome.is_allowed() {
            admitted += 1;
        } else {
            let wait = outcome.retry_after().map_or(0, micros);
            assert!(wait > 0, "{algorithm}: denied without a wait");
            now += wait;
        }
    }
    admitted
}

#[test]
fn three_in_ten_milliseconds_is_1_080_000_in_an_hour() {
    let [gcra, ..] = buckets(quota(3, 10 * MILLISECOND), 3);
    // The bucket was full, and a token that arrives at the very end of the hour comes too late.
    let admitted = admitted_when_saturated(gcra, micros(HOUR));
    assert_eq!(admitted, 1_080_000 + 3 - 1, "{gcra}");
}

#[test]
fn three_in_ten_milliseconds_is_18_000_in_a_minute() {
    let rate = quota(3, 10 * MILLISECOND);
    let [gcra, token_bucket, leaky_bucket, by_interval] = buckets(rate, 3);
    for continuous in [gcra, token_bucket, leaky_bucket] {
        let admitted = admitted_when_saturated(continuous, micros(MINUTE));
        assert_eq!(admitted, 18_000 + 3 - 1, "{continuous}");
    }
    let [fixed, anchored, log, window, slots] = windows(rate);
    for exact in [by_interval, fixed, anchored, log] {
        let admitted = admitted_when_saturated(exact, micros(MINUTE));
        assert_eq!(admitted, 18_000, "{exact}");
    }
    // The third request of each window would have to wait until nothing of the previous window counts.
    let admitted = admitted_when_saturated(window, micros(MINUTE));
    assert_eq!(admitted, 18_000 * 2 / 3 + 1, "{window}");
    // Each counts for the period and the slot of its arrival, a tenth more.
    let admitted = admitted_when_saturated(slots, micros(MINUTE));
    assert_eq!(admitted, 3 * 60_000_u64.div_ceil(11), "{slots}");
}

#[test]
fn long_periods_with_large_bursts_do_not_wrap() {
    for (limit, period, burst) in [
        (1, YEAR, 600),
        (1, DAY, 1_000_000),
        (u32::MAX, DAY, u32::MAX),
        (1_000_000_000, 30 * DAY, 1_000_000_000),
        (999_983, DAY, 999_983),
    ] {
        for bucket in &buckets(quota(limit, period), burst)[..3] {
            let mut key = key(*bucket);
            assert!(key.decide(START, burst).allowed, "{bucket}");
            let seen = key.decide(START, 1);
            let interval = micros(period).div_ceil(limit.into());
            assert_eq!(seen.retry_after, Some(interval), "{bucket}");
            let fill = u128::from(burst) * u128::from(micros(period));
            let told = u64::try_from(fill.div_ceil(limit.into())).unwrap();
            let told = told.min(Micros::LONGEST.get());
            assert_eq!(seen.reset_after, told, "{bucket}");
        }
    }
}

#[test]
fn a_million_periods_admit_a_million_limits() {
    for limit in [3, 7, 60, 999_983, 600_000_000] {
        let capacity = u32::MAX;
        for bucket in &buckets(quota(limit, SECOND), capacity)[..3] {
            let mut key = Step::new(*bucket);
            assert!(key.decide(START, capacity).allowed);
            let (mut now, mut admitted) = (0, 0);
            while now < 1_000_000 * micros(SECOND) {
                // No more than the bucket holds, at odd moments.
                now += 6_999_999_989.min(999_983 * u64::from(capacity / limit));
                let free = key.decide(START + now, 0).remaining;
                assert!(key.decide(START + now, free).allowed);
                admitted += u128::from(free);
            }
            let drained = u128::from(limit) * u128::from(now) / 1_000_000;
            assert_eq!(admitted, drained, "{bucket}");
        }
    }
}

#[test]
fn units_come_back_exactly_at_the_end_of_the_told_wait() {
    for algorithm in every(quota(5, SECOND)) {
        let mut key = key(algorithm);
        let at = START + 300_000;
        assert_eq!(exhaust(&mut key, at), 5, "{algorithm}");
        for cost in 1..=5 {
            let wait = retry(key.decide(at, cost));
            assert_eq!(key.decide(at, 0).remaining, 0, "{algorithm}");
            let before = key.decide(at + wait - 1, 0).remaining;
            let then = key.decide(at + wait, 0).remaining;
            assert!(
                before < cost && cost <= then,
                "{algorithm}: {before} {then}"
            );
        }
    }
}

/// `per_second(n)` once meant one in n seconds.
#[test]
fn per_second_is_so_many_in_a_second() {
    type Constructors = [fn(u32) -> Algorithm; 4];
    macro_rules! of {
        ($shape:ident) => {
            [
                |n| $shape::per_second(n).into(),
                |n| $shape::per_minute(n).into(),
                |n| $shape::per_hour(n).into(),
                |n| $shape::per_day(n).into(),
            ] as Constructors
        };
    }
    for constructors in [
        of!(FixedWindow),
        of!(AnchoredWindow),
        of!(SlidingWindow),
        of!(Gcra),
        of!(TokenBucket),
        of!(LeakyBucket),
    ] {
        for (of, period) in constructors.into_iter().zip([SECOND, MINUTE, HOUR, DAY]) {
            let algorithm = of(5);
            assert_eq!(algorithm.period(), Some(period), "{algorithm}");
            let mut key = key(algorithm);
            assert_eq!(exhaust(&mut key, START), 5, "{algorithm}");
            let again = exhaust(&mut key, START + 2 * micros(period));
            assert_eq!(again, 5, "{algorithm}");
        }
    }
}
