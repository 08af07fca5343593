//! Reservations that end after their state has changed, or where nothing expects them.

use std::cell::RefCell;
use std::time::Duration;

use tower_ratelimit::limiter::Reservation;
use tower_ratelimit::{FixedWindow, Limiter, ManualClock, MemoryStore, Policy, TokenBucket};

use crate::outcomes::reservations::{HOUR, hourly, limiter, policy, used};

/// A reset forgets what requests under way were charged. What they give back at their end is taken from what others have
/// used since, and never more than that.
#[test]
fn after_a_reset_a_request_under_way_gives_back_no_more_than_its_estimate() {
    for algorithm in hourly(100) {
        let limiter = limiter(&ManualClock::new(), policy(algorithm));
        let [down, up] = [40, 10].map(|estimate| limiter.reserve("ann", estimate).now());
        limiter.reset("ann").now();
        assert_eq!(used(&limiter, "ann"), 0, "{algorithm}");
        assert!(limiter.check("ann", 60).now().is_allowed(), "{algorithm}");
        down.settle(30);
        let left = used(&limiter, "ann");
        assert!((50..=60).contains(&left), "{algorithm}: {left}");
        up.settle(15);
        assert_eq!(used(&limiter, "ann"), left + 5, "{algorithm}");
        // Of a key that is as new again, there is nothing to give back.
        let late = limiter.reserve("ann", 20).now();
        limiter.reset("ann").now();
        late.cancel();
        assert_eq!(used(&limiter, "ann"), 0, "{algorithm}");
    }
}

#[test]
fn an_override_that_begins_or_ends_meanwhile_changes_nothing_of_what_is_settled() {
    for algorithm in hourly(100) {
        for (before, after) in [(false, true), (true, false)] {
            let limiter = limiter(&ManualClock::new(), policy(algorithm));
            let small = hourly(50)
                .into_iter()
                .find(|small| small.name() == algorithm.name());
            let small = small.unwrap();
            let overridden = |is_so: bool| {
                if is_so {
                    limiter
                        .override_limit("units", "ann", small, HOUR)
                        .unwrap()
                        .now()
                        .unwrap();
                } else {
                    limiter.end_override("units", "ann").unwrap().now();
                }
            };
            overridden(before);
            let [down, up] = [20, 10].map(|estimate| limiter.reserve("ann", estimate).now());
            assert!(down.is_allowed() && up.is_allowed(), "{algorithm}");
            overridden(after);
            down.cancel();
            up.settle(30);
            assert_eq!(used(&limiter, "ann"), 30, "{algorithm}, {after}");
        }
    }
}

/// A key that had a place of its own loses it to others. What it gives back was once taken from the entry that
/// newcomers share, and let as many of their requests pass above their limit.
#[test]
fn a_key_that_has_lost_its_place_gives_nothing_back_to_those_that_share_one() {
    const PLACES: u64 = 100;
    for algorithm in hourly(3) {
        let store = MemoryStore::new().clock(ManualClock::new());
        let limiter = Limiter::builder().policy(policy(algorithm));
        let store = store.max_keys(usize::try_from(PLACES).unwrap());
        let limiter = limiter.store(store).build_local().unwrap();
        let has_lost_its_place = limiter.reserve("ann", 2).now();
        // Keys at their limit keep their places, and hers goes to one of them.
        for key in 0..PLACES {
            limiter.settle(key, 3).now();
        }
        assert!(
            limiter
                .check("newcomer", 1)
                .now()
                .binding()
                .unwrap()
                .1
                .is_overflow()
        );
        let shares = limiter.reserve("another", 1).now();
        let before = used(&limiter, "newcomer");
        has_lost_its_place.cancel();
        assert_eq!(used(&limiter, "newcomer"), before, "{algorithm}");
        // What was taken there is given back there.
        shares.cancel();
        assert_eq!(used(&limiter, "newcomer"), before - 1, "{algorithm}");
    }
}

/// The entry drained at the rate of that key, for all newcomers.
#[test]
fn a_key_that_gets_an_override_leaves_the_entry_as_it_was_that_it_shared() {
    const PLACES: u64 = 100;
    let (clock, bucket) = (ManualClock::new(), TokenBucket::per_hour(60).burst(100));
    let store = MemoryStore::new().clock(clock.clone());
    let store = store.max_keys(usize::try_from(PLACES).unwrap());
    let limiter = Limiter::builder().policy(policy(bucket.into()));
    let limiter = limiter.store(store).build_local().unwrap();
    for key in 0..PLACES {
        limiter.settle(key, 100).now();
    }
    let reservation = limiter.reserve("ann", 5).now();
    assert!(limiter.check("newcomer", 95).now().is_allowed());
    let fast = TokenBucket::per_hour(36_000_000).burst(100);
    limiter
        .override_limit("units", "ann", fast, HOUR)
        .unwrap()
        .now()
        .unwrap();
    clock.advance(Duration::from_secs(1));
    reservation.cancel();
    assert_eq!(used(&limiter, "newcomer"), 95);
}

/// Settles when the thread ends, after the other values of the thread have gone.
#[test]
fn a_reservation_that_a_thread_leaves_behind_is_settled_when_the_thread_ends() {
    thread_local! {
        static LEFT: RefCell<Vec<Reservation>> = const { RefCell::new(Vec::new()) };
    }
    let policy = policy(FixedWindow::per_hour(100).into());
    let policy = policy.on_abandoned(tower_ratelimit::policy::OnAbandoned::Units(3));
    let limiter = limiter(&ManualClock::new(), policy);
    let node = limiter.clone();
    let thread = std::thread::spawn(move || {
        // Before anything else of the thread is there, so that it goes last.
        LEFT.with(|left| left.borrow_mut().reserve(2));
        for _ in 0..2 {
            let reservation = node.reserve("ann", 40).now();
            LEFT.with(|left| left.borrow_mut().push(reservation));
        }
    });
    thread.join().unwrap();
    assert_eq!(used(&limiter, "ann"), 6);
}

/// A program that leaks what it holds is charged the estimate until the window ends.
#[test]
fn a_reservation_that_is_leaked_costs_its_estimate() {
    let clock = ManualClock::new();
    let policy = Policy::new("units", FixedWindow::per_hour(100));
    let policy = policy.on_abandoned(tower_ratelimit::policy::OnAbandoned::Nothing);
    let limiter = limiter(&clock, policy);
    std::mem::forget(limiter.reserve("ann", 40).now());
    assert_eq!(used(&limiter, "ann"), 40);
    clock.advance(HOUR + Duration::from_secs(1));
    assert_eq!(used(&limiter, "ann"), 0);
}
