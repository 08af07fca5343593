//! Limits by key and by operation.

use tower_ratelimit::plan::Operations;
use tower_ratelimit::{FixedWindow, Limiter, ManualClock, MemoryStore, Policy};

use super::{by_key, rules, told};

#[test]
fn the_exact_key_comes_first_then_the_longest_prefix_then_other() {
    let limits = by_key().other(FixedWindow::per_minute(5));
    let policy = Policy::new("minute", FixedWindow::per_minute(1)).key_limits(limits);
    let limiter = Limiter::builder().policy(policy).build_local().unwrap();
    for (key, limit, rule) in [
        ("partner-ann", 500, r#"key "partner-ann""#),
        ("partner-bob", 100, r#"prefix "partner-""#),
        ("partner-eu-7", 200, r#"prefix "partner-eu-""#),
        ("partner", 5, "other keys"),
        ("ann", 5, "other keys"),
    ] {
        let decision = limiter.check(key, 1).now();
        assert_eq!(told(&decision), [("minute", limit, limit - 1)], "{key}");
        assert_eq!(rules(&decision), [rule]);
    }
    assert_eq!(told(&limiter.check("internal-7", 9).now()), []);
    // A number is no text.
    assert_eq!(told(&limiter.check(7_u32, 1).now()), [("minute", 5, 4)]);
}

#[test]
fn an_operation_has_a_state_of_its_own_and_invented_ones_share_one() {
    let clock = ManualClock::new();
    let operations = Operations::new()
        .limit("read", FixedWindow::per_minute(100))
        .limit("write", FixedWindow::per_minute(10))
        .other(FixedWindow::per_minute(50));
    let policy = Policy::new("api", FixedWindow::per_minute(7)).operations(operations);
    let limiter = Limiter::builder()
        .policy(policy)
        .store(MemoryStore::new().clock(clock))
        .build_local()
        .unwrap();
    assert!(
        limiter
            .operation("write")
            .check("ann", 10)
            .now()
            .is_allowed()
    );
    assert!(
        !limiter
            .operation("write")
            .check("ann", 1)
            .now()
            .is_allowed()
    );
    assert!(
        limiter
            .operation("write")
            .check("bob", 10)
            .now()
            .is_allowed()
    );
    let read = limiter.operation("read").check("ann", 1).now();
    assert_eq!(told(&read), [("api", 100, 99)]);
    assert_eq!(rules(&read), ["operation read"]);
    let admitted = (0..100).filter(|name| {
        let invented = limiter.operation(format!("invented-{name}"));
        invented.check("ann", 1).now().is_allowed()
    });
    assert_eq!(admitted.count(), 50);
    // A request without an operation is one of the others.
    let other = limiter.check("ann", 0).now();
    assert_eq!(told(&other), [("api", 50, 0)]);
    assert_eq!(rules(&other), ["other operations"]);
}
