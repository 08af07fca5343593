use tower_ratelimit::algorithm::State;
use tower_ratelimit::{Algorithm, AnchoredWindow, ManualClock, Micros};

use crate::scenarios::{MINUTE, SECOND, START, buckets, every, exhaust, key, quota, windows};
use crate::support::driver::{Driver, Step, limiter, micros};

#[test]
fn a_flood_of_denied_requests_takes_nothing_from_those_that_are_admitted() {
    for algorithm in every(quota(10, SECOND)) {
        let (mut flooded, mut quiet) = (key(algorithm), key(algorithm));
        let mut admitted = 0;
        for tick in 0..1_000 {
            let at = START + tick * 10_000;
            let seen = flooded.decide(at, 1);
            if seen.allowed {
                admitted += 1;
                assert_eq!(quiet.decide(at, 1), seen, "{algorithm}");
            }
            for cost in [seen.remaining + 1, 11, u32::MAX] {
                assert!(!flooded.decide(at, cost).allowed, "{algorithm}");
            }
        }
        assert!((90..=110).contains(&admitted), "{algorithm}: {admitted}");
    }
}

#[test]
fn a_denial_leaves_the_state_as_it_was() {
    for algorithm in every(quota(3, MINUTE)) {
        let mut key = Step::new(algorithm);
        exhaust(&mut key, START);
        let before = key.state.clone();
        for (after, cost) in [(0, 1), (1, 1), (1_000_000, 3), (70_000_000, 4)] {
            assert!(!key.decide(START + after, cost).allowed, "{algorithm}");
            assert_eq!(key.state, before, "{algorithm}");
        }
    }
}

#[test]
fn a_cost_above_what_remains_leaves_it_to_smaller_ones() {
    for algorithm in every(quota(10, MINUTE)) {
        let mut key = key(algorithm);
        assert!(key.decide(START, 7).allowed, "{algorithm}");
        let denied = key.decide(START, 4);
        assert!(!denied.allowed, "{algorithm}");
        assert_eq!(denied.remaining, 3, "{algorithm}");
        let seen = key.decide(START, 3);
        assert!(seen.allowed, "{algorithm}");
        assert_eq!(seen.remaining, 0, "{algorithm}");
    }
}

#[test]
fn a_cost_above_the_limit_is_never_told_to_wait() {
    for algorithm in every(quota(10, MINUTE)) {
        let mut key = key(algorithm);
        for cost in [11, 1_000_000, u32::MAX] {
            let seen = key.decide(START, cost);
            assert!(!seen.allowed, "{algorithm}");
            assert_eq!(seen.retry_after, None, "{algorithm}");
            assert_eq!((seen.remaining, seen.reset_after), (10, 0), "{algorithm}");
        }
    }
}

#[test]
fn a_cost_of_0_is_allowed_and_writes_nothing() {
    let now = Micros::new(START);
    for algorithm in every(quota(1, MINUTE)) {
        let (outcome, state) = algorithm.step(State::NEW, now, 0);
        assert!(outcome.is_allowed(), "{algorithm}");
        assert_eq!(state, State::NEW, "{algorithm}");

        let mut key = key(algorithm);
        assert!(key.decide(START, 1).allowed, "{algorithm}");
        for _ in 0..3 {
            let seen = key.decide(START, 0);
            assert!(seen.allowed, "{algorithm}");
            assert_eq!((seen.remaining, seen.retry_after), (0, None), "{algorithm}");
        }
        // Not even that time has stepped back.
        assert!(key.decide(START - 1_000_000, 0).allowed, "{algorithm}");
        let reset = key.decide(START, 1).reset_after;
        assert!(key.decide(START + reset, 1).allowed, "{algorithm}");
    }
}

#[test]
fn a_cost_of_0_opens_no_window() {
    let mut key = key(AnchoredWindow::per_minute(5).into());
    key.decide(START, 0);
    let seen = key.decide(START + 30_000_000, 1);
    assert_eq!(seen.reset_after, micros(MINUTE));
}

#[test]
fn a_limit_of_0_denies_everything_and_promises_nothing() {
    let nothing = every(quota(0, MINUTE));
    let no_room = buckets(quota(5, MINUTE), 0);
    let no_rate = buckets(quota(0, MINUTE), 5);
    for algorithm in nothing.chain(no_room).chain(no_rate) {
        let mut key = key(algorithm);
        for (after, cost) in [(0, 0), (0, 1), (1, 5), (366 * 86_400_000_000, 1)] {
            let seen = key.decide(START + after, cost);
            assert!(!seen.allowed, "{algorithm}");
            assert_eq!(seen.retry_after, None, "{algorithm}");
            assert_eq!((seen.limit, seen.remaining), (0, 0), "{algorithm}");
            assert_eq!(seen.reset_after, 0, "{algorithm}");
        }
    }
}

#[test]
fn unlimited_is_a_value_of_its_own() {
    let clock = ManualClock::new();
    let alone = limiter(&clock, [("free", Algorithm::Unlimited)]);
    for cost in [0, 1, u32::MAX] {
        let decision = alone.check("key", cost).now();
        assert!(decision.is_allowed());
        assert!(decision.binding().is_none());
        assert_eq!(decision.policies().len(), 0);
    }

    let [window, ..] = windows(quota(1, MINUTE));
    let beside = limiter(&clock, [("free", Algorithm::Unlimited), ("one", window)]);
    assert!(beside.check("key", 1).now().is_allowed());
    let decision = beside.check("key", 1).now();
    assert!(!decision.is_allowed());
    let (name, _) = decision.binding().expect("one policy has a limit");
    assert_eq!(name, "one");
}
