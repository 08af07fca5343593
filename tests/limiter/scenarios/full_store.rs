//! A store in memory that is full of refused keys: newcomers share one entry, and every verb finds it.
//!
//! A charge looked at the shared entry, and every other verb looked at a key without a slot. So a peek allowed a
//! request that a check denied, and refunds were lost.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tower_ratelimit::{
    Algorithm, Decision, FixedWindow, Gcra, LeakyQueue, LocalLimiter, ManualClock, MemoryStore,
    Outcome, TokenBucket,
};

use crate::scenarios::{DAY, HOUR, every, quota};
use crate::support::driver::limiter_over;

const KEYS: u64 = 100;

/// Keys from here on have no slot.
const NEWCOMER: u64 = 1_000_000;

fn store(keys: usize) -> (MemoryStore, ManualClock) {
    let clock = ManualClock::new();
    (
        MemoryStore::new().clock(clock.clone()).max_keys(keys),
        clock,
    )
}

/// Returns a store whose keys have all used up this policy, and a limiter over it.
fn full_of(algorithm: Algorithm) -> (LocalLimiter, MemoryStore) {
    let (store, _) = store(usize::try_from(KEYS).unwrap());
    let limiter = limiter_over(&store, [("full", algorithm)]);
    fill(&limiter, algorithm);
    (limiter, store)
}

fn fill(limiter: &LocalLimiter, algorithm: Algorithm) {
    let limit = algorithm.limit().unwrap();
    for key in 0..KEYS {
        assert!(limiter.admit(key, limit).now(), "{algorithm}");
    }
}

fn queue(limit: u32) -> Algorithm {
    LeakyQueue::per_day(limit).places(limit - 1).into()
}

/// Every algorithm, three a day.
fn all() -> impl Iterator<Item = Algorithm> {
    every(quota(3, DAY)).chain([queue(3)])
}

fn told(decision: &Decision) -> Vec<Outcome> {
    decision.policies().map(|(_, outcome)| *outcome).collect()
}

/// Runs this in a thread of its own, which must end.
fn ends<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    thread::spawn(move || done.send(work()));
    let never = Duration::from_secs(60);
    result.recv_timeout(never).expect("it comes to an end")
}

/// 100,000 keys at their limit: a peek allowed a request that a check denied, and `acquire_up_to` asked the two in
/// turn for ever. The asynchronous form did so without yielding.
#[test]
fn taking_what_there_is_comes_to_an_end() {
    let store = MemoryStore::new().clock(ManualClock::new());
    let limiter = limiter_over(&store, [("full", FixedWindow::per_hour(3).into())]);
    for key in 0..100_000_u64 {
        assert!(limiter.admit(key, 3).now());
    }
    let (asked, erased) = (limiter.clone(), limiter.erased());
    let taken = ends(move || {
        let take = |key| asked.acquire_up_to(key, 2).now().0;
        [take("newcomer"), take("newcomer"), take("another")]
    });
    assert_eq!(taken, [2, 1, 0]);
    let (taken, decision) = ends(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let taking = erased.acquire_up_to("newcomer", 3);
        runtime.unwrap().block_on(taking.into_future()).unwrap()
    });
    assert_eq!(taken, 0);
    assert!(!decision.is_allowed() && told(&decision)[0].is_overflow());
}

#[test]
fn threads_of_newcomers_take_exactly_what_they_share() {
    for algorithm in [FixedWindow::per_day(50).into(), Gcra::per_day(50).into()] {
        let (limiter, _) = full_of(algorithm);
        let taken: Vec<u32> = ends(move || {
            let take = |thread: u64| {
                let limiter = limiter.clone();
                move || {
                    let keys = (NEWCOMER * (thread + 1)..).take(40);
                    keys.map(|key| limiter.acquire_up_to(key, 3).now().0).sum()
                }
            };
            let threads: Vec<_> = (0..4).map(|thread| thread::spawn(take(thread))).collect();
            threads.into_iter().map(|it| it.join().unwrap()).collect()
        });
        assert_eq!(taken.iter().sum::<u32>(), 50, "{algorithm}");
    }
}

#[test]
fn a_peek_answers_as_a_check_would() {
    for algorithm in all() {
        let (limiter, _) = full_of(algorithm);
        // Each cost, up to more than the limit.
        for cost in [0, 4, 1, 2, 1, 1, 4, 0] {
            let peeked = limiter.peek(NEWCOMER, cost).now();
            let checked = limiter.check(NEWCOMER + 1, cost).now();
            assert_eq!(
                told(&peeked),
                told(&checked),
                "{algorithm} at a cost of {cost}"
            );
            assert!(
                told(&peeked)[0].is_overflow(),
                "{algorithm} at a cost of {cost}"
            );
        }
        let inspected = limiter.inspect(NEWCOMER + 2).now();
        let (_, outcome) = inspected.policies().next().unwrap();
        assert_eq!(
            (outcome.used(), outcome.is_overflow()),
            (3, true),
            "{algorithm}"
        );
        let said = inspected.to_string();
        assert!(said.contains("together with other keys"), "{said}");
    }
}

#[test]
fn a_peek_at_several_policies_answers_as_a_check_would() {
    for algorithm in every(quota(3, DAY)) {
        let (store, _) = store(usize::try_from(KEYS).unwrap());
        let policies = [("full", algorithm), ("free", algorithm)];
        let both = limiter_over(&store, policies);
        fill(&limiter_over(&store, [("full", algorithm)]), algorithm);
        for cost in [0, 4, 1, 2, 1, 4, 0] {
            let peeked = both.peek(NEWCOMER, cost).now();
            let checked = both.check(NEWCOMER, cost).now();
            assert_eq!(
                told(&peeked),
                told(&checked),
                "{algorithm} at a cost of {cost}"
            );
            let together: Vec<_> = told(&peeked).iter().map(Outcome::is_overflow).collect();
            assert_eq!(together, [true, false], "{algorithm} at a cost of {cost}");
        }
        assert_eq!(
            both.acquire_up_to(NEWCOMER + 1, 3).now().0,
            0,
            "{algorithm}"
        );
    }
}

#[test]
fn refunds_settlements_and_resets_count_for_every_newcomer() {
    for algorithm in all() {
        let (limiter, _) = full_of(algorithm);
        let used = |key| told(&limiter.peek(key, 0).now())[0].used();
        assert!(limiter.admit(NEWCOMER, 3).now(), "{algorithm}");
        assert!(!limiter.admit(NEWCOMER + 1, 1).now(), "{algorithm}");
        limiter.refund(NEWCOMER, 2).now();
        assert_eq!(used(NEWCOMER + 1), 1, "{algorithm}");
        limiter.settle(NEWCOMER + 1, 1).now();
        assert_eq!(used(NEWCOMER), 2, "{algorithm}");
        limiter.reset(NEWCOMER).now();
        assert_eq!(used(NEWCOMER + 1), 0, "{algorithm}");
        assert!(limiter.admit(NEWCOMER + 1, 3).now(), "{algorithm}");
        // The keys with slots are unchanged.
        assert!((0..KEYS).all(|key| used(key) == 3), "{algorithm}");
    }
}

/// A peek of a newcomer returns the slot that it would get, and the key in that slot stays.
#[test]
fn a_question_forgets_no_key_to_make_room() {
    for algorithm in all() {
        let (limiter, store) = full_of(algorithm);
        limiter.reset(7_u64).now();
        assert!(limiter.admit(7_u64, 1).now());
        // One key can be evicted: a newcomer would get its slot.
        for cost in [0, 1, 4] {
            let outcome = told(&limiter.peek(NEWCOMER, cost).now())[0];
            assert!(!outcome.is_overflow(), "{algorithm}");
            assert_eq!(outcome.used(), u32::from(cost == 1), "{algorithm}");
        }
        limiter.refund(NEWCOMER, 1).now();
        limiter.reset(NEWCOMER).now();
        assert_eq!(store.usage()[0].evicted, 0, "{algorithm}");
        assert_eq!(told(&limiter.peek(7_u64, 0).now())[0].used(), 1);
        assert!(limiter.admit(NEWCOMER, 3).now());
        assert_eq!(store.usage()[0].evicted, 1, "{algorithm}");
        assert!(told(&limiter.peek(NEWCOMER + 1, 0).now())[0].is_overflow());
    }
}

/// The usage stays: for the keys that share the entry, and for the key that leaves it.
#[test]
fn a_limit_of_its_own_gives_a_newcomer_no_new_start() {
    for (algorithm, more) in every(quota(3, DAY)).zip(every(quota(5, DAY))) {
        let (limiter, _) = full_of(algorithm);
        assert!(limiter.admit(NEWCOMER, 3).now(), "{algorithm}");
        limiter
            .override_limit("full", NEWCOMER, more, HOUR)
            .unwrap()
            .now()
            .unwrap();
        let outcome = told(&limiter.peek(NEWCOMER, 0).now())[0];
        assert_eq!(
            (outcome.limit(), outcome.remaining()),
            (5, 2),
            "{algorithm}"
        );
        assert!(!outcome.is_overflow() && outcome.is_overridden());
        // The other keys share the same entry as before.
        assert!(!limiter.admit(NEWCOMER + 1, 1).now(), "{algorithm}");
        assert!(limiter.admit(NEWCOMER, 2).now(), "{algorithm}");
    }
}

/// The wait is that of the shared entry, to the microsecond. The decision said that the newcomer could pass.
#[test]
fn the_wait_that_a_newcomer_is_told_is_true() {
    let (store, clock) = store(2);
    let limiter = limiter_over(&store, [("full", TokenBucket::per_minute(20).into())]);
    for key in 0..2_u64 {
        limiter.settle(key, 40).now();
    }
    assert!(limiter.admit(NEWCOMER, 20).now());
    clock.advance(Duration::from_millis(1));
    let wait = limiter.peek(NEWCOMER + 1, 1).now().retry_after().unwrap();
    assert_eq!(wait, Duration::from_millis(2_999));
    clock.advance(Duration::from_micros(2_998_999));
    assert!(!limiter.admit(NEWCOMER + 1, 1).now());
    clock.advance(Duration::from_micros(1));
    assert!(limiter.admit(NEWCOMER + 1, 1).now());
}

/// A verb that looks for room locks pages, and holds none of its own meanwhile.
#[test]
fn verbs_of_newcomers_come_to_an_end() {
    for (algorithm, more) in every(quota(3, DAY)).zip(every(quota(5, DAY))) {
        let (store, _) = store(usize::try_from(KEYS).unwrap());
        let one_way = limiter_over(&store, [("full", algorithm), ("other", algorithm)]);
        let the_other = limiter_over(&store, [("other", algorithm), ("full", algorithm)]);
        fill(&one_way, algorithm);
        ends(move || {
            thread::scope(|scope| {
                for thread in 0..4_u64 {
                    let limiter = if thread % 2 == 0 {
                        &one_way
                    } else {
                        &the_other
                    };
                    scope.spawn(move || {
                        for number in 0..1_000 {
                            // Some of them have slots.
                            let key = NEWCOMER - 2 + (number + thread) % 7;
                            match number % 9 {
                                0 => limiter.refund(key, 1).now(),
                                1 => limiter.settle(key, 1).now(),
                                2 => limiter.reset(number % KEYS).now(),
                                3 => drop(limiter.peek(key, 2).now()),
                                4 => drop(limiter.acquire_up_to(key, 2).now()),
                                5 => limiter
                                    .override_limit("full", key, more, HOUR)
                                    .unwrap()
                                    .now()
                                    .unwrap(),
                                6 => limiter.end_override("full", key).unwrap().now(),
                                7 => drop(limiter.inspect(key).now()),
                                _ => drop(limiter.check(key, 1).now()),
                            }
                        }
                    });
                }
            });
        });
    }
}

/// What is forgotten changes no decision under such a limit.
#[test]
fn a_limit_that_refuses_every_request_keeps_no_key_from_being_evicted() {
    let bucket = Gcra::per_day(5);
    for none in [bucket.burst(0), Gcra::per_day(0).burst(5)] {
        let (store, _) = store(10);
        let limiter = limiter_over(&store, [("full", bucket.into())]);
        let refused = limiter.override_limit("full", NEWCOMER, none, HOUR);
        refused.unwrap().now().unwrap();
        assert!(!limiter.admit(NEWCOMER, 1).now());
        for key in 0..13_u64 {
            assert!(limiter.admit(key, 1).now());
        }
        let usage = &store.usage()[0];
        assert_eq!((usage.evicted, usage.overflowed), (3, 0), "{none:?}");
    }
}
