//! Reservations that end while other threads change their key.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tower_ratelimit::limiter::Reservation;
use tower_ratelimit::policy::OnAbandoned;
use tower_ratelimit::{Algorithm, LocalLimiter, ManualClock};

use crate::outcomes::reservations::{HOUR, hourly, limiter, policy, used};

const THREADS: usize = 4;
const ROUNDS: u32 = 2_000;

/// Threads reserve and give all of it back, by a cancellation, a settlement or a drop, while another thread disturbs the
/// key. Each thread has up to three reservations at a time.
fn all_is_given_back_while(
    algorithm: Algorithm,
    disturb: impl Fn(&LocalLimiter, u32) + Sync,
) -> u32 {
    let policy = policy(algorithm).on_abandoned(OnAbandoned::Nothing);
    let limiter = limiter(&ManualClock::new(), policy);
    let are_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let limiter = &limiter;
        scope.spawn(|| {
            let mut times = 0;
            while !are_done.load(Ordering::Relaxed) {
                disturb(limiter, times);
                times += 1;
                thread::yield_now();
            }
        });
        let threads: Vec<_> = (0..THREADS)
            .map(|_| scope.spawn(|| reserve_and_give_back(limiter)))
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        are_done.store(true, Ordering::Relaxed);
    });
    used(&limiter, "ann")
}

fn reserve_and_give_back(limiter: &LocalLimiter) {
    let mut open: Vec<Reservation> = Vec::new();
    for round in 0..ROUNDS {
        open.push(limiter.reserve("ann", 1 + round % 7).now());
        if open.len() == 3 {
            let ends = open.swap_remove((round % 3) as usize);
            match round % 4 {
                0 => ends.cancel(),
                1 => ends.settle(0),
                _ => drop(ends),
            }
        }
    }
}

/// What is used is never more than what the requests under way were charged since the last reset.
#[test]
fn nothing_stays_charged_of_what_is_given_back_while_the_key_is_reset() {
    for algorithm in hourly(1_000) {
        let left = all_is_given_back_while(algorithm, |limiter, _| limiter.reset("ann").now());
        assert_eq!(left, 0, "{algorithm}");
    }
}

#[test]
fn nothing_stays_charged_of_what_is_given_back_while_its_limit_changes() {
    for algorithm in hourly(1_000) {
        let lower = hourly(500).into_iter();
        let mut lower = lower.filter(|lower| lower.name() == algorithm.name());
        let lower = lower.next().unwrap();
        let left = all_is_given_back_while(algorithm, |limiter, times| {
            if times % 2 == 0 {
                let given = limiter.override_limit("units", "ann", lower, HOUR);
                given.unwrap().now().unwrap();
            } else {
                limiter.end_override("units", "ann").unwrap().now();
            }
        });
        assert_eq!(left, 0, "{algorithm}");
    }
}

/// Windows end all the time. Two hours after the last charge, a key is as new, however the ends of windows and of requests
/// meet.
#[test]
fn nothing_stays_charged_for_longer_than_two_windows_that_end_meanwhile() {
    for algorithm in hourly(1_000) {
        let clock = ManualClock::new();
        let limiter = limiter(&clock, policy(algorithm).on_abandoned(OnAbandoned::Nothing));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| reserve_and_give_back(&limiter));
            }
            scope.spawn(|| {
                for _ in 0..200 {
                    clock.advance(HOUR / 7);
                    thread::yield_now();
                }
            });
        });
        clock.advance(2 * HOUR + Duration::from_micros(1));
        assert_eq!(used(&limiter, "ann"), 0, "{algorithm}");
        assert!(
            limiter.check("ann", 1_000).now().is_allowed(),
            "{algorithm}"
        );
    }
}
