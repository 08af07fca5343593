//! Mistakes in plans and tables.

use tower_ratelimit::factor::FactorCell;
use tower_ratelimit::plan::{Operations, Plan, Plans};
use tower_ratelimit::{AnchoredWindow, FixedWindow, Limiter, Policy};

use super::{by_key, error, plans};

#[test]
fn a_mistake_in_plans_is_named() {
    let none: [Plan; 0] = [];
    for (plans, text) in [
        (
            Plans::new(none),
            "`plans` cannot be empty: add a plan, `Plan::new(name).limit(policy, algorithm)`",
        ),
        (
            Plans::new([Plan::new("free"), Plan::new("free")]),
            r#"`plan` cannot be "free": give each plan a name of its own"#,
        ),
        (
            Plans::new([Plan::new("free").unlimited("hour")]),
            r#"`policy` cannot be "hour": plan "free" speaks of it, and the policies are minute, day"#,
        ),
        (
            Plans::new([Plan::new("free").unlimited("day").unlimited("day")]),
            r#"`policy` cannot be "day": let plan "free" give it one limit"#,
        ),
        (
            Plans::new([Plan::new("free").limit("day", AnchoredWindow::per_hour(5))]),
            "`limit` cannot be anchored-window 5/hour: give policy \"day\" one that differs from its own, \
             anchored-window 100/day, in its numbers alone, not in its kind or its period",
        ),
        (
            plans().default_plan("gold"),
            r#"`default_plan` cannot be "gold": name one of free, pro, enterprise, trial, nothing"#,
        ),
    ] {
        assert_eq!(error(plans), text);
    }
}

#[test]
fn entries_of_equal_rank_are_a_mistake_that_names_them() {
    let error = |policy: Policy| {
        let built = Limiter::builder().policy(policy).build();
        built.unwrap_err().to_string()
    };
    let policy = || Policy::new("minute", FixedWindow::per_minute(1));
    let one = FixedWindow::per_minute(5);
    assert_eq!(
        error(policy().key_limits(by_key().key("partner-ann", one))),
        r#"`key` cannot be "partner-ann": let one entry of policy "minute" speak of it: two give it a limit"#,
    );
    assert_eq!(
        error(policy().key_limits(by_key().prefix("partner-", one))),
        r#"`prefix` cannot be "partner-": let one entry of policy "minute" speak of it: two give it a limit"#,
    );
    assert_eq!(
        error(policy().key_limits(by_key().prefix("", one))),
        r#"`prefix` cannot be "": give it a character, or use `other` for all other keys"#,
    );
    let twice = Operations::new().limit("read", one).limit("read", one);
    assert_eq!(
        error(policy().operations(twice)),
        r#"`operation` cannot be "read": let one entry of policy "minute" speak of it: two give it a limit"#,
    );
    assert_eq!(
        error(policy().operations(Operations::new())),
        "`operations` cannot be empty: name an operation, `Operations::new().limit(\"read\", algorithm)`",
    );
}

#[test]
fn a_limit_of_a_plan_that_a_factor_cannot_scale_is_a_mistake() {
    let policy = Policy::new("minute", FixedWindow::per_minute(10)).factor(&FactorCell::new());
    let plan = Plan::new("huge").limit("minute", FixedWindow::per_minute(3_000_000));
    let built = Limiter::builder()
        .policy(policy)
        .plans_by_name(Plans::new([plan]))
        .build();
    let error = built.unwrap_err();
    assert_eq!(error.field(), "limit");
    assert!(error.remedy().contains("at most 2147483"), "{error}");
}
