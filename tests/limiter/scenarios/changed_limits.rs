//! A limit that changes: a layer that is built again, and requests with their own limits.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use tower_ratelimit::algorithm::Limit;
use tower_ratelimit::key::IntoKey;
use tower_ratelimit::store::{Charge, MemoryBackend, Store};
use tower_ratelimit::{
    Algorithm, FixedWindow, Gcra, LocalLimiter, ManualClock, MemoryStore, Outcome, Policy,
    TokenBucket,
};

use crate::scenarios::{HOUR, every, quota};
use crate::support::driver::limiter_over;

fn told(limiter: &LocalLimiter, key: impl IntoKey) -> (u32, u32) {
    let decision = limiter.peek(key, 0).now();
    let (_, outcome) = decision.binding().unwrap();
    (outcome.limit(), outcome.remaining())
}

fn store() -> (MemoryStore, ManualClock) {
    let clock = ManualClock::new();
    (MemoryStore::new().clock(clock.clone()), clock)
}

fn backend(store: &MemoryStore, algorithm: Algorithm) -> MemoryBackend {
    store.open(&[Policy::new("a", algorithm).into()]).unwrap()
}

fn under(key: impl IntoKey, cost: u32, limit: u32) -> [Charge; 1] {
    [Charge::new(0, key.into_key(), cost).under(Limit::new(limit, limit))]
}

fn outcome(backend: &MemoryBackend, charges: &[Charge]) -> Outcome {
    let outcomes = backend.charge_now(charges);
    *outcomes.iter().next().unwrap().1
}

#[test]
fn a_layer_that_is_built_again_with_another_limit_finds_what_was_used() {
    for (more, less) in every(quota(100, HOUR)).zip(every(quota(20, HOUR))) {
        let (store, _) = store();
        let mut limiter = limiter_over(&store, [("a", more)]);
        for key in 0..200_u64 {
            assert!(limiter.admit(key, 60).now(), "{more}");
        }
        for round in 0..3 {
            let old = limiter;
            limiter = limiter_over(&store, [("a", less)]);
            assert_eq!(told(&limiter, 7_u64), (20, 0), "{more} in round {round}");
            assert!(!limiter.admit(round, 1).now(), "{more}");
            // The old layer lives on for a while, with its old limit.
            assert_eq!(told(&old, 7_u64), (100, 40), "{more}");
            drop(old);
            let old = limiter;
            limiter = limiter_over(&store, [("a", more)]);
            drop(old);
            for key in 0..200_u64 {
                assert_eq!(told(&limiter, key), (100, 40), "{more} for {key}");
            }
        }
        assert!(limiter.admit(7_u64, 40).now() && !limiter.admit(7_u64, 1).now());
        assert_eq!(store.usage().len(), 1);
        assert_eq!(store.usage()[0].keys, 200, "{more}");
    }
}

#[test]
fn a_charge_goes_by_the_limit_that_it_brings() {
    for algorithm in every(quota(100, HOUR)) {
        let (store, _) = store();
        let backend = backend(&store, algorithm);
        assert!(backend.admit_now(&under("ann", 0, 100)), "{algorithm}");
        assert!(backend.admit_now(&under("ann", 60, 100)), "{algorithm}");
        for round in 0..10 {
            let denied = outcome(&backend, &under("ann", 1, 20));
            assert_eq!((denied.limit(), denied.remaining()), (20, 0), "{algorithm}");
            assert!(!denied.is_allowed() && !denied.is_overridden());
            let plain = [Charge::new(0, "ann".into_key(), 1)];
            let own = outcome(&backend, &plain);
            assert_eq!((own.limit(), own.remaining()), (100, 39 - round));
        }
        let most = outcome(&backend, &under("ann", 950, 1_020));
        assert_eq!(
            (most.is_allowed(), most.remaining()),
            (true, 0),
            "{algorithm}"
        );
        // Other keys are unchanged.
        assert!(backend.admit_now(&[Charge::new(0, "bob".into_key(), 100)]));
        assert!(!backend.admit_now(&[Charge::new(0, "bob".into_key(), 1)]));
    }
}

/// Pages move one by one while all keys are charged: no charge is lost, and none counts twice.
#[test]
fn threads_lose_no_charge_while_pages_move() {
    const KEYS: u64 = 3_000;
    let algorithms: [Algorithm; 3] = [
        FixedWindow::per_hour(1_000_000).into(),
        TokenBucket::per_hour(1_000_000).into(),
        Gcra::per_hour(1_000_000).into(),
    ];
    for algorithm in algorithms {
        let (store, _) = store();
        let backend = backend(&store, algorithm);
        let other = limiter_over(&store, [("a", algorithm), ("b", algorithm)]);
        let (is_over, charged) = (AtomicBool::new(false), AtomicU32::new(0));
        thread::scope(|scope| {
            for thread in 0..3_u64 {
                let (backend, other) = (&backend, &other);
                let (is_over, charged) = (&is_over, &charged);
                scope.spawn(move || {
                    for number in 0.. {
                        let key = (number * (2 * thread + 1)) % KEYS;
                        let admitted = match thread {
                            0 => other.admit(key, 1).now(),
                            _ => backend.admit_now(&[Charge::new(0, key.into_key(), 1)]),
                        };
                        assert!(admitted);
                        charged.fetch_add(1, Ordering::Relaxed);
                        if number >= 2 * KEYS && is_over.load(Ordering::Acquire) {
                            break;
                        }
                    }
                });
            }
            for key in 0..KEYS {
                let admitted = backend.admit_now(&under(key, 1, 2_000_000));
                assert!(admitted, "{algorithm}");
                charged.fetch_add(1, Ordering::Relaxed);
            }
            is_over.store(true, Ordering::Release);
        });
        let used = |key: u64| {
            let (limit, remaining) = told(&other, key);
            limit - remaining
        };
        let used: u32 = (0..KEYS).map(used).sum();
        assert_eq!(used, charged.into_inner(), "{algorithm}");
        let usage = store.usage();
        assert_eq!(usage[0].keys as u64, KEYS, "{algorithm}");
    }
}

#[test]
fn the_bound_holds_when_a_full_table_meets_another_limit() {
    for algorithm in every(quota(5, HOUR)) {
        let clock = ManualClock::new();
        let store = MemoryStore::new().clock(clock.clone()).max_keys(1_000);
        let backend = backend(&store, algorithm);
        for key in 0..1_000_u64 {
            assert!(backend.admit_now(&[Charge::new(0, key.into_key(), 5)]));
        }
        // They refuse under any limit that is in force, so newcomers share one entry.
        for newcomer in 2_000..2_100_u64 {
            let _ = outcome(&backend, &under(newcomer, 1, 4));
            assert!(store.usage()[0].keys <= 1_000, "{algorithm}");
        }
        let newcomer = outcome(&backend, &under(3_000_u64, 1, 4));
        assert!(
            newcomer.is_overflow() && !newcomer.is_allowed(),
            "{algorithm}"
        );
        let usage = store.usage();
        let figures = (usage[0].keys, usage[0].evicted, usage[0].overflowed);
        assert_eq!(figures, (1_000, 0, 4), "{algorithm}");
        for key in 0..1_000_u64 {
            assert!(!backend.admit_now(&[Charge::new(0, key.into_key(), 1)]));
        }
        // When all are as good as new, they make room.
        clock.advance(2 * HOUR);
        assert!(backend.admit_now(&under(4_000_u64, 4, 4)), "{algorithm}");
        assert!(!outcome(&backend, &under(4_000_u64, 1, 4)).is_overflow());
    }
}

/// A key that is denied under a small limit, and not under a large one, is not evicted: it would be new.
#[test]
fn a_full_table_forgets_no_key_that_refuses_under_any_limit_in_force() {
    for algorithm in every(quota(100, HOUR)) {
        let store = MemoryStore::new().clock(ManualClock::new()).max_keys(50);
        let backend = backend(&store, algorithm);
        for key in 0..50_u64 {
            assert!(backend.admit_now(&under(key, 5, 5)), "{algorithm}");
        }
        for newcomer in 1_000..2_000_u64 {
            let _ = outcome(&backend, &[Charge::new(0, newcomer.into_key(), 1)]);
        }
        for key in 0..50_u64 {
            assert!(!backend.admit_now(&under(key, 1, 5)), "{algorithm}: {key}");
        }
        assert_eq!(store.usage()[0].evicted, 0, "{algorithm}");
    }
}

/// A debt drains at the rate of the limit, so a key is not new under a low limit when it is under a high one.
#[test]
fn a_key_is_forgotten_when_it_is_new_under_the_slowest_limit() {
    for algorithm in [
        Gcra::per_hour(60).into(),
        TokenBucket::per_hour(60).by_interval().into(),
    ] {
        let clock = ManualClock::new();
        let store = MemoryStore::new().clock(clock.clone()).max_keys(1);
        let backend = backend(&store, algorithm);
        let charge = |key: u64, cost, rate| {
            let limit = Limit::new(rate, 60);
            let charge = Charge::new(0, key.into_key(), cost).under(limit);
            outcome(&backend, &[charge])
        };
        assert!(charge(1, 10, 1).is_allowed());
        clock.advance(HOUR);
        // At sixty an hour nothing would be owed; at one an hour nine are.
        assert!(charge(2, 60, 60).is_allowed(), "{algorithm}");
        assert_eq!(store.usage()[0].evicted, 1, "{algorithm}");
    }
}

#[test]
fn a_snapshot_has_the_keys_of_both_tables() {
    for algorithm in every(quota(100, HOUR)) {
        let (store, _) = store();
        let backend = backend(&store, algorithm);
        for key in 0..500_u64 {
            assert!(backend.admit_now(&[Charge::new(0, key.into_key(), 60)]));
        }
        for key in 0..3_u64 {
            assert!(backend.admit_now(&under(key, 20, 200)), "{algorithm}");
        }
        let store = store.restore(&store.snapshot()).unwrap();
        let after = limiter_over(&store, [("a", algorithm)]);
        for key in 0..500_u64 {
            let left = if key < 3 { 20 } else { 40 };
            assert_eq!(told(&after, key), (100, left), "{algorithm}: {key}");
        }
    }
}

#[test]
fn a_key_under_several_limits_takes_no_more_than_60_bytes() {
    const KEYS: u32 = 1_000_000;
    let store = MemoryStore::new()
        .clock(ManualClock::new())
        .max_keys(KEYS as usize);
    // A rate that no number of microseconds divides is kept in three words from the start.
    let limiter = limiter_over(&store, [("a", Gcra::per_day(999_983).into())]);
    for key in 0..KEYS {
        assert!(limiter.admit(key, 1).now());
    }
    let usage = store.usage();
    assert_eq!(usage[0].keys, KEYS as usize);
    let each = usage[0].bytes / usage[0].keys;
    assert!((32..=60).contains(&each), "{each} bytes");
}
