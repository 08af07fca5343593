//! Concurrency limits with many threads.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use tower_ratelimit::key::IntoKey;
use tower_ratelimit::store::{Charge, Slot, Store};
use tower_ratelimit::{Concurrency, FixedWindow, Limiter, MemoryStore, Policy, TokenBucket};

/// A service that counts the requests in it.
#[derive(Default)]
struct Service {
    inside: AtomicU32,
    most: AtomicU32,
}

impl Service {
    fn serve(&self) {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        thread::yield_now();
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn many_threads_are_never_more_than_the_limit_and_leave_no_slot_behind() {
    const THREADS: usize = 8;
    for most in [1, 2, 3] {
        let limiter = Limiter::builder()
            .policy(Policy::new("at once", Concurrency::of(most)))
            .policy(Policy::new("rate", FixedWindow::per_hour(4_000)))
            .policy(Policy::new("both", Concurrency::of(2)))
            .build_local()
            .unwrap();
        let (service, start) = (
            Arc::new(Service::default()),
            Arc::new(Barrier::new(THREADS)),
        );
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (limiter, service, start) =
                    (limiter.clone(), Arc::clone(&service), Arc::clone(&start));
                thread::spawn(move || {
                    start.wait();
                    let mut passed = 0;
                    for _ in 0..2_000 {
                        let held = limiter.reserve("key", 1).now();
                        if held.is_allowed() {
                            passed += 1;
                            service.serve();
                        }
                    }
                    passed
                })
            })
            .collect();
        let passed: u32 = threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum();
        let seen = service.most.load(Ordering::SeqCst);
        assert!((1..=most.min(2)).contains(&seen), "{seen} of {most}");
        // Only requests that passed are charged, and none holds a slot.
        let used: Vec<_> = limiter
            .peek("key", 0)
            .now()
            .policies()
            .map(|(_, told)| told.used())
            .collect();
        assert_eq!(used, [0, passed, 0]);
    }
}

#[test]
fn policies_in_opposite_orders_do_not_wait_for_each_other() {
    let store = tower_ratelimit::MemoryStore::new();
    let build = |names: [&str; 2]| {
        let limiter =
            Limiter::builder().policies(names.map(|name| Policy::new(name, Concurrency::of(3))));
        let limiter = limiter.policy(Policy::new("rate", TokenBucket::per_second(1_000_000)));
        limiter.store(store.clone()).build_local().unwrap()
    };
    let threads: Vec<_> = [["a", "b"], ["b", "a"], ["a", "b"], ["b", "a"]]
        .map(build)
        .map(|limiter| {
            thread::spawn(move || {
                for _ in 0..5_000 {
                    let _ = limiter.reserve("key", 1).now();
                }
            })
        })
        .into();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(
        build(["a", "b"])
            .peek("key", 0)
            .now()
            .policies()
            .map(|(_, told)| told.used())
            .take(2)
            .max(),
        Some(0)
    );
}

/// A limiter asks for the outcomes, which say the same, so the backend is asked for its verdict.
#[test]
fn a_slot_that_is_not_free_denies_a_charge_unless_it_is_soft() {
    let backend = MemoryStore::new()
        .open(&[Policy::new("at once", Concurrency::of(1)).into()])
        .unwrap();
    let charge = || Charge::new(0, "key".into_key(), 1).holding(Slot::unique());
    assert!(backend.admit_now(&[charge().shadow()]));
    for _ in 0..2 {
        for left_out in [charge().shadow(), charge().soft()] {
            assert!(backend.admit_now(&[left_out]));
            let told = backend.charge_now(&[left_out]);
            let (_, outcome) = told.iter().next().unwrap();
            assert!(told.is_allowed() && !outcome.is_allowed());
            assert_eq!(
                (outcome.used(), outcome.is_shadow()),
                (1, left_out.is_shadow())
            );
        }
        assert!(!backend.admit_now(&[charge()]));
    }
}
