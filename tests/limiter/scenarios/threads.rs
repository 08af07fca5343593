use std::sync::mpsc;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use tower_ratelimit::{Algorithm, FixedWindow, Gcra, LocalLimiter, ManualClock, MemoryStore};

use crate::scenarios::{HOUR, every, quota};
use crate::support::driver::{limiter, limiter_over};

const THREADS: u32 = 8;

/// Sends requests from many threads at once, this many from each, and returns how many were allowed in all.
fn allowed_at_once(limiters: &[LocalLimiter], asks: u32) -> u32 {
    let start = Arc::new(Barrier::new(THREADS as usize));
    let (report, reports) = mpsc::channel();
    for limiter in limiters.iter().cycle().take(THREADS as usize) {
        let (limiter, start, report) = (limiter.clone(), Arc::clone(&start), report.clone());
        thread::spawn(move || {
            start.wait();
            let allowed = (0..asks).filter(|_| limiter.check("key", 1).now().is_allowed());
            report.send(allowed.count()).expect("somebody listens");
        });
    }
    let deadlock = Duration::from_secs(60);
    let each = (0..THREADS).map(|_| {
        let allowed = reports
            .recv_timeout(deadlock)
            .expect("no thread waits for ever");
        u32::try_from(allowed).unwrap()
    });
    each.sum()
}

#[test]
fn many_threads_admit_exactly_the_limit() {
    for algorithm in every(quota(1_000, HOUR)) {
        let limiter = limiter(&ManualClock::new(), [("policy", algorithm)]);
        let allowed = allowed_at_once(&[limiter], 250);
        assert_eq!(allowed, 1_000, "{algorithm}");
    }
}

#[test]
fn policies_in_opposite_orders_wait_for_no_request_and_admit_exactly_the_least_limit() {
    for round in 0..20 {
        let store = MemoryStore::new().clock(ManualClock::new());
        let mut policies: Vec<(String, Algorithm)> = every(quota(1_000, HOUR))
            .enumerate()
            .map(|(place, algorithm)| (format!("policy {place}"), algorithm))
            .collect();
        policies.push(("least".into(), Gcra::per_day(100 + round).into()));
        let one_way = limiter_over(&store, policies.clone());
        policies.reverse();
        let the_other_way = limiter_over(&store, policies.clone());

        let allowed = allowed_at_once(&[one_way, the_other_way.clone()], 50);
        assert_eq!(allowed, 100 + round);
        let decision = the_other_way.check("key", 0).now();
        for ((name, outcome), (declared, _)) in decision.policies().zip(policies) {
            assert_eq!(name, declared);
            assert_eq!(outcome.used(), 100 + round, "{name}");
        }
    }
}

#[test]
fn limiters_that_share_some_policies_share_those_alone() {
    let store = MemoryStore::new().clock(ManualClock::new());
    let shared = ("shared", FixedWindow::per_hour(300).into());
    let first = limiter_over(&store, [("own", FixedWindow::per_hour(200).into()), shared]);
    let second = limiter_over(&store, [shared, ("own", FixedWindow::per_day(200).into())]);
    let allowed = allowed_at_once(&[first.clone(), second.clone()], 100);
    assert_eq!(allowed, 300);
    let used = |limiter: &LocalLimiter, name| {
        let decision = limiter.check("key", 0).now();
        let mut policies = decision.policies();
        let (_, outcome) = policies.find(|(other, _)| *other == name).unwrap();
        outcome.used()
    };
    assert_eq!(used(&first, "shared"), 300);
    assert_eq!(used(&first, "own") + used(&second, "own"), 300);
}
