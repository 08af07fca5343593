//! A store in memory that gets more keys than it may keep.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tower_ratelimit::clock::Clock;
use tower_ratelimit::key::Key;
use tower_ratelimit::store::Usage;
use tower_ratelimit::{
    Algorithm, Decision, FixedWindow, Gcra, Limiter, LocalLimiter, ManualClock, MemoryStore,
    Micros, Policy, SlidingLog,
};

use crate::scenarios::{DAY, HOUR, MINUTE, START, every, longest_wait, quota};
use crate::support::driver::{Driver, Seen, Step, limiter_over};

/// A store with one policy, and a clock that the test sets.
struct Bounded {
    clock: ManualClock,
    store: MemoryStore,
    limiter: LocalLimiter,
}

impl Bounded {
    fn new(max_keys: usize, algorithm: Algorithm) -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::new().clock(clock.clone()).max_keys(max_keys);
        let limiter = limiter_over(&store, [("policy", algorithm)]);
        Self {
            clock,
            store,
            limiter,
        }
    }

    fn set(&self, at: u64) {
        self.clock.set_micros(Micros::new(at));
    }

    fn usage(&self) -> Usage {
        usage(&self.store, "policy")
    }

    /// Sends one request for each of these keys at this cost, and asserts that each is allowed and has its own entry.
    fn charge(&self, keys: impl IntoIterator<Item = u64>, cost: u32) {
        for key in keys {
            let (allowed, overflow) = asked(&self.limiter, key, cost);
            assert!(allowed, "key {key}");
            assert!(!overflow, "key {key} has no place of its own");
        }
    }
}

fn usage(store: &MemoryStore, policy: &str) -> Usage {
    let usage = store.usage();
    let found = usage.into_iter().find(|usage| usage.policy == policy);
    found.expect("the policy is open")
}

fn only(decision: &Decision) -> Seen {
    let (_, outcome) = decision.binding().expect("a policy was asked");
    Seen::from(outcome)
}

/// Returns whether it is allowed, and whether it was counted with others.
fn asked(limiter: &LocalLimiter, key: u64, cost: u32) -> (bool, bool) {
    let decision = limiter.check(key, cost).now();
    let overflow = decision
        .policies()
        .any(|(_, outcome)| outcome.is_overflow());
    (decision.is_allowed(), overflow)
}

fn used(limiter: &LocalLimiter, key: u64) -> u32 {
    let seen = only(&limiter.check(key, 0).now());
    seen.limit - seen.remaining
}

/// Keys that no test uses otherwise.
fn flood() -> impl Iterator<Item = u64> {
    1_000_000_000..
}

#[test]
fn a_flood_of_new_keys_takes_no_more_memory_than_the_bound() {
    let bounded = Bounded::new(10_000, Gcra::per_hour(10).into());
    bounded.charge(0..10_000, 1);
    let full = bounded.usage();
    assert_eq!(full.keys, 10_000);
    for key in flood().take(1_000_000) {
        assert_eq!(asked(&bounded.limiter, key, 1), (true, false));
        if key % 1_000 == 0 {
            assert!(bounded.usage().keys <= 10_000);
        }
    }
    let after = bounded.usage();
    assert_eq!(after.keys, 10_000);
    assert_eq!(after.evicted, 1_000_000);
    let grown = after.bytes.abs_diff(full.bytes);
    assert!(
        grown * 100 <= full.bytes,
        "{} bytes have become {}",
        full.bytes,
        after.bytes
    );
}

/// A client that floods the store with other keys does not get its key evicted.
#[test]
fn a_flood_of_other_keys_frees_no_key_that_is_refused() {
    for algorithm in every(quota(5, DAY)) {
        let bounded = Bounded::new(1_000, algorithm);
        // Otherwise a new window would begin in the middle of the flood.
        bounded.set(START + 1);
        bounded.charge(0..500, 5);
        for (count, key) in flood().take(20_000).enumerate() {
            let (_, overflow) = asked(&bounded.limiter, key, 1);
            assert!(!overflow, "{algorithm}: 500 places are left");
            let refused = count as u64 % 500;
            let (allowed, _) = asked(&bounded.limiter, refused, 1);
            assert!(!allowed, "{algorithm}: {refused} got free");
        }
        let usage = bounded.usage();
        assert!(usage.keys <= 1_000, "{algorithm}: {usage:?}");
        assert_eq!(usage.evicted, 20_000 - 500, "{algorithm}");
    }
}

#[test]
fn when_every_key_is_refused_newcomers_share_one_limit() {
    for algorithm in every(quota(3, HOUR)) {
        let bounded = Bounded::new(200, algorithm);
        bounded.charge(0..200, 3);
        let newcomers: Vec<_> = flood()
            .take(100)
            .map(|key| asked(&bounded.limiter, key, 1))
            .collect();
        assert!(newcomers.iter().all(|(_, overflow)| *overflow));
        let admitted = newcomers.iter().filter(|(allowed, _)| *allowed).count();
        assert_eq!(admitted, 3, "{algorithm}");
        let usage = bounded.usage();
        assert_eq!(usage.overflowed, 3, "{algorithm}");
        assert_eq!((usage.keys, usage.evicted), (200, 0), "{algorithm}");
        assert!((0..200).all(|key| !asked(&bounded.limiter, key, 1).0));
    }
}

#[test]
fn newcomers_get_places_of_their_own_as_soon_as_a_key_is_no_longer_refused() {
    for algorithm in every(quota(3, HOUR)) {
        let bounded = Bounded::new(200, algorithm);
        let at = START + 1;
        bounded.set(at);
        bounded.charge(0..100, 3);
        let retry = only(&bounded.limiter.check(0_u64, 1).now()).retry_after;
        let late = at + retry.unwrap() - 1;
        bounded.set(late);
        bounded.charge(100..200, 3);
        let mut refused = Step::new(algorithm);
        assert!(refused.decide(late, 3).allowed);
        assert_eq!(asked(&bounded.limiter, 300, 1), (true, true), "{algorithm}");

        bounded.set(late + 1);
        for newcomer in flood().take(100) {
            let (allowed, overflow) = asked(&bounded.limiter, newcomer, 3);
            assert!(allowed && !overflow, "{algorithm}: {newcomer}");
        }
        // The others are refused for as long as if they were alone.
        let expected = refused.decide(late + 1, 1);
        if !expected.allowed {
            for key in 100..200_u64 {
                let seen = only(&bounded.limiter.check(key, 1).now());
                assert_eq!(seen, expected, "{algorithm}: {key}");
            }
        }
    }
}

#[test]
fn empty_and_constant_keys_are_keys_as_others_are() {
    let bounded = Bounded::new(100, FixedWindow::per_day(2).into());
    let limiter = &bounded.limiter;
    let allowed = |decision: Decision| decision.is_allowed();
    for _ in 0..2 {
        assert!(allowed(limiter.check("", 1).now()));
        assert!(allowed(limiter.check(Key::MISSING, 1).now()));
        assert!(allowed(limiter.check(0_u64, 1).now()));
    }
    for key in flood().take(10_000) {
        assert!(asked(limiter, key, 1).0);
        assert!(!allowed(limiter.check("", 1).now()));
        assert!(!allowed(limiter.check(Key::MISSING, 1).now()));
        assert!(!allowed(limiter.check(0_u64, 1).now()));
    }
    assert_eq!(bounded.usage().keys, 100);
}

#[test]
fn one_key_takes_one_place_however_often_it_comes() {
    for algorithm in every(quota(1_000, DAY)) {
        let bounded = Bounded::new(100, algorithm);
        for _ in 0..5_000 {
            let _ = bounded.limiter.check("", 1).now();
        }
        let usage = bounded.usage();
        assert_eq!((usage.keys, usage.evicted), (1, 0), "{algorithm}");
    }
}

/// Keys that are as good as new make room for others, though no sweep removes them.
#[test]
fn the_places_of_idle_keys_are_used_again() {
    for algorithm in every(quota(5, MINUTE)) {
        let bounded = Bounded::new(1_000, algorithm);
        for round in 0..5 {
            bounded.set(START + round * longest_wait(algorithm));
            bounded.charge(round * 1_000..(round + 1) * 1_000, 5);
            let usage = bounded.usage();
            assert_eq!(usage.keys, 1_000, "{algorithm}");
            assert_eq!(usage.evicted, 0, "{algorithm}");
        }
    }
}

/// A newcomer to a full store evicts the idle keys of a page or two, and not all of them.
#[test]
fn a_newcomer_to_a_full_store_does_not_sweep_it() {
    let bounded = Bounded::new(10_000, Gcra::per_minute(5).into());
    bounded.charge(0..10_000, 5);
    bounded.clock.advance(MINUTE);
    let mut before = bounded.usage().keys;
    for newcomer in flood().take(10_000) {
        bounded.charge([newcomer], 1);
        let after = bounded.usage().keys;
        assert!(before.saturating_sub(after) < 300, "{before} to {after}");
        before = after;
    }
}

/// There is no background task to stop or to wait for.
#[test]
fn a_clone_that_is_dropped_stops_nothing() {
    let bounded = Bounded::new(100, Gcra::per_minute(5).into());
    for round in 0..10 {
        let clone = bounded.limiter.clone();
        drop(clone);
        drop(limiter_over(
            &bounded.store,
            [("policy", Gcra::per_minute(5).into())],
        ));
        bounded.charge(round * 100..(round + 1) * 100, 5);
        bounded.clock.advance(MINUTE);
    }
    assert_eq!(bounded.usage().evicted, 0);
}

#[test]
fn up_to_the_bound_no_key_is_forgotten() {
    for algorithm in every(quota(5, DAY)) {
        for bound in [1, 15, 64, 1_000, 5_000] {
            let bounded = Bounded::new(bound, algorithm);
            let bound = bound as u64;
            bounded.charge(0..bound, 2);
            bounded.charge(0..bound, 1);
            for key in 0..bound {
                assert_eq!(
                    used(&bounded.limiter, key),
                    3,
                    "{algorithm}: {key} of {bound}"
                );
            }
            let usage = bounded.usage();
            assert_eq!(usage.keys as u64, bound, "{algorithm}");
            assert_eq!((usage.evicted, usage.overflowed), (0, 0));
        }
    }
}

#[test]
fn keys_that_are_as_good_as_new_go_before_any_that_has_used_something() {
    for algorithm in every(quota(5, MINUTE)) {
        let bounded = Bounded::new(1_000, algorithm);
        bounded.charge(0..500, 4);
        let later = START + longest_wait(algorithm);
        bounded.set(later);
        bounded.charge(500..1_000, 4);
        // The threads find the 500 idle keys, wherever these are.
        bounded.charge(flood().take(500), 1);
        let usage = bounded.usage();
        assert_eq!((usage.keys, usage.evicted), (1_000, 0), "{algorithm}");
        for key in 500..1_000 {
            assert_eq!(used(&bounded.limiter, key), 4, "{algorithm}: {key}");
        }
    }
}

/// Each of thousands of keys may be idle, as far as the index knows.
#[test]
fn while_a_key_can_go_no_request_shares() {
    let bounded = Bounded::new(10_000, Gcra::per_minute(10).into());
    bounded.charge(0..10_000, 1);
    bounded.clock.advance(Duration::from_secs(1));
    bounded.charge(0..10_000, 6);
    // By now, a first charge alone would be forgotten.
    bounded.clock.advance(Duration::from_secs(6));
    bounded.charge(flood().take(1_000), 1);
}

/// Ten thousand keys, one of which has units left: it is found at once, wherever it is.
#[test]
fn the_only_key_that_can_go_goes() {
    let bounded = Bounded::new(10_000, Gcra::per_day(10).into());
    bounded.charge(0..10_000, 1);
    bounded.charge(1..10_000, 9);
    let newcomer = 1_000_000;
    assert_eq!(asked(&bounded.limiter, newcomer, 1), (true, false));
    assert_eq!(bounded.usage().evicted, 1);
    assert_eq!(used(&bounded.limiter, 0), 0);
    assert_eq!(used(&bounded.limiter, 1), 10);
}

/// Shows an earlier time once, as for a thread that reads the clock and is then suspended.
#[derive(Clone)]
struct Late {
    clock: ManualClock,
    late: Arc<AtomicBool>,
}

impl Clock for Late {
    fn now(&self) -> Micros {
        let now = self.clock.now();
        let late = self.late.swap(false, Ordering::SeqCst);
        Micros::new(now.get() - u64::from(late))
    }
}

/// A newcomer that makes room, or grows the table, looks at pages that others have charged since it read the clock.
/// By its clock the new window had not begun, so nothing in it counted, and refused keys were evicted as idle.
#[test]
fn a_thread_that_is_late_forgets_nothing_that_was_charged_since() {
    for algorithm in every(quota(5, MINUTE)) {
        let clock = Late {
            clock: ManualClock::new(),
            late: Arc::default(),
        };
        let store = MemoryStore::new().clock(clock.clone()).max_keys(5_000);
        let limiter = limiter_over(&store, [("policy", algorithm)]);
        for key in 0..1_250 {
            assert!(asked(&limiter, key, 5).0);
        }
        clock
            .clock
            .advance(Duration::from_micros(longest_wait(algorithm)));
        for key in 0..8 {
            assert!(asked(&limiter, key, 5).0, "{algorithm}");
        }
        for newcomer in flood().take(3_700) {
            clock.late.store(true, Ordering::SeqCst);
            assert!(asked(&limiter, newcomer, 5).0, "{algorithm}");
        }
        clock.late.store(false, Ordering::SeqCst);
        for key in 0..8 {
            assert!(!asked(&limiter, key, 1).0, "{algorithm}: {key}");
        }
    }
}

#[test]
fn a_step_back_of_the_clock_loses_no_places() {
    for algorithm in every(quota(10, MINUTE)) {
        let bounded = Bounded::new(100, algorithm);
        for round in 0..20 {
            let start = START + round * longest_wait(algorithm);
            for after in (0..10).chain([0]) {
                bounded.set(start + after);
                let _ = asked(&bounded.limiter, round, 1);
            }
        }
        bounded.set(START + 20 * longest_wait(algorithm));
        bounded.charge(flood().take(100), 10);
        let usage = bounded.usage();
        assert_eq!((usage.keys, usage.evicted), (100, 0), "{algorithm}");
    }
}

#[test]
fn the_entries_of_a_log_count_as_keys_do() {
    let bounded = Bounded::new(100, SlidingLog::per_minute(50).into());
    for after in 0..10 {
        bounded.set(START + after);
        bounded.charge([1, 2], 1);
        // Requests at the same moment are one entry.
        bounded.charge([1, 2], 1);
        assert_eq!(bounded.usage().keys as u64, 2 * (after + 1));
    }
    bounded.set(START + longest_wait(SlidingLog::per_minute(50).into()) + 4);
    bounded.charge([1], 1);
    // Five of the entries are a minute old, and one is new; the other key does not know yet.
    assert_eq!(bounded.usage().keys, 10 + 5 + 1);
}

#[test]
fn at_the_bound_a_log_counts_its_last_requests_together_and_admits_no_more() {
    let minute = longest_wait(SlidingLog::per_minute(50).into());
    let bounded = Bounded::new(10, SlidingLog::per_minute(50).into());
    for after in 0..50 {
        bounded.set(START + after);
        bounded.charge([1], 1);
        assert!(bounded.usage().keys <= 10);
    }
    assert_eq!(asked(&bounded.limiter, 1, 1), (false, false));
    assert_eq!(bounded.usage().keys, 10);
    // Keys with their own entry return in turn, the others with the last.
    let mut admitted = 0;
    for after in 0..50 {
        bounded.set(START + minute + after);
        admitted += u64::from(asked(&bounded.limiter, 1, 1).0);
        assert!(admitted <= after + 1, "after {after} µs");
        assert!(bounded.usage().keys <= 10);
    }
    bounded.set(START + 2 * minute + 50);
    assert_eq!(used(&bounded.limiter, 1), 0);
}

#[test]
fn a_policy_without_room_shares_and_the_others_do_not() {
    for order in [["full", "free"], ["free", "full"]] {
        let clock = ManualClock::new();
        let store = MemoryStore::new().clock(clock.clone()).max_keys(100);
        let algorithm: Algorithm = Gcra::per_day(5).into();
        let both = limiter_over(&store, order.map(|name| (name, algorithm)));
        let full = limiter_over(&store, [("full", algorithm)]);
        let free = limiter_over(&store, [("free", algorithm)]);
        for key in 0..100_u64 {
            assert!(full.check(key, 5).now().is_allowed());
        }

        let mut admitted = 0;
        for newcomer in flood().take(1_000) {
            let decision = both.check(newcomer, 1).now();
            for (name, outcome) in decision.policies() {
                assert_eq!(outcome.is_overflow(), name == "full");
            }
            admitted += u32::from(decision.is_allowed());
            let charged = only(&free.check(newcomer, 0).now());
            assert_eq!(charged.remaining == 4, decision.is_allowed(), "all or none");
        }
        assert_eq!(admitted, 5);
        assert_eq!(usage(&store, "full").keys, 100);
        assert_eq!(usage(&store, "full").overflowed, 5);
        assert!(usage(&store, "free").keys <= 100);

        // Denied requests take no room: there is room for 95 others.
        for key in 0..95_u64 {
            assert_eq!(asked(&free, key, 1), (true, false), "{key}");
        }
        let usage = usage(&store, "free");
        assert_eq!((usage.keys, usage.evicted), (100, 0));
        for key in (0..95).chain(flood().take(5)) {
            assert_eq!(used(&free, key), 1, "{key}");
        }
    }
}

#[test]
fn a_number_of_keys_that_cannot_be_is_refused() {
    for max_keys in [0, 100_000_001, usize::MAX] {
        let policy = Policy::new("a", FixedWindow::per_day(5));
        let store = MemoryStore::new().max_keys(max_keys);
        let error = Limiter::builder()
            .policy(policy)
            .store(store)
            .build_local()
            .unwrap_err();
        assert_eq!(error.field(), "max_keys");
        assert_eq!(error.value(), max_keys.to_string());
        assert_eq!(error.remedy(), "give a number from 1 to 100,000,000");
    }
}
