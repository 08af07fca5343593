//! The limits of the plan of a request.

use std::time::Duration;

use tower_ratelimit::decision::LimitRule;
use tower_ratelimit::plan::{Plan, Plans};
use tower_ratelimit::{
    AnchoredWindow, LeakyQueue, Limiter, ManualClock, MemoryStore, Policy, TokenBucket,
};

use super::{limiter, minute_and_day, plans, rules, told};
use crate::scenarios::DAY;

#[test]
fn a_request_has_the_limits_of_its_plan_under_all_policies() {
    let (_, limiter) = limiter();
    let decision = limiter.check("pro-ann", 1).now();
    assert_eq!(
        told(&decision),
        [("minute", 100, 99), ("day", 10_000, 9_999)]
    );
    assert_eq!(rules(&decision), ["plan pro", "plan pro"]);
    let decision = limiter.check("bob", 1).now();
    assert_eq!(told(&decision), [("minute", 10, 9), ("day", 100, 99)]);
    assert_eq!(decision.rule(), Some(LimitRule::Plan("free".into())));
}

#[test]
fn an_inspection_tells_the_rule_that_gave_each_limit() {
    let (_, limiter) = limiter();
    let more = AnchoredWindow::per_minute(500);
    limiter
        .override_limit("minute", "pro-ann", more, DAY)
        .unwrap()
        .now()
        .unwrap();
    let inspection = limiter.inspect("pro-ann").now();
    let rules: Vec<_> = inspection.rules().collect();
    let plan = LimitRule::Plan("pro".into());
    assert_eq!(rules, [("minute", LimitRule::Override), ("day", plan)]);
    assert_eq!(
        inspection.to_string(),
        "minute: nothing of 500 used. That limit is its own for a while.\n\
         day: nothing of 10000 used. Limit by plan pro.\n"
    );
    // The limit of the policy needs no word.
    let one = Limiter::builder().policy(Policy::new("minute", more));
    let inspection = one.build_local().unwrap().inspect("ann").now();
    assert_eq!(inspection.to_string(), "minute: nothing of 500 used.\n");
}

#[test]
fn an_unlimited_policy_and_one_that_the_plan_leaves_out_count_nothing() {
    let (_, limiter) = limiter();
    let decision = limiter.plan("enterprise").check("ann", 500).now();
    assert_eq!(told(&decision), [("day", 1_000_000, 999_500)]);
    let decision = limiter.plan("trial").check("ann", 1).now();
    assert_eq!(told(&decision), [("minute", 10, 9)]);
}

#[test]
fn a_limit_of_0_denies_with_no_wait() {
    let (_, limiter) = limiter();
    let decision = limiter.plan("nothing").check("ann", 1).now();
    assert!(!decision.is_allowed());
    assert_eq!(decision.retry_after(), None);
    assert_eq!(told(&decision), [("minute", 0, 0), ("day", 0, 0)]);
}

#[test]
fn an_unknown_plan_is_the_default_plan() {
    let (_, limiter) = limiter();
    let decision = limiter.plan("platinum").check("ann", 1).now();
    assert_eq!(told(&decision), [("minute", 10, 9), ("day", 100, 99)]);
    let other_default = Limiter::builder()
        .policies(minute_and_day())
        .plans(plans().default_plan("pro"), |_| None::<&str>)
        .build_local()
        .unwrap();
    let decision = other_default.check("ann", 1).now();
    assert_eq!(rules(&decision), ["plan pro", "plan pro"]);
}

#[test]
fn limits_of_plans_are_divided_among_nodes_too() {
    let limiter = Limiter::builder()
        .policies(minute_and_day())
        .plans(plans(), |_| Some("pro"))
        .nodes(4)
        .build_local()
        .unwrap();
    let decision = limiter.check("ann", 1).now();
    assert_eq!(told(&decision), [("minute", 25, 24), ("day", 2_500, 2_499)]);
}

#[test]
fn a_queue_and_a_bucket_may_have_other_limits_too() {
    let clock = ManualClock::new();
    let plans = Plans::new([
        Plan::new("slow")
            .limit("queue", LeakyQueue::per_second(1).places(1))
            .limit("bucket", TokenBucket::per_second(1).burst(2)),
        Plan::new("fast")
            .limit("queue", LeakyQueue::per_second(10).places(9))
            .limit("bucket", TokenBucket::per_second(10).burst(20)),
    ]);
    let limiter = Limiter::builder()
        .policy(Policy::new("queue", LeakyQueue::per_second(1).places(1)))
        .policy(Policy::new("bucket", TokenBucket::per_second(1).burst(2)))
        .plans(plans, |_| None::<&str>)
        .store(MemoryStore::new().clock(clock))
        .build_local()
        .unwrap();
    let fast = limiter.plan("fast");
    let decision = fast.check("ann", 5).now();
    assert_eq!(told(&decision), [("queue", 10, 5), ("bucket", 20, 15)]);
    assert_eq!(
        fast.check("ann", 1).now().delay(),
        Duration::from_millis(500)
    );
}
