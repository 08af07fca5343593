//! Windows at their edges.

use std::time::Duration;

use tower_ratelimit::{FixedWindow, SlidingLog, SlidingWindow};

use crate::scenarios::{
    MILLISECOND, MINUTE, START, every, exhaust, key, longest_wait, quota, retry,
};
use crate::support::driver::{Driver, micros};

/// A minute, in microseconds.
const W: u64 = 60_000_000;

#[test]
fn windows_shorter_than_a_second_work() {
    for period in [MILLISECOND, 250 * MILLISECOND, Duration::from_micros(1_010)] {
        for algorithm in every(quota(3, period)) {
            let mut key = key(algorithm);
            for round in 0..5 {
                let at = START + round * 2 * (micros(period) + longest_wait(algorithm));
                assert_eq!(exhaust(&mut key, at), 3, "{algorithm}");
                let wait = retry(key.decide(at, 1));
                assert!((1..=longest_wait(algorithm)).contains(&wait), "{algorithm}");
                assert!(!key.fork().decide(at + wait - 1, 1).allowed, "{algorithm}");
                assert!(key.fork().decide(at + wait, 1).allowed, "{algorithm}");
            }
        }
    }
}

#[test]
fn two_limits_pass_across_the_edge_of_a_fixed_window_and_one_by_the_log() {
    let quota = quota(5, MINUTE);
    let edge = START + W;
    let mut fixed = key(FixedWindow::of(quota).into());
    assert_eq!(exhaust(&mut fixed, edge - 1), 5);
    assert_eq!(exhaust(&mut fixed, edge), 5);

    let mut log = key(SlidingLog::of(quota).unwrap().into());
    assert_eq!(exhaust(&mut log, edge - 1), 5);
    assert_eq!(exhaust(&mut log, edge), 0);
    assert_eq!(exhaust(&mut log, edge - 1 + W), 5);
}

#[test]
fn a_sliding_window_gives_an_adversary_one_less_than_two_limits() {
    let mut key = key(SlidingWindow::of(quota(100, MINUTE)).into());
    let edge = START + W;
    // All units at the end of one window, and all that are free just before the end of the next.
    assert_eq!(exhaust(&mut key, edge - 1), 100);
    assert_eq!(exhaust(&mut key, edge + W - 2), 99);
    // After half a window, at most half of a limit is free.
    let mut key = self::key(SlidingWindow::of(quota(100, MINUTE)).into());
    assert_eq!(exhaust(&mut key, edge - 1), 100);
    assert_eq!(exhaust(&mut key, edge + W / 2), 50);
}

#[test]
fn the_previous_window_weighs_until_it_has_slid_out_and_not_longer() {
    let used_up = || {
        let mut key = key(SlidingWindow::of(quota(10, MINUTE)).into());
        assert_eq!(exhaust(&mut key, START), 10);
        key
    };
    for (after, free) in [
        (W - 1, 0),
        (W, 0),
        (W + W / 10, 1),
        (W + W / 2, 5),
        (2 * W - 1, 9),
        (2 * W, 10),
        (2 * W + 1, 10),
        (3 * W, 10),
        (100 * W, 10),
    ] {
        assert_eq!(
            exhaust(&mut used_up(), START + after),
            free,
            "after {after} µs"
        );
    }
}

#[test]
fn a_sliding_window_of_one_lets_the_next_pass_within_two_periods() {
    for at in [START, START + 1, START + W / 2, START + W - 1] {
        let mut key = key(SlidingWindow::of(quota(1, MINUTE)).into());
        assert!(key.decide(at, 1).allowed);
        let denied = key.decide(at, 1);
        assert!(!denied.allowed);
        assert!(retry(denied) <= 2 * W);
        assert!(key.decide(at + retry(denied), 1).allowed);
    }
}
