//! Many threads at once, on one key, on many keys, and on more keys than a store may keep.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;

use tower_ratelimit::{
    Algorithm, FixedWindow, Gcra, LocalLimiter, ManualClock, MemoryStore, Micros, SlidingWindow,
};

use crate::scenarios::{DAY, HOUR, START, every, exhaust, quota};
use crate::support::driver::{Driver, Step, limiter, limiter_over};

/// Runs this in many threads at once, each with its number.
fn at_once<T: Send + 'static>(
    threads: u32,
    work: impl Fn(u32) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let start = Arc::new(Barrier::new(threads as usize));
    let work = Arc::new(work);
    let (report, reports) = mpsc::channel();
    for number in 0..threads {
        let (work, start, report) = (Arc::clone(&work), Arc::clone(&start), report.clone());
        thread::spawn(move || {
            start.wait();
            report.send(work(number)).expect("somebody listens");
        });
    }
    let deadlock = Duration::from_secs(600);
    let result = |_| {
        reports
            .recv_timeout(deadlock)
            .expect("no thread waits for ever")
    };
    (0..threads).map(result).collect()
}

/// Returns how many of the requests of all threads are allowed.
fn allowed(
    threads: u32,
    limiter: &LocalLimiter,
    keys: impl Fn(u32) -> Vec<u64> + Send + Sync + 'static,
) -> u32 {
    let limiter = limiter.clone();
    let counts = at_once(threads, move |thread| {
        let keys = keys(thread).into_iter();
        keys.map(|key| u32::from(limiter.check(key, 1).now().is_allowed()))
            .sum::<u32>()
    });
    counts.into_iter().sum()
}

fn store(max_keys: usize) -> MemoryStore {
    MemoryStore::new()
        .clock(ManualClock::new())
        .max_keys(max_keys)
}

#[test]
fn threads_on_one_key_are_admitted_as_one_after_the_other() {
    for algorithm in every(quota(1_000, HOUR)) {
        let clock = ManualClock::new();
        let limiter = limiter(&clock, [("policy", algorithm)]);
        let mut alone = Step::new(algorithm);
        let half_an_hour = 1_800_000_000;
        for at in (0..5).map(|round| START + round * half_an_hour) {
            clock.set_micros(Micros::new(at));
            let together = allowed(64, &limiter, |_| vec![0; 20]);
            assert_eq!(together, exhaust(&mut alone, at), "{algorithm} at {at}");
        }
    }
}

#[test]
fn many_threads_on_several_keys_admit_the_limit_of_each() {
    for algorithm in every(quota(50, HOUR)) {
        let limiter = limiter(&ManualClock::new(), [("policy", algorithm)]);
        let in_turn = |thread: u32| (0..400).map(|ask| (ask + u64::from(thread)) % 20).collect();
        assert_eq!(allowed(8, &limiter, in_turn), 20 * 50, "{algorithm}");
    }
}

/// Two threads meet before each tenth key, so that both check at the same time. On a busy machine a meeting takes milliseconds.
#[test]
fn two_requests_for_one_unit_get_it_once() {
    for algorithm in every(quota(1, DAY)) {
        let limiter = limiter(&ManualClock::new(), [("policy", algorithm)]);
        let arrived = AtomicU64::new(0);
        let admitted = at_once(2, move |_| {
            let ask = |key: &u64| {
                if key.is_multiple_of(10) {
                    arrived.fetch_add(1, Ordering::SeqCst);
                    while arrived.load(Ordering::SeqCst) < 2 * (key / 10 + 1) {
                        thread::yield_now();
                    }
                }
                limiter.check(*key, 1).now().is_allowed()
            };
            (0..10_000).filter(ask).collect::<Vec<u64>>()
        });
        let mut admitted = admitted.concat();
        admitted.sort_unstable();
        assert!(admitted.into_iter().eq(0..10_000), "{algorithm}");
    }
}

/// A state of several words is spent twice no more often than a state of one word.
#[test]
fn a_state_of_several_words_is_never_spent_twice() {
    for algorithm in [
        "gcra 999983/day burst 1000",
        "token-bucket 999983/day burst 1000",
        "leaky-bucket 4294967291/day capacity 1000",
        "token-bucket-interval 999983/day burst 1000",
        "sliding-slots 1000/day",
    ] {
        let algorithm: Algorithm = algorithm.parse().unwrap();
        let limiter = limiter(&ManualClock::new(), [("policy", algorithm)]);
        assert_eq!(allowed(8, &limiter, |_| vec![0; 250]), 1_000, "{algorithm}");
    }
    // Two counts of 32 bits leave no room for the number of a window.
    let most = SlidingWindow::per_second(u32::MAX);
    let limiter = limiter(&ManualClock::new(), [("policy", most.into())]);
    assert!(limiter.check(0_u64, u32::MAX - 1_000).now().is_allowed());
    assert_eq!(allowed(8, &limiter, |_| vec![0; 250]), 1_000);
}

#[test]
fn no_key_is_lost_while_the_table_grows() {
    for algorithm in every(quota(2, DAY)) {
        let bound = 8_000;
        let store = store(bound);
        let limiter = limiter_over(&store, [("policy", algorithm)]);
        // Three of eight threads ask for every key, at different times.
        let keys = |thread: u32| {
            let mine = move |key: &u64| (*key + 8 - u64::from(thread)) % 8 < 3;
            (0..8_000).filter(mine).collect()
        };
        assert_eq!(allowed(8, &limiter, keys), 2 * 8_000, "{algorithm}");
        let usage = store.usage().remove(0);
        let told = (usage.keys, usage.evicted, usage.overflowed);
        assert_eq!(told, (bound, 0, 0), "{algorithm}");
    }
}

#[test]
fn while_keys_come_and_go_none_that_is_refused_is_admitted() {
    for algorithm in every(quota(3, DAY)) {
        let store = store(2_000);
        let limiter = limiter_over(&store, [("policy", algorithm)]);
        for refused in 0..200_u64 {
            assert!(limiter.check(refused, 3).now().is_allowed());
        }
        let watching = Arc::new(AtomicBool::new(true));
        let watcher = thread::spawn({
            let (store, watching) = (store.clone(), Arc::clone(&watching));
            move || {
                let mut most = 0;
                while watching.load(Ordering::Relaxed) {
                    most = most.max(store.usage()[0].keys);
                }
                most
            }
        });
        let asked = limiter.clone();
        let freed = at_once(8, move |thread| {
            let newcomers = (1_000_000 * u64::from(thread + 1)..).take(2_000);
            let ask = |(count, newcomer): (u64, u64)| {
                assert!(asked.check(newcomer, 1).now().is_allowed());
                asked.check(count % 200, 1).now().is_allowed()
            };
            (0..).zip(newcomers).filter(|pair| ask(*pair)).count()
        });
        watching.store(false, Ordering::Relaxed);
        assert!(watcher.join().unwrap() <= 2_000, "{algorithm}");
        assert_eq!(freed.iter().sum::<usize>(), 0, "{algorithm}");
        assert!(store.usage()[0].evicted >= 14_000, "{algorithm}");
    }
}

#[test]
fn many_newcomers_at_once_share_one_limit() {
    for algorithm in every(quota(100, DAY)) {
        let store = store(50);
        let limiter = limiter_over(&store, [("policy", algorithm)]);
        for refused in 0..50_u64 {
            assert!(limiter.check(refused, 100).now().is_allowed());
        }
        let newcomers = |thread: u32| (1_000 * u64::from(thread + 1)..).take(50).collect();
        assert_eq!(allowed(8, &limiter, newcomers), 100, "{algorithm}");
        assert_eq!(store.usage()[0].overflowed, 100, "{algorithm}");
    }
}

/// Law 10: all or none, for policies that are locked in one order and declared in another, while their tables are
/// full and keys evict each other.
#[test]
fn policies_whose_tables_are_full_charge_all_or_none_and_wait_for_no_request() {
    let store = store(500);
    let mut policies: Vec<(String, Algorithm)> = every(quota(1_000, DAY))
        .enumerate()
        .map(|(place, algorithm)| (format!("policy {place}"), algorithm))
        .collect();
    policies.push(("least".into(), Gcra::per_day(3).into()));
    let one_way = limiter_over(&store, policies.clone());
    policies.reverse();
    let the_other_way = limiter_over(&store, policies);
    let kept: Vec<u64> = (0..20).collect();
    for key in &kept {
        assert!(one_way.check(*key, 3).now().is_allowed());
    }

    let limiters = [one_way, the_other_way];
    let asked = limiters.clone();
    let freed = at_once(8, move |thread| {
        let limiter = &asked[thread as usize % 2];
        let newcomers = (1_000_000 * u64::from(thread + 1)..).take(1_000);
        let ask = |(count, newcomer): (u64, u64)| {
            let decision = limiter.check(newcomer, 1).now();
            assert!(decision.is_allowed());
            let used: Vec<u32> = decision.policies().map(|(_, each)| each.used()).collect();
            assert!(used.iter().all(|used| *used == 1), "{used:?}");
            limiter.check(count % 20, 1).now().is_allowed()
        };
        (0..).zip(newcomers).filter(|pair| ask(*pair)).count()
    });
    assert_eq!(freed.iter().sum::<usize>(), 0);
    assert_eq!(store.usage().len(), 10);
    for usage in store.usage() {
        assert_eq!(usage.keys, 500, "{usage:?}");
    }
    drop(limiters);
}

#[test]
fn a_reservation_of_several_policies_is_charged_once_for_each_request() {
    let store = store(100);
    let windows = ["a", "b", "c"].map(|name| (name, FixedWindow::per_day(500).into()));
    let limiter = limiter_over(&store, windows);
    let same = |_| (0..1_000).map(|ask| ask % 10).collect();
    assert_eq!(allowed(8, &limiter, same), 10 * 500);
    for key in 0..10_u64 {
        let decision = limiter.check(key, 1).now();
        assert!(
            decision
                .policies()
                .all(|(_, outcome)| outcome.used() == 500)
        );
    }
}
