//! Reservations of a limiter over a store in this process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use tower_ratelimit::factor::{Factor, FactorCell};
use tower_ratelimit::limiter::Reservation;
use tower_ratelimit::policy::{Mode, Modes, OnAbandoned};
use tower_ratelimit::store::{Backend, SharedStore};
use tower_ratelimit::{
    Algorithm, AnchoredWindow, Concurrency, FixedWindow, Gcra, LeakyBucket, Limiter, LocalLimiter,
    ManualClock, MemoryStore, Policy, SlidingLog, SlidingSlots, SlidingWindow, TokenBucket,
};

use crate::support::items::Map;

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

pub(crate) fn limiter(clock: &ManualClock, policy: Policy) -> LocalLimiter {
    let builder = Limiter::builder().policy(policy);
    let store = MemoryStore::new().clock(clock.clone());
    builder.store(store).build_local().unwrap()
}

pub(crate) fn hourly(limit: u32) -> [Algorithm; 9] {
    [
        FixedWindow::per_hour(limit).into(),
        AnchoredWindow::per_hour(limit).into(),
        SlidingLog::per_hour(u16::try_from(limit).unwrap()).into(),
        SlidingWindow::per_hour(limit).into(),
        SlidingSlots::per_hour(limit).into(),
        TokenBucket::per_hour(limit).into(),
        TokenBucket::per_hour(limit).by_interval().into(),
        LeakyBucket::per_hour(limit).into(),
        Gcra::per_hour(limit).into(),
    ]
}

pub(crate) fn used(limiter: &LocalLimiter, key: &str) -> u32 {
    limiter.peek(key, 0).now().binding().unwrap().1.used()
}

/// The policy has a limit of 100, of which low priority has ten.
pub(crate) async fn low_priority_is_charged_all_of_it<L: Backend + ?Sized>(limiter: &Limiter<L>) {
    let used = async || {
        let told = limiter.peek("low", 0).await.unwrap();
        told.binding().unwrap().1.used()
    };
    let low = limiter.low_priority();
    assert!(!low.reserve("low", 11).await.unwrap().is_allowed());
    low.reserve("low", 10).await.unwrap().settle(70);
    until(async || used().await == 70).await;
    assert!(!low.check("low", 1).await.unwrap().is_allowed());
    assert!(limiter.check("low", 30).await.unwrap().is_allowed());
    assert_eq!(limiter.lost_settlements(), 0);
}

/// Waits until this is so, in a store that settles later.
async fn until(is_so: impl AsyncFn() -> bool) {
    let started = Instant::now();
    while !is_so().await {
        assert!(started.elapsed() < Duration::from_secs(20), "it never is");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub(crate) fn policy(algorithm: Algorithm) -> Policy {
    Policy::new("units", algorithm)
}

#[test]
fn the_actual_cost_is_charged_and_neither_less_nor_more() {
    for algorithm in hourly(100) {
        let limiter = limiter(&ManualClock::new(), policy(algorithm));
        for (estimate, cost, total) in [(40, 40, 40), (40, 15, 55), (10, 30, 85), (15, 0, 85)] {
            let reservation = limiter.reserve("ann", estimate).now();
            assert!(reservation.is_allowed(), "{algorithm}");
            reservation.settle(cost);
            assert_eq!(used(&limiter, "ann"), total, "{algorithm}");
        }
        limiter.reserve("ann", 15).now().cancel();
        assert_eq!(used(&limiter, "ann"), 85, "{algorithm}");
        drop(limiter.reserve("ann", 15).now());
        assert_eq!(used(&limiter, "ann"), 100, "{algorithm}");
    }
}

#[test]
fn a_reservation_that_was_denied_settles_nothing() {
    let limiter = limiter(&ManualClock::new(), policy(FixedWindow::per_hour(5).into()));
    assert!(limiter.check("ann", 5).now().is_allowed());
    let denied = limiter.reserve("ann", 1).now();
    assert!(!denied.is_allowed());
    assert!(denied.decision().retry_after().is_some());
    denied.settle(0);
    limiter.reserve("ann", 2).now().cancel();
    assert_eq!(used(&limiter, "ann"), 5);
}

#[test]
fn an_end_without_an_answer_costs_what_the_policy_says() {
    for (unsettled, expected) in [
        (OnAbandoned::Estimate, 40),
        (OnAbandoned::Nothing, 0),
        (OnAbandoned::Units(55), 55),
    ] {
        let policy = policy(FixedWindow::per_hour(100).into()).on_abandoned(unsettled);
        let limiter = limiter(&ManualClock::new(), policy);
        drop(limiter.reserve("dropped", 40).now());
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _reservation = limiter.reserve("panicked", 40).now();
            panic!("the work fails");
        }));
        assert!(panicked.is_err());
        assert_eq!(used(&limiter, "dropped"), expected);
        assert_eq!(used(&limiter, "panicked"), expected);
        limiter.reserve("settled", 40).now().settle(7);
        assert_eq!(used(&limiter, "settled"), 7);
    }
}

/// Express-rate-limit gave back after the window had ended what others had used in the next one.
#[test]
fn nothing_is_given_back_of_a_window_that_has_ended() {
    let algorithms = hourly(10);
    for algorithm in algorithms.into_iter().take(5) {
        let clock = ManualClock::new();
        let limiter = limiter(&clock, policy(algorithm));
        let reservation = limiter.reserve("ann", 10).now();
        clock.advance(2 * HOUR);
        assert!(limiter.check("ann", 6).now().is_allowed(), "{algorithm}");
        reservation.cancel();
        assert_eq!(used(&limiter, "ann"), 6, "{algorithm}");
    }
}

#[test]
fn a_greater_cost_counts_when_it_is_settled() {
    for algorithm in hourly(10) {
        let clock = ManualClock::new();
        let limiter = limiter(&clock, policy(algorithm));
        let reservation = limiter.reserve("ann", 1).now();
        clock.advance(2 * HOUR);
        reservation.settle(8);
        assert_eq!(used(&limiter, "ann"), 7, "{algorithm}");
    }
}

/// The adversary sends as many requests at once as pass, and each costs as much more than its estimate as it can.
#[test]
fn n_requests_at_once_overshoot_by_n_times_what_each_costs_more_and_no_further() {
    const LIMIT: u32 = 100;
    const ESTIMATE: u32 = 7;
    const MOST: u32 = 12;
    for algorithm in hourly(LIMIT) {
        let limiter = limiter(&ManualClock::new(), policy(algorithm));
        let mut at_once: Vec<Reservation> = Vec::new();
        loop {
            let reservation = limiter.reserve("eve", ESTIMATE).now();
            if !reservation.is_allowed() {
                break;
            }
            at_once.push(reservation);
        }
        let requests = u32::try_from(at_once.len()).unwrap();
        assert_eq!(requests, LIMIT / ESTIMATE, "{algorithm}");
        let mut consumed = 0;
        for reservation in at_once {
            reservation.settle(MOST);
            consumed += MOST;
            assert!(!limiter.reserve("eve", ESTIMATE).now().is_allowed());
        }
        let bound = LIMIT + requests * (MOST - ESTIMATE);
        assert!(consumed <= bound, "{algorithm}");
        // It reaches the bound but for what the last request had no room for.
        assert_eq!(bound - consumed, LIMIT % ESTIMATE, "{algorithm}");
        // All of it counts: only when so much is given back is there room again.
        limiter.refund("eve", consumed - LIMIT).now();
        assert!(!limiter.check("eve", 1).now().is_allowed(), "{algorithm}");
        limiter.refund("eve", 1).now();
        assert!(limiter.check("eve", 1).now().is_allowed(), "{algorithm}");
    }
}

#[test]
fn policies_that_are_not_named_cost_their_estimate() {
    let limiter = Limiter::builder()
        .policy(Policy::new("requests", FixedWindow::per_hour(10)))
        .policy(
            Policy::new("tokens", FixedWindow::per_hour(1_000)).on_abandoned(OnAbandoned::Nothing),
        )
        .build_local()
        .unwrap();
    let asked = [("requests", "ann", 1), ("tokens", "ann", 400)];
    let numbers = || -> Vec<u32> {
        let told = limiter.peek("ann", 0).now();
        told.policies().map(|(_, told)| told.used()).collect()
    };
    let reservation = limiter.named(asked).unwrap().reserve().now();
    reservation.settle_with([("tokens", 150)]).unwrap();
    assert_eq!(numbers(), [1, 150]);
    let reservation = limiter.named(asked).unwrap().reserve().now();
    let error = reservation.settle_with([("token", 150)]).unwrap_err();
    assert!(error.to_string().contains("requests, tokens"), "{error}");
    assert_eq!(numbers(), [2, 550]);
    drop(limiter.named(asked).unwrap().reserve().now());
    assert_eq!(numbers(), [3, 550]);
}

#[test]
fn a_soft_policy_that_left_the_request_out_is_not_settled() {
    let limiter = Limiter::builder()
        .policy(Policy::new("full", FixedWindow::per_hour(5)).soft())
        .policy(Policy::new("any", FixedWindow::per_hour(100)))
        .build_local()
        .unwrap();
    assert!(limiter.check("ann", 3).now().is_allowed());
    let reservation = limiter.reserve("ann", 4).now();
    assert_eq!(reservation.decision().over_limit().count(), 1);
    reservation.settle(1);
    let told = limiter.peek("ann", 0).now();
    let told: Vec<_> = told.policies().map(|(_, told)| told.used()).collect();
    assert_eq!(told, [3, 4]);
}

#[test]
fn it_is_settled_at_the_price_at_which_it_was_charged() {
    let factor = FactorCell::new();
    let policy = policy(FixedWindow::per_hour(100).into()).factor(&factor);
    let limiter = limiter(&ManualClock::new(), policy);
    factor.set(Factor::thousandths(500), "half");
    let up = limiter.reserve("up", 10).now();
    let down = limiter.reserve("down", 30).now();
    factor.set(Factor::thousandths(1_000), "whole");
    up.settle(20);
    down.settle(20);
    // Twenty units at twice their price.
    assert_eq!(used(&limiter, "up"), 40);
    assert_eq!(used(&limiter, "down"), 40);
}

/// A bucket owes at most twice its capacity, and that of a request of low priority was taken to be without the reserve.
#[tokio::test]
async fn a_request_of_low_priority_that_cost_more_is_charged_all_of_it() {
    for algorithm in hourly(100) {
        let clock = ManualClock::new();
        let reserved = || policy(algorithm).reserve(90);
        low_priority_is_charged_all_of_it(&limiter(&clock, reserved())).await;
        let store = SharedStore::new(Map::new(&clock));
        let builder = Limiter::builder().policy(reserved());
        low_priority_is_charged_all_of_it(&builder.store(store).build().unwrap()).await;
    }
}

/// A policy that is off charges nothing, and one in shadow refuses nothing, whichever way it is reserved.
#[tokio::test]
async fn a_reservation_heeds_the_modes_of_policies() {
    let modes = Modes::new();
    let builder = Limiter::builder().policy(policy(FixedWindow::per_hour(5).into()));
    let limiter = builder.modes(&modes).build_local().unwrap();
    assert!(limiter.check("ann", 5).now().is_allowed());
    let all = async |cost| {
        let asked = [("units", "ann", cost)];
        [
            limiter.reserve("ann", cost).now(),
            limiter.reserve("ann", cost).await.unwrap(),
            limiter.named(asked).unwrap().reserve().now(),
            limiter.named(asked).unwrap().reserve().await.unwrap(),
        ]
    };
    for (mode, asked) in [(Mode::Shadow, 1), (Mode::Off, 0)] {
        modes.set("units", mode).unwrap();
        for reservation in all(1).await {
            assert!(reservation.is_allowed(), "{mode:?}");
            assert_eq!(reservation.decision().policies().count(), asked, "{mode:?}");
            reservation.settle(3);
        }
    }
    modes.unset("units").unwrap();
    assert_eq!(used(&limiter, "ann"), 5);
    assert!(all(1).await.iter().all(|it| !it.is_allowed()));
}

#[test]
fn slots_of_a_policy_in_shadow_refuse_no_request() {
    let modes = Modes::new();
    let builder = Limiter::builder().policy(policy(Concurrency::of(1).into()));
    let limiter = builder.modes(&modes).build_local().unwrap();
    modes.set("units", Mode::Shadow).unwrap();
    let held = [(); 3].map(|()| limiter.reserve("ann", 1).now());
    assert!(held.iter().all(Reservation::is_allowed));
    modes.unset("units").unwrap();
    assert!(!limiter.reserve("ann", 1).now().is_allowed());
}

proptest! {
    /// Any number of reservations of several keys that overlap in any order.
    #[test]
    fn each_key_ends_where_the_sum_of_what_its_requests_really_cost_says(
        requests in prop::collection::vec((0..3_usize, 1..9_u32, 0..15_u32, any::<prop::sample::Index>(), 0..4_u8), 1..60)
    ) {
        let policy = policy(FixedWindow::per_hour(60).into()).on_abandoned(OnAbandoned::Units(2));
        let limiter = limiter(&ManualClock::new(), policy);
        let keys = ["ann", "bob", "cid"];
        let mut open: Vec<(usize, u32, Reservation)> = Vec::new();
        let mut model = [0_u32; 3];
        for (key, estimate, cost, which, how) in requests {
            let reservation = limiter.reserve(keys[key], estimate).now();
            let is_allowed = model[key] + estimate <= 60;
            prop_assert_eq!(reservation.is_allowed(), is_allowed);
            if is_allowed {
                model[key] += estimate;
                open.push((key, estimate, reservation));
            }
            if how < 3 && !open.is_empty() {
                let (key, estimate, reservation) = open.swap_remove(which.index(open.len()));
                model[key] -= estimate;
                match how {
                    0 => { reservation.settle(cost); model[key] += cost; }
                    1 => reservation.cancel(),
                    _ => { drop(reservation); model[key] += 2; }
                }
            }
            for (key, expected) in keys.iter().zip(model) {
                prop_assert_eq!(used(&limiter, key), expected.min(60));
            }
        }
    }
}
