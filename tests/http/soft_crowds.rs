//! Soft policies under threads, and where a store has no room.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use tower_ratelimit::{FixedWindow, Limiter, ManualClock, MemoryStore, Policy, SlidingLog};

/// Exactly this many requests are within the soft limit, and exactly this many pass, in any order.
#[test]
fn many_threads_pass_and_are_marked_exactly_as_the_limits_say() {
    let (soft, hard, attempts) = (300_u16, 700_u32, 500);
    let limiter = Limiter::builder()
        .policy(Policy::new("log", SlidingLog::per_hour(soft)).soft())
        .policy(Policy::new("window", FixedWindow::per_hour(hard)))
        .policy(Policy::new("wide", FixedWindow::per_hour(u32::from(soft) + 1)).soft())
        .store(MemoryStore::new().clock(ManualClock::new()))
        .build_local()
        .unwrap();
    let (within, passed) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..attempts {
                    let decision = limiter.check("ann", 1).now();
                    if decision.is_allowed() {
                        passed.fetch_add(1, Ordering::Relaxed);
                        if decision.over_limit().count() == 0 {
                            within.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    assert_eq!(within.into_inner(), u32::from(soft));
    assert_eq!(passed.into_inner(), hard);
}

#[test]
fn newcomers_without_room_are_counted_together_softly_and_hard() {
    let limiter = Limiter::builder()
        .policy(Policy::new("soft", FixedWindow::per_hour(1)).soft())
        .policy(Policy::new("hard", FixedWindow::per_hour(2)))
        .store(MemoryStore::new().clock(ManualClock::new()).max_keys(1))
        .build_local()
        .unwrap();
    for key in 0..1_000_u32 {
        let allowed: Vec<_> = (0..4).map(|_| limiter.check(key, 1).now()).collect();
        assert!(allowed.iter().filter(|of| of.is_allowed()).count() <= 2);
        assert!(!allowed[3].is_allowed());
    }
}
