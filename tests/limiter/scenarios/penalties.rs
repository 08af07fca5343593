//! Penalties: the keys that are blocked, and the requests that count.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use tower_ratelimit::plan::Operations;
use tower_ratelimit::policy::{Mode, Modes, Penalty};
use tower_ratelimit::{
    Algorithm, AnchoredWindow, FixedWindow, LeakyQueue, Limiter, LocalLimiter, ManualClock,
    MemoryStore, Micros, Policy, TokenBucket,
};

use crate::scenarios::{HOUR, MINUTE, SECOND, START, every, quota};

fn limiter(policy: Policy) -> (ManualClock, LocalLimiter) {
    let clock = ManualClock::at(Micros::new(START));
    let store = MemoryStore::new().clock(clock.clone());
    let limiter = Limiter::builder().policy(policy).store(store).build_local();
    (clock, limiter.unwrap())
}

fn refused(policy: Policy) -> String {
    let built = Limiter::builder().policy(policy).build_local();
    built.unwrap_err().to_string()
}

/// Returns the least number of refusals that is accepted.
fn least(algorithm: Algorithm, within: Duration) -> Option<u32> {
    (1..=100).find(|refusals| {
        let policy = Policy::new("p", algorithm).penalty(Penalty::after(*refusals, within));
        Limiter::builder().policy(policy).build_local().is_ok()
    })
}

/// Sends one request after the other, as fast as it may, and returns how often it was blocked. It begins `early`
/// before the end of a window.
fn blocks_of_one_that_waits(policy: Policy, early: u64, costs: &[u32]) -> usize {
    let clock = ManualClock::at(Micros::new(START + 3_600_000_000 - early));
    let store = MemoryStore::new().clock(clock.clone());
    let limiter = Limiter::builder().policy(policy).store(store).build_local();
    let limiter = limiter.unwrap();
    let mut blocks = 0;
    for cost in costs.iter().copied().cycle().take(2_000) {
        let decision = limiter.check("ann", cost).now();
        blocks += usize::from(decision.binding().unwrap().1.is_blocked());
        clock.advance(decision.retry_after().unwrap_or_default() + Duration::from_micros(1));
    }
    blocks
}

#[test]
fn a_client_that_waits_as_it_is_told_is_never_blocked() {
    for within in [SECOND, 10 * SECOND, MINUTE, 3 * MINUTE] {
        let algorithms = every(quota(4, MINUTE)).chain([
            LeakyQueue::per_minute(4).places(2).into(),
            TokenBucket::per_minute(4).burst(7).by_interval().into(),
        ]);
        for algorithm in algorithms {
            let refusals = least(algorithm, within).unwrap();
            assert!(refusals >= 3, "{algorithm}: {refusals}");
            for early in [1, 4, 5_000_000, 30_000_000] {
                for costs in [&[1][..], &[2, 1, 1], &[3, 1, 4, 1, 1, 2]] {
                    let penalty = Penalty::after(refusals, within);
                    let policy = Policy::new("p", algorithm).penalty(penalty);
                    let blocks = blocks_of_one_that_waits(policy, early, costs);
                    assert_eq!(blocks, 0, "{algorithm}, {refusals} within {within:?}");
                }
            }
        }
    }
}

/// A penalty that the builder rejects could be reached; with one refusal less it is accepted.
#[test]
fn the_least_number_of_refusals_is_not_much_more_than_what_a_client_that_waits_reaches() {
    // The window ends, and after as many requests as the next one admits, a request is refused again.
    let clock = ManualClock::at(Micros::new(START - 10 + Micros::from(MINUTE).get()));
    let store = MemoryStore::new().clock(clock.clone());
    let limiter = Limiter::builder().policy(Policy::new("p", FixedWindow::per_minute(4)));
    let limiter = limiter.store(store).build_local().unwrap();
    let mut refusals = Vec::new();
    while refusals.len() < 2 {
        let decision = limiter.check("ann", 1).now();
        if let Some(wait) = decision.retry_after() {
            refusals.push(decision.at().unwrap());
            clock.advance(wait);
        }
        clock.advance(Duration::from_micros(1));
    }
    let apart = refusals[1].duration_since(refusals[0]).unwrap();
    assert!(apart < Duration::from_millis(1), "{apart:?}");
    assert_eq!(least(FixedWindow::per_minute(4).into(), SECOND), Some(3));
}

#[test]
fn a_penalty_that_cannot_be_is_refused_with_the_remedy() {
    let hourly = || Policy::new("p", FixedWindow::per_hour(5));
    let after = |refusals| Penalty::after(refusals, MINUTE);
    for (penalty, says) in [
        (after(0), "`refusals` cannot be 0: give 1 to 100"),
        (after(101), "`refusals` cannot be 101: give 1 to 100"),
        (
            Penalty::after(3, Duration::ZERO),
            "`within` cannot be zero: give a microsecond or more",
        ),
        (
            after(3).block(Duration::ZERO),
            "`block` cannot be zero: give a microsecond or more",
        ),
        (
            after(3).times(0),
            "`times` cannot be 0: give 1 or more: 1 makes all blocks equally long",
        ),
        (
            after(3).block(HOUR).up_to(MINUTE),
            "`up_to` cannot be 60s: give at least the first block, 3600s",
        ),
    ] {
        assert_eq!(refused(hourly().penalty(penalty)), says);
    }
    let soft = refused(hourly().soft().penalty(after(3)));
    assert_eq!(
        soft,
        "`penalty` cannot be \"p\": leave one out: a soft policy refuses no request"
    );
    {
        let waits = refused(hourly().wait_up_to(SECOND).penalty(after(3)));
        assert!(
            waits.starts_with("`penalty` cannot be \"p\": leave the penalty or"),
            "{waits}"
        );
    }
    #[cfg(feature = "calendar")]
    {
        let hours = tower_ratelimit::Hours::in_zone("UTC").unwrap();
        let hours = hours.at("22:00-06:00", FixedWindow::per_hour(9)).unwrap();
        let by_hours = refused(hourly().hours(&hours).unwrap().penalty(after(3)));
        assert!(
            by_hours.starts_with("`penalty` cannot be \"p\": leave the penalty or the hours out"),
            "{by_hours}"
        );
        assert!(
            by_hours.contains("a second policy of the same key without hours"),
            "{by_hours}"
        );
    }
    let fast = Policy::new("p", TokenBucket::per_second(50)).penalty(Penalty::after(50, MINUTE));
    let fast = refused(fast);
    assert!(
        fast.contains("give a shorter time than 60s, or a window"),
        "{fast}"
    );
}

#[test]
fn many_threads_that_guess_at_once_are_blocked_once_and_for_the_first_length() {
    const THREADS: usize = 8;
    for _ in 0..50 {
        let penalty = Penalty::after(4, MINUTE).block(MINUTE).times(10);
        let policy = Policy::new("p", AnchoredWindow::per_hour(5)).penalty(penalty);
        let (_, limiter) = limiter(policy);
        let start = Arc::new(Barrier::new(THREADS));
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (limiter, start) = (limiter.clone(), Arc::clone(&start));
                thread::spawn(move || {
                    start.wait();
                    (0..50)
                        .map(|_| limiter.check("ann", 1).now().is_allowed())
                        .filter(|it| *it)
                        .count()
                })
            })
            .collect();
        let passed: usize = threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum();
        assert_eq!(passed, 5);
        assert_eq!(limiter.inspect("ann").now().blocked_for(), Some(MINUTE));
    }
}

#[test]
fn a_refusal_of_another_policy_does_not_count() {
    let penalty = Penalty::after(1, SECOND);
    let store = MemoryStore::new().clock(ManualClock::new());
    let limiter = Limiter::builder()
        .policy(Policy::new("strict", AnchoredWindow::per_hour(1)))
        .policy(Policy::new("closed", FixedWindow::per_hour(0)).penalty(penalty))
        .store(store)
        .build_local()
        .unwrap();
    for _ in 0..3 {
        let _ = limiter.named([("strict", "ann", 1)]).unwrap().check().now();
    }
    assert_eq!(limiter.inspect("ann").now().blocked_for(), None);
    // A peek does not count, and neither does taking nothing.
    let _ = limiter.peek("ann", 1).now();
    assert_eq!(limiter.acquire_up_to("ann", 5).now().0, 0);
    assert_eq!(limiter.inspect("ann").now().blocked_for(), None);
    assert!(!limiter.admit("ann", 1).now());
    assert_eq!(limiter.inspect("ann").now().blocked_for(), Some(MINUTE));
    let text = limiter.inspect("ann").now().to_string();
    assert!(text.contains("closed: blocked for 1m"), "{text}");
}

#[test]
fn refusals_during_a_block_change_nothing_and_a_pardon_forgets_all() {
    let penalty = Penalty::after(2, HOUR).block(MINUTE).times(10);
    let closed = Policy::new("p", FixedWindow::per_hour(0)).penalty(penalty);
    let (clock, limiter) = limiter(closed);
    let blocked_for = || limiter.inspect("ann").now().blocked_for();
    for length in [MINUTE, 10 * MINUTE] {
        assert!(!limiter.admit("ann", 1).now());
        assert_eq!(blocked_for(), None);
        assert!(!limiter.admit("ann", 1).now());
        assert_eq!(blocked_for(), Some(length));
        clock.advance(length.saturating_sub(SECOND));
        for _ in 0..9 {
            assert!(!limiter.admit("ann", 1).now());
        }
        assert_eq!(blocked_for(), Some(SECOND));
        clock.advance(SECOND);
        assert_eq!(blocked_for(), None);
    }
    // In the middle of a block, and before one.
    for refusals in [2, 1] {
        for _ in 0..refusals {
            assert!(!limiter.admit("ann", 1).now());
        }
        limiter.unblock("ann").now();
        assert_eq!(blocked_for(), None);
    }
    assert!(!limiter.admit("ann", 1).now());
    assert_eq!(blocked_for(), None);
    assert!(!limiter.admit("ann", 1).now());
    assert_eq!(blocked_for(), Some(MINUTE));
}

#[test]
fn what_a_policy_in_shadow_would_refuse_does_not_count() {
    let modes = Modes::new();
    let penalty = Penalty::after(2, HOUR);
    let limiter = Limiter::builder()
        .policy(Policy::new("p", FixedWindow::per_hour(0)).penalty(penalty))
        .policy(Policy::new("other", FixedWindow::per_hour(0)))
        .store(MemoryStore::new().clock(ManualClock::new()))
        .modes(&modes)
        .build_local()
        .unwrap();
    modes.set("p", Mode::Shadow).unwrap();
    for _ in 0..9 {
        assert!(!limiter.admit("ann", 1).now());
    }
    modes.unset("p").unwrap();
    assert!(!limiter.admit("ann", 1).now());
    assert_eq!(limiter.inspect("ann").now().blocked_for(), None);
    assert!(!limiter.admit("ann", 1).now());
    assert_eq!(limiter.inspect("ann").now().blocked_for(), Some(MINUTE));
}

#[test]
fn limiters_over_one_store_count_refusals_of_one_policy_together() {
    let store = MemoryStore::new().clock(ManualClock::new());
    let build = || {
        let penalty = Penalty::after(3, SECOND);
        let policy = Policy::new("p", AnchoredWindow::per_hour(0)).penalty(penalty);
        Limiter::builder()
            .policy(policy)
            .store(store.clone())
            .build_local()
            .unwrap()
    };
    let (one, other) = (build(), build());
    assert!(!one.admit("ann", 1).now() && !other.admit("ann", 1).now());
    assert_eq!(one.inspect("ann").now().blocked_for(), None);
    assert!(!one.admit("ann", 1).now());
    assert_eq!(other.inspect("ann").now().blocked_for(), Some(MINUTE));
}

#[test]
fn an_operator_sees_the_refusals_that_count_and_not_only_the_block() {
    let penalty = Penalty::after(3, MINUTE).block(HOUR);
    let policy = Policy::new("login", AnchoredWindow::of(quota(2, HOUR))).penalty(penalty);
    let (clock, limiter) = limiter(policy);
    let told = || {
        let inspection = limiter.inspect("ann").now();
        let refusals: Vec<_> = inspection
            .refusals()
            .map(|(_, refusals)| refusals)
            .collect();
        (refusals, inspection.to_string())
    };
    assert_eq!(told(), (vec![0], "login: nothing of 2 used.\n".into()));
    assert!(limiter.check("ann", 2).now().is_allowed());
    for refusals in 1..=2 {
        assert!(!limiter.check("ann", 1).now().is_allowed());
        let (counting, text) = told();
        assert_eq!(counting, [refusals]);
        let sentence = format!(" Refused {refusals} of the 3 times that block it.\n");
        assert!(text.ends_with(&sentence), "{text}");
    }
    clock.advance(MINUTE);
    assert_eq!(told().0, [0]);
    for _ in 0..3 {
        assert!(!limiter.check("ann", 1).now().is_allowed());
    }
    let (counting, text) = told();
    assert_eq!(counting, [0]);
    assert!(text.starts_with("login: blocked for 1h"), "{text}");
    limiter.unblock("ann").now();
    assert_eq!(told().0, [0]);
}

#[test]
fn the_refusals_of_an_operation_are_told_about_its_key() {
    let operations = Operations::new().limit("search", AnchoredWindow::of(quota(1, HOUR)));
    let policy = Policy::new("api", AnchoredWindow::of(quota(9, HOUR)))
        .penalty(Penalty::after(3, MINUTE).block(HOUR))
        .operations(operations);
    let (_, limiter) = limiter(policy);
    let search = limiter.operation("search");
    assert!(search.admit("ann", 1).now() && !search.admit("ann", 1).now());
    let counting = |limiter: &LocalLimiter| {
        let inspection = limiter.inspect("ann").now();
        inspection.refusals().map(|(_, count)| count).sum::<u32>()
    };
    assert_eq!((counting(&search), counting(&limiter)), (1, 0));
}
