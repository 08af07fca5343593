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
        assert!(limiter.admit_now(key, limit), "{algorithm}");
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

/// 100,000 keys at their limit: a peek allowed a request that a check denied, and `take_up_to_now` asked the two in
/// turn for ever. The asynchronous form did so without yielding.
#[test]
fn taking_what_there_is_comes_to_an_end() {
    let store = MemoryStore::new().clock(ManualClock::new());
    let limiter = limiter_over(&store, [("full", FixedWindow::per_hour(3).into())]);
    for key in 0..100_000_u64 {
        assert!(limiter.admit_now(key, 3));
    }
    let (asked, erased) = (limiter.clone(), limiter.erased());
    let taken = ends(move || {
        let take = |key| asked.take_up_to_now(key, 2).0;
        [take("newcomer"), take("newcomer"), take("another")]
    });
    assert_eq!(taken, [2, 1, 0]);
    let (taken, decision) = ends(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let taking = erased.take_up_to("newcomer", 3);
        runtime.unwrap().block_on(taking).unwrap()
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
                    keys.map(|key| limiter.take_up_to_now(key, 3).0).sum()
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
            let peeked = limiter.peek_now(NEWCOMER, cost);
            let checked = limiter.check_now(NEWCOMER + 1, cost);
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
        let inspected = limiter.inspect_now(NEWCOMER + 2);
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
            let peeked = both.peek_now(NEWCOMER, cost);
            let checked = both.check_now(NEWCOMER, cost);
            assert_eq!(
                told(&peeked),
                told(&checked),
                "{algorithm} at a cost of {cost}"
            );
            let together: Vec<_> = told(&peeked).iter().map(Outcome::is_overflow).collect();
            assert_eq!(together, [true, false], "{algorithm} at a cost of {cost}");
        }
        assert_eq!(both.take_up_to_now(NEWCOMER + 1, 3).0, 0, "{algorithm}");
    }
}

#[test]
fn refunds_settlements_and_resets_count_for_every_newcomer() {
    for algorithm in all() {
        let (limiter, _) = full_of(algorithm);
        let used = |key| told(&limiter.peek_now(key, 0))[0].used();
        assert!(limiter.admit_now(NEWCOMER, 3), "{algorithm}");
        assert!(!limiter.admit_now(NEWCOMER + 1, 1), "{algorithm}");
        limiter.refund_now(NEWCOMER, 2);
        assert_eq!(used(NEWCOMER + 1), 1, "{algorithm}");
        limiter.settle_now(NEWCOMER + 1, 1);
        assert_eq!(used(NEWCOMER), 2, "{algorithm}");
        limiter.reset_now(NEWCOMER);
        assert_eq!(used(NEWCOMER + 1), 0, "{algorithm}");
        assert!(limiter.admit_now(NEWCOMER + 1, 3), "{algorithm}");
        // The keys with slots are unchanged.
        assert!((0..KEYS).all(|key| used(key) == 3), "{algorithm}");
    }
}

/// A peek of a newcomer returns the slot that it would get, and the key in that slot stays.
#[test]
fn a_question_forgets_no_key_to_make_room() {
    for algorithm in all() {
        let (limiter, store) = full_of(algorithm);
        limiter.reset_now(7_u64);
        assert!(limiter.admit_now(7_u64, 1));
        // One key can be evicted: a newcomer would get its slot.
        for cost in [0, 1, 4] {
            let outcome = told(&limiter.peek_now(NEWCOMER, cost))[0];
            assert!(!outcome.is_overflow(), "{algorithm}");
            assert_eq!(outcome.used(), u32::from(cost == 1), "{algorithm}");
        }
        limiter.refund_now(NEWCOMER, 1);
        limiter.reset_now(NEWCOMER);
        assert_eq!(store.usage()[0].evicted(), 0, "{algorithm}");
        assert_eq!(told(&limiter.peek_now(7_u64, 0))[0].used(), 1);
        assert!(limiter.admit_now(NEWCOMER, 3));
        assert_eq!(store.usage()[0].evicted(), 1, "{algorithm}");
        assert!(told(&limiter.peek_now(NEWCOMER + 1, 0))[0].is_overflow());
    }
}

/// The usage stays: for the keys that share the entry, and for the key that leaves it.
#[test]
fn a_limit_of_its_own_gives_a_newcomer_no_new_start() {
    for (algorithm, more) in every(quota(3, DAY)).zip(every(quota(5, DAY))) {
        let (limiter, _) = full_of(algorithm);
        assert!(limiter.admit_now(NEWCOMER, 3), "{algorithm}");
        limiter
            .override_limit_now("full", NEWCOMER, more, HOUR)
            .unwrap();
        let outcome = told(&limiter.peek_now(NEWCOMER, 0))[0];
        assert_eq!(
            (outcome.limit(), outcome.remaining()),
            (5, 2),
            "{algorithm}"
        );
        assert!(!outcome.is_overflow() && outcome.is_overridden());
        // The other keys share the same entry as before.
        assert!(!limiter.admit_now(NEWCOMER + 1, 1), "{algorithm}");
        assert!(limiter.admit_now(NEWCOMER, 2), "{algorithm}");
    }
}

/// The wait is that of the shared entry, to the microsecond. The decision said that the newcomer could pass.
#[test]
fn the_wait_that_a_newcomer_is_told_is_true() {
    let (store, clock) = store(2);
    let limiter = limiter_over(&store, [("full", TokenBucket::per_minute(20).into())]);
    for key in 0..2_u64 {
        limiter.settle_now(key, 40);
    }
    assert!(limiter.admit_now(NEWCOMER, 20));
    clock.advance(Duration::from_millis(1));
    let wait = limiter.peek_now(NEWCOMER + 1, 1).retry_after().unwrap();
    assert_eq!(wait, Duration::from_millis(2_999));
    clock.advance(Duration::from_micros(2_998_999));
    assert!(!limiter.admit_now(NEWCOMER + 1, 1));
    clock.advance(Duration::from_micros(1));
    assert!(limiter.admit_now(NEWCOMER + 1, 1));
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
                                0 => limiter.refund_now(key, 1),
                                1 => limiter.settle_now(key, 1),
                                2 => limiter.reset_now(number % KEYS),
                                3 => drop(limiter.peek_now(key, 2)),
                                4 => drop(limiter.take_up_to_now(key, 2)),
                                5 => limiter.override_limit_now("full", key, more, HOUR).unwrap(),
                                6 => limiter.end_override_now("full", key).unwrap(),
                                7 => drop(limiter.inspect_now(key)),
                                _ => drop(limiter.check_now(key, 1)),
                            }
                        }
                    });
                }
            });
        });
    }
}
