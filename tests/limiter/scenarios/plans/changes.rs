//! Changes of the plan of a key, with overrides, refunds and reservations in between.

use std::time::Duration;

use tower_ratelimit::AnchoredWindow;

use super::{limiter, rules, told};
use crate::scenarios::{DAY, MINUTE};

/// A change of the plan keeps the usage, and a change down and up again grants nothing.
#[test]
fn usage_stays_through_every_change_of_plan() {
    let (clock, limiter) = limiter();
    let [free, pro] = ["free", "pro"].map(|plan| limiter.plan(plan));
    assert!(pro.check("ann", 60).now().is_allowed());
    let denied = free.check("ann", 1).now();
    assert!(!denied.is_allowed());
    assert_eq!(denied.retry_after(), Some(MINUTE));
    assert_eq!(told(&denied), [("minute", 10, 0), ("day", 100, 40)]);
    assert_eq!(
        told(&pro.check("ann", 0).now()),
        [("minute", 100, 40), ("day", 10_000, 9_940)]
    );
    assert!(pro.check("ann", 40).now().is_allowed());
    assert!(!pro.check("ann", 1).now().is_allowed());

    clock.advance(MINUTE);
    // The day of the free plan is used up, and the wait is true.
    let denied = free.check("ann", 1).now();
    assert_eq!(denied.binding().unwrap().0, "day");
    let wait = denied.retry_after().unwrap();
    assert_eq!(wait, DAY.checked_sub(MINUTE).unwrap());
    clock.advance(wait.checked_sub(Duration::from_micros(1)).unwrap());
    assert!(!free.check("ann", 1).now().is_allowed());
    clock.advance(Duration::from_micros(1));
    assert!(free.check("ann", 1).now().is_allowed());
}

#[test]
fn a_client_that_switches_its_plan_a_thousand_times_has_no_more_than_the_largest() {
    let (_, limiter) = limiter();
    let mut admitted = 0;
    for turn in 0..1_000 {
        let plan = limiter.plan(["free", "pro"][turn % 2]);
        admitted += (0..7)
            .filter(|_| plan.check("ann", 1).now().is_allowed())
            .count();
    }
    assert_eq!(admitted, 100);
}

#[test]
fn an_override_beats_the_plan_and_a_block_beats_both() {
    let (_, limiter) = limiter();
    let more = AnchoredWindow::per_minute(500);
    limiter
        .override_limit("minute", "ann", more, DAY)
        .unwrap()
        .now()
        .unwrap();
    let decision = limiter.plan("pro").check("ann", 1).now();
    assert_eq!(
        told(&decision),
        [("minute", 500, 499), ("day", 10_000, 9_999)]
    );
    assert_eq!(rules(&decision), ["override", "plan pro"]);
    limiter.block("ann", MINUTE).now();
    let denied = limiter.plan("pro").check("ann", 1).now();
    assert!(!denied.is_allowed());
    assert_eq!(denied.retry_after(), Some(MINUTE));
}

#[test]
fn a_refund_and_a_settlement_reach_the_state_of_the_plan() {
    let (_, limiter) = limiter();
    let pro = limiter.plan("pro");
    assert!(pro.check("ann", 50).now().is_allowed());
    pro.refund("ann", 20).now();
    limiter.plan("free").settle("ann", 5).now();
    assert_eq!(
        told(&pro.peek("ann", 0).now()),
        [("minute", 100, 65), ("day", 10_000, 9_965)]
    );
}

#[test]
fn an_open_reservation_and_a_block_outlive_a_change_of_plan() {
    let (clock, limiter) = limiter();
    let reservation = limiter.plan("pro").reserve("ann", 50).now();
    assert!(reservation.is_allowed());
    // Under the lower plan the 50 units stay charged, and the settlement is made there.
    let free = limiter.plan("free");
    assert!(!free.check("ann", 1).now().is_allowed());
    reservation.settle(4);
    assert_eq!(
        told(&free.peek("ann", 0).now()),
        [("minute", 10, 6), ("day", 100, 96)]
    );
    free.block("ann", MINUTE).now();
    for plan in ["pro", "enterprise", "free"] {
        let decision = limiter.plan(plan).check("ann", 1).now();
        assert_eq!(decision.retry_after(), Some(MINUTE), "{plan}");
    }
    clock.advance(MINUTE);
    assert!(limiter.plan("pro").check("ann", 1).now().is_allowed());
}
