use tower_ratelimit::{Algorithm, ManualClock, Micros};

use crate::scenarios::{DAY, HOUR, MINUTE, START, every, exhaust, key, longest_wait, quota, retry};
use crate::support::driver::{Driver, Memory, limiter, micros};

/// Returns a key that has used up its five a minute half a minute into the first hour of 2024.
fn used_up(algorithm: Algorithm) -> (Memory, u64) {
    let mut key = key(algorithm);
    let at = START + micros(MINUTE) / 2;
    assert_eq!(exhaust(&mut key, at), 5, "{algorithm}");
    (key, at)
}

#[test]
fn a_new_key_is_admitted_at_any_time_since_the_epoch() {
    let year_2262 = 9_214_646_400_000_000;
    for at in [0, 1, 1_000_000, START, (1 << 53) - 1, 1 << 53, year_2262] {
        for period in [MINUTE, DAY, 366 * DAY] {
            for algorithm in every(quota(3, period)) {
                let mut key = key(algorithm);
                assert_eq!(exhaust(&mut key, at), 3, "{algorithm} at {at}");
                let wait = retry(key.decide(at, 3));
                assert!(wait <= longest_wait(algorithm), "{algorithm} at {at}");
                assert!(key.decide(at + wait, 3).allowed, "{algorithm} at {at}");
            }
        }
    }
}

#[test]
fn an_hour_back_admits_nothing_more_and_locks_no_request_out() {
    for algorithm in every(quota(5, MINUTE)) {
        let (mut key, at) = used_up(algorithm);
        let at = at - micros(HOUR);
        let seen = key.decide(at, 1);
        assert!(!seen.allowed, "{algorithm}");
        assert!(retry(seen) <= longest_wait(algorithm), "{algorithm}");
        assert!(
            key.fork().decide(at + retry(seen), 1).allowed,
            "{algorithm}"
        );
        let whole = key.decide(at + longest_wait(algorithm), 5);
        assert!(whole.allowed, "{algorithm}");
    }
}

#[test]
fn each_step_back_admits_at_most_one_limit_more() {
    for algorithm in every(quota(5, MINUTE)) {
        let (mut key, mut at) = used_up(algorithm);
        for _ in 0..10 {
            at -= micros(MINUTE) / 6;
            assert!(exhaust(&mut key, at) <= 5, "{algorithm}");
        }
    }
}

#[test]
fn an_hour_forward_and_back_is_one_limit_more_and_no_immortal_debt() {
    for algorithm in every(quota(5, MINUTE)) {
        let (mut key, at) = used_up(algorithm);
        assert_eq!(exhaust(&mut key, at + micros(HOUR)), 5, "{algorithm}");
        assert_eq!(exhaust(&mut key, at), 0, "{algorithm}");
        let whole = key.decide(at + longest_wait(algorithm), 5);
        assert!(whole.allowed, "{algorithm}");
    }
}

#[test]
fn an_hour_forward_and_back_without_a_charge_changes_nothing() {
    for algorithm in every(quota(5, MINUTE)) {
        let (mut key, at) = used_up(algorithm);
        let before = key.decide(at, 1);
        assert!(key.decide(at + micros(HOUR), 0).allowed, "{algorithm}");
        assert!(!key.decide(at + micros(HOUR), 6).allowed, "{algorithm}");
        assert_eq!(key.decide(at, 1), before, "{algorithm}");
    }
}

#[test]
fn a_key_that_was_idle_gets_no_more_than_its_limit() {
    for algorithm in every(quota(5, MINUTE)) {
        let (mut key, mut at) = used_up(algorithm);
        for idle in [
            micros(2 * MINUTE),
            micros(3 * MINUTE) + 1,
            micros(HOUR),
            micros(366 * DAY),
        ] {
            at += idle;
            assert_eq!(exhaust(&mut key, at), 5, "{algorithm} after {idle} µs");
        }
    }
}

#[test]
fn a_key_is_not_forgotten_one_microsecond_before_it_is_new() {
    let clock = ManualClock::new();
    for algorithm in every(quota(5, MINUTE)) {
        clock.set_micros(Micros::new(START));
        let limiter = limiter(&clock, [("policy", algorithm)]);
        for key in 0..1_000_u32 {
            assert!(limiter.check(key, 5).now().is_allowed(), "{algorithm}");
        }
        // The store grows, and evicts idle keys.
        let reset = longest_wait(algorithm);
        clock.set_micros(Micros::new(START + reset - 1));
        for key in 1_000..10_000_u32 {
            assert!(limiter.check(key, 1).now().is_allowed(), "{algorithm}");
        }
        for key in 0..1_000_u32 {
            let whole = limiter.check(key, 5).now();
            assert!(!whole.is_allowed(), "{algorithm}: key {key}");
        }
        clock.set_micros(Micros::new(START + reset));
        for key in 0..1_000_u32 {
            let whole = limiter.check(key, 5).now();
            assert!(whole.is_allowed(), "{algorithm}: key {key}");
        }
    }
}

#[test]
fn fifty_years_of_uptime_change_nothing() {
    for algorithm in every(quota(5, DAY)) {
        let mut old = key(algorithm);
        for month in 0..50 * 12 {
            let at = START + month * micros(30 * DAY) + month;
            let mut new = key(algorithm);
            for cost in [1, 2, 3, 2, 1] {
                assert_eq!(old.decide(at, cost), new.decide(at, cost), "{algorithm}");
            }
        }
    }
}
