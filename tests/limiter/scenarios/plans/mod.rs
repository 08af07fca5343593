//! Plans, limits by key and limits by operation, without HTTP.

mod changes;
mod chosen;
mod closures;
mod mistakes;
mod precedence;
mod tables;

use tower_ratelimit::factor::{Factor, FactorCell};
use tower_ratelimit::plan::{KeyLimits, Plan, Plans};
use tower_ratelimit::{
    Algorithm, AnchoredWindow, Decision, FixedWindow, Limiter, LocalLimiter, ManualClock,
    MemoryStore, Policy,
};

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

fn limiter() -> (ManualClock, LocalLimiter) {
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .policies(minute_and_day())
        .plans(plans(), |key| key.starts_with("pro-").then_some("pro"))
        .store(MemoryStore::new().clock(clock.clone()))
        .build_local();
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

fn by_key() -> KeyLimits {
    KeyLimits::new()
        .key("partner-ann", FixedWindow::per_minute(500))
        .prefix("partner-", FixedWindow::per_minute(100))
        .prefix("partner-eu-", FixedWindow::per_minute(200))
        .prefix("internal-", Algorithm::Unlimited)
}

fn error(plans: Plans) -> String {
    let built = Limiter::builder()
        .policies(minute_and_day())
        .plans(plans, |_| None::<&str>)
        .build_local();
    built.unwrap_err().to_string()
}

#[test]
fn plans_go_together_with_a_factor() {
    let factor = FactorCell::new();
    let minute_and_day = minute_and_day().map(|policy| policy.factor(&factor));
    let limiter = Limiter::builder()
        .policies(minute_and_day)
        .plans(plans(), |key| key.starts_with("pro-").then_some("pro"))
        .store(MemoryStore::new().clock(ManualClock::new()))
        .build_local()
        .unwrap();
    let [free, pro] = ["free", "pro"].map(|plan| limiter.plan(plan));
    assert_eq!(
        told(&pro.check("ann", 1).now()),
        [("minute", 100, 99), ("day", 10_000, 9_999)]
    );
    factor.set(Factor::thousandths(500), "a test");
    let decision = pro.check("ann", 1).now();
    assert_eq!(told(&decision), [("minute", 50, 49), ("day", 5_000, 4_999)]);
    assert_eq!(rules(&decision), ["plan pro", "plan pro"]);
    // The first request was charged 1, and the second one 2.
    assert_eq!(
        told(&free.peek("ann", 0).now()),
        [("minute", 5, 4), ("day", 50, 49)]
    );
    factor.set(Factor::ONE, "");
    assert_eq!(
        told(&free.peek("ann", 0).now()),
        [("minute", 10, 7), ("day", 100, 97)]
    );
    assert_eq!(
        told(&limiter.check("bob", 1).now()),
        [("minute", 10, 9), ("day", 100, 99)]
    );
    // A policy that the plan does not mention counts nothing.
    assert_eq!(
        told(&limiter.plan("trial").check("tom", 1).now()),
        [("minute", 10, 9)]
    );
    assert_eq!(
        told(&limiter.plan("enterprise").check("ent", 1).now()).len(),
        1
    );
    assert!(!limiter.plan("nothing").check("zoe", 1).now().is_allowed());

    let mut admitted = 0;
    for turn in 0..1_000 {
        factor.set(Factor::thousandths([100, 500, 1_000][turn % 3]), "a test");
        let plan = limiter.plan(["free", "pro"][turn % 2]);
        admitted += u32::from(plan.check("eve", 1).now().is_allowed());
    }
    assert!(admitted <= 100, "{admitted}");
}
