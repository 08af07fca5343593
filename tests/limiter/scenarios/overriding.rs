//! Overrides: another limit for one key.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use tower_ratelimit::key::IntoKey;
use tower_ratelimit::{
    Algorithm, AnchoredWindow, FixedWindow, LeakyQueue, Limiter, LocalLimiter, ManualClock,
    MemoryStore, Policy, Quota, SlidingWindow, TokenBucket,
};

use crate::scenarios::{HOUR, MINUTE, SECOND, every, quota};
use crate::support::driver::{limiter, limiter_over};

/// Returns the output of a future over a store in this process, which has nothing to wait for.
fn now<F: IntoFuture>(future: F) -> F::Output {
    match pin!(future.into_future()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("there is no answer yet"),
    }
}

/// Each algorithm, with the same algorithm under another limit.
fn pairs(limit: u32, other: u32) -> impl Iterator<Item = (Algorithm, Algorithm)> {
    every(quota(limit, HOUR)).zip(every(quota(other, HOUR)))
}

fn limit_of(limiter: &LocalLimiter, key: impl IntoKey) -> (u32, u32) {
    let told = limiter.peek(key, 0).now();
    let (_, told) = told.binding().unwrap();
    (told.limit(), told.remaining())
}

#[test]
fn one_key_has_more_and_all_others_what_they_had() {
    for (algorithm, more) in pairs(10, 15) {
        let clock = ManualClock::new();
        let limiter = limiter(&clock, [("a", algorithm)]);
        assert!(limiter.check("ann", 8).now().is_allowed());
        limiter
            .override_limit("a", "ann", more, MINUTE)
            .unwrap()
            .now()
            .unwrap();
        assert_eq!(limit_of(&limiter, "ann"), (15, 7), "{algorithm}");
        assert_eq!(limit_of(&limiter, "bob"), (10, 10), "{algorithm}");
        assert_eq!(limiter.acquire_up_to("ann", 20).now().0, 7, "{algorithm}");
        let denied = limiter.check("ann", 1).now();
        assert!(denied.binding().unwrap().1.is_overridden(), "{algorithm}");
        limiter.refund("ann", 4).now();
        assert_eq!(limit_of(&limiter, "ann"), (15, 4), "{algorithm}");
        limiter.settle("ann", 3).now();
        assert_eq!(limit_of(&limiter, "ann"), (15, 1), "{algorithm}");
        limiter.end_override("a", "ann").unwrap().now();
        assert_eq!(limit_of(&limiter, "ann"), (10, 0), "{algorithm}");
        limiter.reset("ann").now();
        assert_eq!(limit_of(&limiter, "ann"), (10, 10), "{algorithm}");
    }
}

#[test]
fn one_key_has_less_for_a_while() {
    for (algorithm, less) in pairs(10, 3) {
        let clock = ManualClock::new();
        let limiter = limiter(&clock, [("a", algorithm)]);
        limiter
            .override_limit("a", "ann", less, MINUTE)
            .unwrap()
            .now()
            .unwrap();
        assert!(limiter.check("ann", 3).now().is_allowed(), "{algorithm}");
        assert!(!limiter.check("ann", 1).now().is_allowed(), "{algorithm}");
        clock.advance(MINUTE);
        assert!(limiter.check("ann", 7).now().is_allowed(), "{algorithm}");
        assert!(!limiter.check("ann", 1).now().is_allowed(), "{algorithm}");
    }
}

#[test]
fn it_holds_among_several_policies_and_under_a_soft_one() {
    for (algorithm, more) in pairs(10, 15) {
        let limiter = Limiter::builder()
            .policy(Policy::new("first", FixedWindow::per_hour(100)))
            .policy(Policy::new("own", algorithm))
            .policy(Policy::new("soft", FixedWindow::per_hour(5)).soft())
            .store(MemoryStore::new().clock(ManualClock::new()))
            .build_local()
            .unwrap();
        assert!(limiter.check("ann", 9).now().is_allowed());
        limiter
            .override_limit("own", "ann", more, HOUR)
            .unwrap()
            .now()
            .unwrap();
        let soft = FixedWindow::per_hour(6);
        limiter
            .override_limit("soft", "ann", soft, HOUR)
            .unwrap()
            .now()
            .unwrap();
        assert!(limiter.peek("ann", 6).now().is_allowed(), "{algorithm}");
        assert!(limiter.check("ann", 6).now().is_allowed(), "{algorithm}");
        let denied = limiter.check("ann", 1).now();
        assert!(!denied.is_allowed(), "{algorithm}");
        assert_eq!(denied.binding().unwrap().0, "own", "{algorithm}");
        let told: Vec<_> = denied
            .policies()
            .map(|(_, told)| (told.limit(), told.remaining(), told.is_overridden()))
            .collect();
        let expected = [(100, 85, false), (15, 0, true), (6, 0, true)];
        assert_eq!(told, expected, "{algorithm}");
        assert!(limiter.admit("bob", 10).now(), "{algorithm}");
        assert!(!limiter.admit("bob", 1).now(), "{algorithm}");
    }
}

#[test]
fn threads_admit_exactly_what_was_given_while_limits_change() {
    for (algorithm, more) in pairs(1_000, 3_000) {
        let limiter = limiter(&ManualClock::new(), [("a", algorithm)]);
        let (admitted, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Acquire) {
                        if limiter.check("ann", 1).now().is_allowed() {
                            admitted.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            for _ in 0..200 {
                limiter
                    .override_limit("a", "ann", more, HOUR)
                    .unwrap()
                    .now()
                    .unwrap();
                assert!(limiter.admit("bob", 0).now());
                limiter.end_override("a", "ann").unwrap().now();
            }
            limiter
                .override_limit("a", "ann", more, HOUR)
                .unwrap()
                .now()
                .unwrap();
            while limiter.peek("ann", 1).now().is_allowed() {
                thread::yield_now();
            }
            is_over.store(true, Ordering::Release);
        });
        // Law 11: the debt above the smaller capacity is not forgiven.
        assert_eq!(admitted.into_inner(), 3_000, "{algorithm}");
    }
}

#[test]
fn threads_that_charge_a_key_while_it_comes_and_goes_lose_nothing() {
    for (algorithm, more) in pairs(100_000_000, 300_000_000) {
        let store = MemoryStore::new().clock(ManualClock::new());
        let alone = limiter_over(&store, [("a", algorithm)]);
        let both = limiter_over(&store, [("a", algorithm), ("b", algorithm)]);
        let (charged, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
        let charge = |thread: u32| match thread {
            0 => {
                alone.settle("ann", 5).now();
                alone.refund("ann", 3).now();
                2
            }
            1 => u32::from(both.admit("ann", 1).now()),
            2 => u32::from(alone.check("ann", 1).now().is_allowed()),
            _ => u32::from(alone.admit("ann", 1).now()),
        };
        thread::scope(|scope| {
            for thread in 0..4 {
                let (charge, charged, is_over) = (&charge, &charged, &is_over);
                scope.spawn(move || {
                    while !is_over.load(Ordering::Acquire) {
                        charged.fetch_add(charge(thread), Ordering::Relaxed);
                    }
                });
            }
            for _ in 0..20_000 {
                alone
                    .override_limit("a", "ann", more, HOUR)
                    .unwrap()
                    .now()
                    .unwrap();
                alone.end_override("a", "ann").unwrap().now();
            }
            is_over.store(true, Ordering::Release);
        });
        let (limit, remaining) = limit_of(&alone, "ann");
        assert_eq!(limit - remaining, charged.into_inner(), "{algorithm}");
    }
}

#[test]
fn a_limit_of_another_kind_or_period_is_refused_and_so_is_a_length_of_nothing() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .policy(Policy::new("daily", FixedWindow::per_day(10)))
        .policy(Policy::new("free", Algorithm::Unlimited))
        .store(MemoryStore::new().clock(clock))
        .build_local()
        .unwrap();
    let refused = |policy: &str, limit: Algorithm, length: Duration| {
        let error = limiter.override_limit(policy, "ann", limit, length);
        let error = error.unwrap_err();
        (error.field().to_owned(), error.value().to_owned())
    };
    let good = FixedWindow::per_day(20).into();
    for limit in [
        AnchoredWindow::per_day(20).into(),
        FixedWindow::per_hour(20).into(),
        SlidingWindow::per_day(20).into(),
        Algorithm::Unlimited,
    ] {
        assert_eq!(refused("daily", limit, HOUR).0, "limit", "{limit}");
    }
    assert_eq!(refused("daily", good, Duration::ZERO).0, "length");
    assert_eq!(
        refused("daily", good, Duration::from_nanos(999)).0,
        "length"
    );
    assert_eq!(refused("free", good, HOUR).0, "policy");
    assert_eq!(refused("dialy", good, HOUR).0, "policy");
    assert!(limiter.end_override("dialy", "ann").is_err());
    limiter.end_override("free", "ann").unwrap().now();
    limiter.end_override("daily", "ann").unwrap().now();
}

#[test]
fn a_length_beyond_all_bounds_ends_in_centuries() {
    let clock = ManualClock::new();
    let limiter = limiter(&clock, [("a", FixedWindow::per_hour(10).into())]);
    for length in [Duration::MAX, Duration::from_micros(u64::MAX)] {
        let more = FixedWindow::per_hour(20);
        limiter
            .override_limit("a", "ann", more, length)
            .unwrap()
            .now()
            .unwrap();
        assert_eq!(limit_of(&limiter, "ann").0, 20);
    }
    clock.advance(Duration::from_secs(284 * 365 * 86_400));
    assert_eq!(limit_of(&limiter, "ann").0, 20);
    clock.advance(Duration::from_secs(2 * 366 * 86_400));
    assert_eq!(limit_of(&limiter, "ann").0, 10);
}

#[test]
fn the_number_of_overrides_is_bounded_until_some_have_ended() {
    let clock = ManualClock::new();
    let limiter = limiter(&clock, [("a", FixedWindow::per_hour(10).into())]);
    let more = FixedWindow::per_hour(20);
    for key in 0..10_000_u64 {
        limiter
            .override_limit("a", key, more, MINUTE)
            .unwrap()
            .now()
            .unwrap();
        assert!(limiter.admit(key, 15).now());
    }
    let given = limiter.override_limit("a", "ann", more, MINUTE).unwrap();
    assert_eq!(given.now().unwrap_err().field(), "overrides");
    // Another override for a key that has one takes no room.
    limiter
        .override_limit("a", 7_u64, more, HOUR)
        .unwrap()
        .now()
        .unwrap();
    assert_eq!(limit_of(&limiter, "ann"), (10, 10));
    assert!(limiter.admit("ann", 10).now());
    limiter.settle("ann", u32::MAX).now();
    assert!(!limiter.admit("ann", 1).now());

    clock.advance(MINUTE);
    limiter
        .override_limit("a", "ann", more, MINUTE)
        .unwrap()
        .now()
        .unwrap();
    assert_eq!(limit_of(&limiter, "ann"), (20, 0));
    // Their usage stays.
    for key in 0..10_000_u64 {
        assert_eq!(limiter.admit(key, 1).now(), key == 7, "{key}");
    }
}

/// Settled keys took the room of the overrides that an operator sets.
#[test]
fn keys_that_are_settled_take_no_room_of_overrides() {
    let clock = ManualClock::new();
    let limiter = limiter(&clock, [("a", FixedWindow::per_hour(10).into())]);
    for key in 0..11_000_u64 {
        limiter.settle(key, 1_000).now();
    }
    let more = FixedWindow::per_hour(2_000);
    let overridden = 5_000..15_000_u64;
    for key in overridden.clone() {
        limiter
            .override_limit("a", key, more, MINUTE)
            .unwrap()
            .now()
            .unwrap();
    }
    let given = limiter
        .override_limit("a", 4_999_u64, more, MINUTE)
        .unwrap();
    assert_eq!(given.now().unwrap_err().field(), "overrides");
    for key in overridden {
        let remaining = if key < 11_000 { 1_000 } else { 2_000 };
        assert_eq!(limit_of(&limiter, key), (2_000, remaining), "{key}");
    }
    for key in 0..11_000_u64 {
        assert_eq!(limiter.admit(key, 1).now(), key >= 5_000, "{key}");
    }
    // A settled charge outlives an override, and takes the room of no later override.
    clock.advance(MINUTE);
    for key in 20_000..30_000_u64 {
        limiter
            .override_limit("a", key, more, MINUTE)
            .unwrap()
            .now()
            .unwrap();
    }
    assert!((0..11_000_u64).all(|key| !limiter.admit(key, 1).now()));
}

#[test]
fn nothing_evicts_an_override() {
    let store = MemoryStore::new().clock(ManualClock::new()).max_keys(10);
    let limiter = limiter_over(&store, [("a", TokenBucket::per_hour(10).into())]);
    let less = TokenBucket::per_hour(2);
    limiter
        .override_limit("a", "ann", less, HOUR)
        .unwrap()
        .now()
        .unwrap();
    assert!(limiter.admit("ann", 1).now());
    for key in 0..1_000_u64 {
        limiter.admit(key, 1).now();
    }
    assert_eq!(limit_of(&limiter, "ann"), (2, 1));
}

#[test]
fn a_block_is_a_block_and_inspection_tells_of_both() {
    let clock = ManualClock::new();
    let limiter = limiter(&clock, [("a", FixedWindow::per_hour(10).into())]);
    limiter
        .override_limit("a", "ann", FixedWindow::per_hour(20), HOUR)
        .unwrap()
        .now()
        .unwrap();
    assert!(limiter.admit("ann", 3).now());
    let told = limiter.inspect("ann").now().to_string();
    assert!(told.starts_with("a: 3 of 20 used, 17 remain."), "{told}");
    assert!(
        told.ends_with("That limit is its own for a while.\n"),
        "{told}"
    );
    limiter.block("ann", SECOND).now();
    assert!(!limiter.admit("ann", 1).now());
    let (_, told) = limiter
        .check("ann", 1)
        .now()
        .binding()
        .map(|(n, o)| (n.to_owned(), *o))
        .unwrap();
    assert!(told.is_blocked() && told.is_overridden());
    clock.advance(SECOND);
    assert!(limiter.admit("ann", 17).now());
    assert!(!limiter.inspect("bob").now().to_string().contains("its own"));
}

#[test]
fn a_queue_has_more_places_for_one_key() {
    let queue = |places| LeakyQueue::per_second(1).places(places);
    let limiter = limiter(&ManualClock::new(), [("queue", queue(1).into())]);
    limiter
        .override_limit("queue", "ann", queue(3), HOUR)
        .unwrap()
        .now()
        .unwrap();
    let delays = (0..4).map(|_| limiter.check("ann", 1).now().delay().as_secs());
    assert_eq!(delays.collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(!limiter.admit("ann", 1).now());
}

#[test]
fn a_restart_forgets_no_limit_of_a_key() {
    for (algorithm, more) in pairs(10, 15) {
        let clock = ManualClock::new();
        let mut store = MemoryStore::new().clock(clock.clone());
        let mut limiter = limiter_over(&store, [("a", algorithm)]);
        limiter
            .override_limit("a", "ann", more, MINUTE)
            .unwrap()
            .now()
            .unwrap();
        assert!(limiter.admit("ann", 12).now(), "{algorithm}");
        // Twice, the first time into a store that opens no policy.
        store = store.restore(&store.snapshot()).unwrap();
        store = store.restore(&store.snapshot()).unwrap();
        limiter = limiter_over(&store, [("a", algorithm)]);
        assert_eq!(limit_of(&limiter, "ann"), (15, 3), "{algorithm}");
        store = store.restore(&store.snapshot()).unwrap();
        // Under another limit of the policy, the override still holds.
        let another = every(Quota::new(20, HOUR).unwrap());
        let another = another
            .into_iter()
            .find(|other| other.name() == algorithm.name());
        limiter = limiter_over(&store, [("a", another.unwrap())]);
        assert_eq!(limit_of(&limiter, "ann"), (15, 3), "{algorithm}");
        clock.advance(MINUTE);
        let (limit, remaining) = limit_of(&limiter, "ann");
        assert_eq!(limit, 20, "{algorithm}");
        assert!((8..=9).contains(&remaining), "{algorithm}: {remaining}");
        let usage = store.usage();
        assert_eq!(usage.len(), 1);
    }
}

#[test]
fn a_settlement_above_the_range_of_a_word_survives_a_restart() {
    let clock = ManualClock::new();
    let store = MemoryStore::new().clock(clock.clone());
    let before = limiter_over(&store, [("a", FixedWindow::per_hour(10).into())]);
    before.settle("ann", 1_000).now();
    let store = store.restore(&store.snapshot()).unwrap();
    let after = limiter_over(&store, [("a", FixedWindow::per_hour(10).into())]);
    after.refund("ann", 989).now();
    assert!(!after.admit("ann", 1).now());
    after.refund("ann", 2).now();
    assert!(after.admit("ann", 1).now());
}

#[test]
fn the_same_is_done_through_any_store() {
    let limiter = limiter(
        &ManualClock::new(),
        [("a", FixedWindow::per_hour(10).into())],
    );
    let erased = limiter.clone().erased();
    let more = FixedWindow::per_hour(20);
    now(erased.override_limit("a", "ann", more, HOUR).unwrap()).unwrap();
    assert_eq!(limit_of(&limiter, "ann").0, 20);
    now(erased.end_override("a", "ann").unwrap()).unwrap();
    assert_eq!(limit_of(&limiter, "ann").0, 10);
}
