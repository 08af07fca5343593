//! Limits by closure.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tower_ratelimit::key::Key;
use tower_ratelimit::plan::KeyLimits;
use tower_ratelimit::{
    Algorithm, AnchoredWindow, FixedWindow, Limiter, ManualClock, MemoryStore, Policy,
};

use super::{plans, rules, told};

#[test]
fn a_closure_gives_the_limit_of_a_key_and_comes_before_tables_and_plans() {
    let minute = AnchoredWindow::per_minute;
    let policy = Policy::new("minute", minute(10))
        .key_limits(
            KeyLimits::new()
                .key("both", minute(30))
                .key("table", minute(40)),
        )
        .limit_by(move |key| match key.to_text().as_deref() {
            Some("both" | "closure") => Some(Algorithm::from(minute(20))),
            Some("unlimited") => Some(Algorithm::Unlimited),
            Some("its own") => Some(minute(10).into()),
            Some("never") => Some(minute(0).into()),
            Some("another period") => Some(AnchoredWindow::per_day(50).into()),
            _ => None,
        });
    let limiter = Limiter::builder()
        .policy(policy)
        .policy(Policy::new("day", AnchoredWindow::per_day(100)))
        .plans(plans(), |_| Some("pro"))
        .build_local()
        .unwrap();
    for (key, limit, rule) in [
        ("both", 20, "closure"),
        ("closure", 20, "closure"),
        ("its own", 10, "closure"),
        ("table", 40, "key \"table\""),
        ("another", 100, "plan pro"),
        ("another period", 100, "plan pro"),
    ] {
        let decision = limiter.check(key, 1).now();
        let day = ("day", 10_000, 9_999);
        assert_eq!(told(&decision), [("minute", limit, limit - 1), day]);
        assert_eq!(rules(&decision), [rule, "plan pro"]);
    }
    assert_eq!(told(&limiter.check("unlimited", 1).now()).len(), 1);
    let denied = limiter.check("never", 1).now();
    assert_eq!((denied.is_allowed(), denied.retry_after()), (false, None));
}

#[test]
fn a_limit_of_a_closure_that_changes_keeps_what_was_used() {
    let limit = Arc::new(AtomicU32::new(5));
    let read = Arc::clone(&limit);
    let by = move |_: &Key| Some(FixedWindow::per_minute(read.load(Ordering::Relaxed)));
    let limiter = Limiter::builder()
        .policy(Policy::new("minute", FixedWindow::per_minute(1)).limit_by(by))
        .store(MemoryStore::new().clock(ManualClock::new()))
        .build_local()
        .unwrap();
    assert!(limiter.check("ann", 5).now().is_allowed());
    for (number, left) in [(2, 0), (100, 94), (5, 0), (7, 0), (9, 1)] {
        limit.store(number, Ordering::Relaxed);
        assert_eq!(
            limiter.check("ann", 1).now().is_allowed(),
            left > 0 || number == 7
        );
        assert_eq!(
            told(&limiter.peek("ann", 0).now()),
            [("minute", number, left)]
        );
    }
    // More limits than a store prepares.
    for number in 10..200 {
        limit.store(number, Ordering::Relaxed);
        assert_eq!(
            told(&limiter.check("ann", 1).now()),
            [("minute", number, 1)]
        );
    }
}

#[test]
fn nodes_divide_the_limits_of_closures() {
    let limiter = Limiter::builder()
        .policy(
            Policy::new("minute", FixedWindow::per_minute(10))
                .limit_by(|_| Some(FixedWindow::per_minute(100))),
        )
        .nodes(4)
        .build_local()
        .unwrap();
    assert_eq!(told(&limiter.check("ann", 1).now()), [("minute", 25, 24)]);
}
