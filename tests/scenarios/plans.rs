//! Plans, limits by key and limits by operation, without HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use tower_ratelimit::decision::LimitRule;
use tower_ratelimit::factor::{Factor, FactorCell};
use tower_ratelimit::key::Key;
use tower_ratelimit::plan::{KeyLimits, Operations, Plan, Plans};
use tower_ratelimit::{
    Algorithm, AnchoredWindow, Decision, FixedWindow, LeakyQueue, Limiter, ManualClock,
    MemoryStore, Policy, TokenBucket,
};

use crate::{DAY, MINUTE};

fn plans() -> Plans {
    Plans::new([
        Plan::new("free")
            .limit("minute", AnchoredWindow::per_minute(10))
            .limit("day", AnchoredWindow::per_day(100)),
        Plan::new("pro")
            .limit("minute", AnchoredWindow::per_minute(100))
            .limit("day", AnchoredWindow::per_day(10_000)),
        Plan::new("enterprise")
            .unlimited("minute")
            .limit("day", AnchoredWindow::per_day(1_000_000)),
        Plan::new("trial").limit("minute", AnchoredWindow::per_minute(10)),
        Plan::new("nothing")
            .limit("minute", AnchoredWindow::per_minute(0))
            .limit("day", AnchoredWindow::per_day(0)),
    ])
}

fn minute_and_day() -> [Policy; 2] {
    [
        Policy::new("minute", AnchoredWindow::per_minute(10)),
        Policy::new("day", AnchoredWindow::per_day(100)),
    ]
}

fn limiter() -> (ManualClock, Limiter) {
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .policies(minute_and_day())
        .plans(plans(), |key| key.starts_with("pro-").then_some("pro"))
        .store(MemoryStore::new().clock(clock.clone()))
        .build();
    (clock, limiter.unwrap())
}

fn told(decision: &Decision) -> Vec<(&str, u32, u32)> {
    let each = decision.policies();
    each.map(|(name, outcome)| (name, outcome.limit(), outcome.remaining()))
        .collect()
}

fn rules(decision: &Decision) -> Vec<String> {
    decision.rules().map(|(_, rule)| rule.to_string()).collect()
}

#[test]
fn a_request_has_the_limits_of_its_plan_under_all_policies() {
    let (_, limiter) = limiter();
    let decision = limiter.check_now("pro-ann", 1);
    assert_eq!(
        told(&decision),
        [("minute", 100, 99), ("day", 10_000, 9_999)]
    );
    assert_eq!(rules(&decision), ["plan pro", "plan pro"]);
    let decision = limiter.check_now("bob", 1);
    assert_eq!(told(&decision), [("minute", 10, 9), ("day", 100, 99)]);
    assert_eq!(decision.rule(), Some(LimitRule::Plan("free".into())));
}

#[test]
fn an_inspection_tells_the_rule_that_gave_each_limit() {
    let (_, limiter) = limiter();
    let more = AnchoredWindow::per_minute(500);
    limiter
        .override_limit_now("minute", "pro-ann", more, DAY)
        .unwrap();
    let inspection = limiter.inspect_now("pro-ann");
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
    let inspection = one.build().unwrap().inspect_now("ann");
    assert_eq!(inspection.to_string(), "minute: nothing of 500 used.\n");
}

#[test]
fn an_unlimited_policy_and_one_that_the_plan_leaves_out_count_nothing() {
    let (_, limiter) = limiter();
    let decision = limiter.plan("enterprise").check_now("ann", 500);
    assert_eq!(told(&decision), [("day", 1_000_000, 999_500)]);
    let decision = limiter.plan("trial").check_now("ann", 1);
    assert_eq!(told(&decision), [("minute", 10, 9)]);
}

#[test]
fn a_limit_of_0_denies_with_no_wait() {
    let (_, limiter) = limiter();
    let decision = limiter.plan("nothing").check_now("ann", 1);
    assert!(!decision.is_allowed());
    assert_eq!(decision.retry_after(), None);
    assert_eq!(told(&decision), [("minute", 0, 0), ("day", 0, 0)]);
}

#[test]
fn an_unknown_plan_is_the_default_plan() {
    let (_, limiter) = limiter();
    let decision = limiter.plan("platinum").check_now("ann", 1);
    assert_eq!(told(&decision), [("minute", 10, 9), ("day", 100, 99)]);
    let other_default = Limiter::builder()
        .policies(minute_and_day())
        .plans(plans().default_plan("pro"), |_| None::<&str>)
        .build()
        .unwrap();
    let decision = other_default.check_now("ann", 1);
    assert_eq!(rules(&decision), ["plan pro", "plan pro"]);
}

/// A change of plan keeps what was used, and down and up again grants nothing.
#[test]
fn what_was_used_stays_used_through_every_change_of_plan() {
    let (clock, limiter) = limiter();
    let [free, pro] = ["free", "pro"].map(|plan| limiter.plan(plan));
    assert!(pro.check_now("ann", 60).is_allowed());
    let denied = free.check_now("ann", 1);
    assert!(!denied.is_allowed());
    assert_eq!(denied.retry_after(), Some(MINUTE));
    assert_eq!(told(&denied), [("minute", 10, 0), ("day", 100, 40)]);
    assert_eq!(
        told(&pro.check_now("ann", 0)),
        [("minute", 100, 40), ("day", 10_000, 9_940)]
    );
    assert!(pro.check_now("ann", 40).is_allowed());
    assert!(!pro.check_now("ann", 1).is_allowed());

    clock.advance(MINUTE);
    // The day of the free plan is used up, and says so with a wait that is true.
    let denied = free.check_now("ann", 1);
    assert_eq!(denied.binding().unwrap().0, "day");
    let wait = denied.retry_after().unwrap();
    assert_eq!(wait, DAY.checked_sub(MINUTE).unwrap());
    clock.advance(wait.checked_sub(Duration::from_micros(1)).unwrap());
    assert!(!free.check_now("ann", 1).is_allowed());
    clock.advance(Duration::from_micros(1));
    assert!(free.check_now("ann", 1).is_allowed());
}

#[test]
fn a_client_that_switches_its_plan_a_thousand_times_has_no_more_than_the_largest() {
    let (_, limiter) = limiter();
    let mut admitted = 0;
    for turn in 0..1_000 {
        let plan = limiter.plan(["free", "pro"][turn % 2]);
        admitted += (0..7)
            .filter(|_| plan.check_now("ann", 1).is_allowed())
            .count();
    }
    assert_eq!(admitted, 100);
}

#[test]
fn an_override_beats_the_plan_and_a_block_beats_both() {
    let (_, limiter) = limiter();
    let more = AnchoredWindow::per_minute(500);
    limiter
        .override_limit_now("minute", "ann", more, DAY)
        .unwrap();
    let decision = limiter.plan("pro").check_now("ann", 1);
    assert_eq!(
        told(&decision),
        [("minute", 500, 499), ("day", 10_000, 9_999)]
    );
    assert_eq!(rules(&decision), ["override", "plan pro"]);
    limiter.block_now("ann", MINUTE);
    let denied = limiter.plan("pro").check_now("ann", 1);
    assert!(!denied.is_allowed());
    assert_eq!(denied.retry_after(), Some(MINUTE));
}

#[test]
fn a_refund_and_a_settlement_reach_the_state_of_the_plan() {
    let (_, limiter) = limiter();
    let pro = limiter.plan("pro");
    assert!(pro.check_now("ann", 50).is_allowed());
    pro.refund_now("ann", 20);
    limiter.plan("free").settle_now("ann", 5);
    assert_eq!(
        told(&pro.peek_now("ann", 0)),
        [("minute", 100, 65), ("day", 10_000, 9_965)]
    );
}

fn by_key() -> KeyLimits {
    KeyLimits::new()
        .key("partner-ann", FixedWindow::per_minute(500))
        .prefix("partner-", FixedWindow::per_minute(100))
        .prefix("partner-eu-", FixedWindow::per_minute(200))
        .prefix("internal-", Algorithm::Unlimited)
}

#[test]
fn an_open_reservation_and_a_block_outlive_a_change_of_plan() {
    let (clock, limiter) = limiter();
    let reservation = limiter.plan("pro").reserve_now("ann", 50);
    assert!(reservation.is_allowed());
    // Under the lower plan the 50 stay charged, and what is settled is settled there.
    let free = limiter.plan("free");
    assert!(!free.check_now("ann", 1).is_allowed());
    reservation.settle(4);
    assert_eq!(
        told(&free.peek_now("ann", 0)),
        [("minute", 10, 6), ("day", 100, 96)]
    );
    free.block_now("ann", MINUTE);
    for plan in ["pro", "enterprise", "free"] {
        let decision = limiter.plan(plan).check_now("ann", 1);
        assert_eq!(decision.retry_after(), Some(MINUTE), "{plan}");
    }
    clock.advance(MINUTE);
    assert!(limiter.plan("pro").check_now("ann", 1).is_allowed());
}

#[test]
fn the_exact_key_comes_first_then_the_longest_prefix_then_other() {
    let limits = by_key().other(FixedWindow::per_minute(5));
    let policy = Policy::new("minute", FixedWindow::per_minute(1)).key_limits(limits);
    let limiter = Limiter::builder().policy(policy).build().unwrap();
    for (key, limit, rule) in [
        ("partner-ann", 500, r#"key "partner-ann""#),
        ("partner-bob", 100, r#"prefix "partner-""#),
        ("partner-eu-7", 200, r#"prefix "partner-eu-""#),
        ("partner", 5, "other keys"),
        ("ann", 5, "other keys"),
    ] {
        let decision = limiter.check_now(key, 1);
        assert_eq!(told(&decision), [("minute", limit, limit - 1)], "{key}");
        assert_eq!(rules(&decision), [rule]);
    }
    assert_eq!(told(&limiter.check_now("internal-7", 9)), []);
    // A number is no text.
    assert_eq!(told(&limiter.check_now(7_u32, 1)), [("minute", 5, 4)]);
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
        .build()
        .unwrap();
    assert!(limiter.operation("write").check_now("ann", 10).is_allowed());
    assert!(!limiter.operation("write").check_now("ann", 1).is_allowed());
    assert!(limiter.operation("write").check_now("bob", 10).is_allowed());
    let read = limiter.operation("read").check_now("ann", 1);
    assert_eq!(told(&read), [("api", 100, 99)]);
    assert_eq!(rules(&read), ["operation read"]);
    let admitted = (0..100).filter(|name| {
        let invented = limiter.operation(format!("invented-{name}"));
        invented.check_now("ann", 1).is_allowed()
    });
    assert_eq!(admitted.count(), 50);
    // A request without an operation is one of the others.
    let other = limiter.check_now("ann", 0);
    assert_eq!(told(&other), [("api", 50, 0)]);
    assert_eq!(rules(&other), ["other operations"]);
}

#[test]
fn limits_of_plans_are_divided_among_nodes_too() {
    let limiter = Limiter::builder()
        .policies(minute_and_day())
        .plans(plans(), |_| Some("pro"))
        .nodes(4)
        .build()
        .unwrap();
    let decision = limiter.check_now("ann", 1);
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
        .build()
        .unwrap();
    let fast = limiter.plan("fast");
    let decision = fast.check_now("ann", 5);
    assert_eq!(told(&decision), [("queue", 10, 5), ("bucket", 20, 15)]);
    assert_eq!(fast.check_now("ann", 1).delay(), Duration::from_millis(500));
}

fn error(plans: Plans) -> String {
    let built = Limiter::builder()
        .policies(minute_and_day())
        .plans(plans, |_| None::<&str>)
        .build();
    built.unwrap_err().to_string()
}

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
        .build()
        .unwrap();
    for (key, limit, rule) in [
        ("both", 20, "closure"),
        ("closure", 20, "closure"),
        ("its own", 10, "closure"),
        ("table", 40, "key \"table\""),
        ("another", 100, "plan pro"),
        ("another period", 100, "plan pro"),
    ] {
        let decision = limiter.check_now(key, 1);
        let day = ("day", 10_000, 9_999);
        assert_eq!(told(&decision), [("minute", limit, limit - 1), day]);
        assert_eq!(rules(&decision), [rule, "plan pro"]);
    }
    assert_eq!(told(&limiter.check_now("unlimited", 1)).len(), 1);
    let denied = limiter.check_now("never", 1);
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
        .build()
        .unwrap();
    assert!(limiter.check_now("ann", 5).is_allowed());
    for (number, left) in [(2, 0), (100, 94), (5, 0), (7, 0), (9, 1)] {
        limit.store(number, Ordering::Relaxed);
        assert_eq!(
            limiter.check_now("ann", 1).is_allowed(),
            left > 0 || number == 7
        );
        assert_eq!(
            told(&limiter.peek_now("ann", 0)),
            [("minute", number, left)]
        );
    }
    // More limits than a store prepares.
    for number in 10..200 {
        limit.store(number, Ordering::Relaxed);
        assert_eq!(told(&limiter.check_now("ann", 1)), [("minute", number, 1)]);
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
        .build()
        .unwrap();
    assert_eq!(told(&limiter.check_now("ann", 1)), [("minute", 25, 24)]);
}

#[test]
fn plans_go_together_with_a_factor() {
    let factor = FactorCell::new();
    let minute_and_day = minute_and_day().map(|policy| policy.factor(&factor));
    let limiter = Limiter::builder()
        .policies(minute_and_day)
        .plans(plans(), |key| key.starts_with("pro-").then_some("pro"))
        .store(MemoryStore::new().clock(ManualClock::new()))
        .build()
        .unwrap();
    let [free, pro] = ["free", "pro"].map(|plan| limiter.plan(plan));
    assert_eq!(
        told(&pro.check_now("ann", 1)),
        [("minute", 100, 99), ("day", 10_000, 9_999)]
    );
    factor.set(Factor::thousandths(500), "a test");
    let decision = pro.check_now("ann", 1);
    assert_eq!(told(&decision), [("minute", 50, 49), ("day", 5_000, 4_999)]);
    assert_eq!(rules(&decision), ["plan pro", "plan pro"]);
    // The first request was charged 1, and the second one 2.
    assert_eq!(
        told(&free.peek_now("ann", 0)),
        [("minute", 5, 4), ("day", 50, 49)]
    );
    factor.set(Factor::ONE, "");
    assert_eq!(
        told(&free.peek_now("ann", 0)),
        [("minute", 10, 7), ("day", 100, 97)]
    );
    assert_eq!(
        told(&limiter.check_now("bob", 1)),
        [("minute", 10, 9), ("day", 100, 99)]
    );
    // A policy of which a plan does not speak counts nothing.
    assert_eq!(
        told(&limiter.plan("trial").check_now("tom", 1)),
        [("minute", 10, 9)]
    );
    assert_eq!(
        told(&limiter.plan("enterprise").check_now("ent", 1)).len(),
        1
    );
    assert!(!limiter.plan("nothing").check_now("zoe", 1).is_allowed());

    let mut admitted = 0;
    for turn in 0..1_000 {
        factor.set(Factor::thousandths([100, 500, 1_000][turn % 3]), "a test");
        let plan = limiter.plan(["free", "pro"][turn % 2]);
        admitted += u32::from(plan.check_now("eve", 1).is_allowed());
    }
    assert!(admitted <= 100, "{admitted}");
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

/// What gives a limit in a random configuration. Each rule has a limit of its own, so that the limit tells the rule.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "any combination of rules can be there"
)]
struct Given {
    by_override: bool,
    operation: bool,
    other_operation: bool,
    closure: bool,
    key: bool,
    prefix: bool,
    other_key: bool,
    plan: bool,
    asks_named_operation: bool,
}

impl Given {
    /// The table of the documentation, from the top.
    fn limit(self) -> u32 {
        let operation = self.operation || self.other_operation;
        let ranks = [
            (self.by_override, 10),
            (self.operation && self.asks_named_operation, 20),
            // A table of operations without this one has the limit of `other`, if there is one.
            (
                operation && self.other_operation && !(self.operation && self.asks_named_operation),
                30,
            ),
            (self.closure, 35),
            (self.key, 40),
            (self.prefix, 50),
            (self.other_key, 60),
            (self.plan, 70),
        ];
        let first = ranks.into_iter().find(|(is_given, _)| *is_given);
        first.map_or(80, |(_, limit)| limit)
    }

    fn limiter(self) -> Limiter {
        let of = FixedWindow::per_minute;
        let mut policy = Policy::new("minute", of(80));
        if self.operation || self.other_operation {
            let name = if self.operation {
                "read"
            } else {
                "never asked"
            };
            let mut operations = Operations::new().limit(name, of(20));
            if self.other_operation {
                operations = operations.other(of(30));
            }
            policy = policy.operations(operations);
        }
        let mut limits = KeyLimits::new();
        if self.key {
            limits = limits.key("ann", of(40));
        }
        if self.prefix {
            limits = limits.prefix("a", of(50));
        }
        if self.other_key {
            limits = limits.other(of(60));
        }
        policy = policy.key_limits(limits);
        if self.closure {
            policy = policy.limit_by(move |_| Some(of(35)));
        }
        let store = MemoryStore::new().clock(ManualClock::new());
        let mut builder = Limiter::builder().policy(policy).store(store);
        if self.plan {
            let plan = Plan::new("plan").limit("minute", of(70));
            builder = builder.plans(Plans::new([plan]), |_| None::<&str>);
        }
        let limiter = builder.build().unwrap();
        let operation = if self.asks_named_operation {
            "read"
        } else {
            "write"
        };
        let limiter = limiter.operation(operation);
        if self.by_override {
            limiter
                .override_limit_now("minute", "ann", of(10), DAY)
                .unwrap();
        }
        limiter
    }
}

proptest! {
    #[test]
    fn the_first_rule_of_the_table_gives_the_limit(flags in any::<[bool; 9]>()) {
        let [by_override, operation, other_operation, closure, key, prefix, other_key, plan, asks_named_operation] = flags;
        let given = Given {
            by_override, operation, other_operation, closure, key, prefix, other_key, plan, asks_named_operation,
        };
        let decision = given.limiter().check_now("ann", 1);
        let limit = given.limit();
        prop_assert_eq!(told(&decision), [("minute", limit, limit - 1)]);
    }
}
