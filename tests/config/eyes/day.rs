//! Memory stays flat, however many decisions are counted. `make day` has the long form.

use std::time::Duration;

use tower_ratelimit::policy::TopKeys;
use tower_ratelimit::{Gcra, Limiter, LocalLimiter, ManualClock, MemoryStore, Policy};

/// This many decisions, half of them for keys that occur once, with a snapshot for each second.
fn seconds(limiter: &LocalLimiter, clock: &ManualClock, seconds: std::ops::Range<u32>) {
    for second in seconds {
        for number in 0..100_u32 {
            let _ = limiter.check(number, 1).now();
            let _ = limiter.check(("new", 100 * second + number), 1).now();
        }
        clock.advance(Duration::from_secs(1));
        drop(limiter.snapshot());
    }
}

#[test]
fn an_hour_of_decisions_leaves_no_memory_behind() {
    let clock = ManualClock::new();
    let policy = Policy::new("all", Gcra::per_second(1).burst(2));
    let limiter = Limiter::builder()
        .policy(policy.top_keys(TopKeys::new(20)))
        .store(MemoryStore::new().max_keys(2_048).clock(clock.clone()))
        .build_local()
        .unwrap();
    // Until the store is full and both sketches exist.
    seconds(&limiter, &clock, 0..700);
    let measured = allocation_counter::measure(|| seconds(&limiter, &clock, 700..3_600));
    assert!(measured.bytes_current.abs() < 16_384, "{measured:?}");

    let snapshot = limiter.snapshot();
    let all = snapshot.policy("all").unwrap();
    assert_eq!(all.allowed + all.refused, 720_000);
    let heaviest = all.heaviest.as_ref().unwrap();
    assert_eq!(heaviest.keys.len(), 20);
    assert!(heaviest.total <= 240_000);
    // The hundred known keys occur once in each second, and all other keys occur once.
    let at_least = heaviest.keys.iter().map(|key| key.cost - key.error);
    assert!(at_least.min() > Some(400), "{heaviest:?}");
}
