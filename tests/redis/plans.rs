//! Plans over Redis: one call for all policies, and one state whatever the plan.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tower_ratelimit::plan::{Plan, Plans};
use tower_ratelimit::{AnchoredWindow, Decision, Limiter, ManualClock, Micros, Policy, RedisStore};

use crate::scene::{MINUTE, PATIENCE, calls, daily, every, store, without_a_standby};
use crate::support::redis::Server;

/// The plan of every tenth request is the larger one.
const LIMITS: [u32; 2] = [100, 10_000];

fn limiter(store: &RedisStore) -> Limiter {
    let minute = AnchoredWindow::per_minute;
    let day = AnchoredWindow::per_day;
    let plans = Plans::new([
        Plan::new("free")
            .limit("minute", minute(10))
            .limit("day", day(LIMITS[0])),
        Plan::new("pro")
            .limit("minute", minute(20_000))
            .limit("day", day(LIMITS[1])),
    ]);
    let minute = Policy::new("minute", minute(10));
    Limiter::builder()
        .policies([minute, daily("day", LIMITS[0])].map(without_a_standby))
        .plans(plans, |_| None::<&str>)
        .store(store.clone())
        .build()
        .unwrap()
}

fn told(decision: &Decision) -> Vec<(&str, u32, u32)> {
    let each = decision.policies();
    each.map(|(name, outcome)| (name, outcome.limit(), outcome.used()))
        .collect()
}

#[tokio::test]
async fn a_decision_under_a_plan_is_one_call() {
    let server = Server::start(&[]);
    let pro = limiter(&store(&server)).plan("pro");
    let decision = pro.check("ann", 1).await.unwrap();
    assert_eq!(told(&decision), [("minute", 20_000, 1), ("day", 10_000, 1)]);
    let rules: Vec<_> = decision.rules().map(|(_, rule)| rule.to_string()).collect();
    assert_eq!(rules, ["plan pro", "plan pro"]);
    let before = calls(&server, "evalsha");
    let decision = pro.check("ann", 1).await.unwrap();
    assert_eq!(told(&decision), [("minute", 20_000, 2), ("day", 10_000, 2)]);
    assert_eq!(calls(&server, "evalsha") - before, 1);
}

#[tokio::test]
async fn an_open_reservation_and_a_block_outlive_a_change_of_plan() {
    let server = Server::start(&[]);
    let limiter = limiter(&store(&server));
    let [free, pro] = ["free", "pro"].map(|plan| limiter.plan(plan));
    let reservation = pro.reserve("ann", 50).await.unwrap();
    assert!(reservation.is_allowed());
    assert!(!free.check("ann", 1).await.unwrap().is_allowed());
    reservation.settle(4);
    let settled = async {
        while told(&free.peek("ann", 0).await.unwrap()) != [("minute", 10, 4), ("day", 100, 4)] {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, settled).await.unwrap();
    free.block("ann", MINUTE).await.unwrap();
    for plan in [&free, &pro] {
        let denied = plan.check("ann", 1).await.unwrap();
        let wait = denied.retry_after().expect("it is blocked");
        assert!(wait > MINUTE / 2 && wait <= MINUTE, "{wait:?}");
    }
    free.unblock("ann").await.unwrap();
    assert!(pro.check("ann", 1).await.unwrap().is_allowed());
}

/// A client changes its plan while it sends requests, and two nodes answer it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_grant_nothing_by_a_change_of_plan() {
    let server = Server::start(&[]);
    let nodes = [limiter(&store(&server)), limiter(&store(&server))];
    let admitted = Arc::new(AtomicU32::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..16 {
        let (node, admitted) = (nodes[task % 2].clone(), Arc::clone(&admitted));
        tasks.spawn(async move {
            let plans = ["free", "pro"].map(|plan| node.plan(plan));
            for turn in 0..1_000 {
                let plan = &plans[usize::from(turn % 10 == 9)];
                if plan.check("ann", 1).await.unwrap().is_allowed() {
                    admitted.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    tasks.join_all().await;
    let admitted = admitted.load(Ordering::Relaxed);
    // A tenth of 16,000 requests has the larger plan.
    assert!(
        (LIMITS[0]..=1_600 + LIMITS[0]).contains(&admitted),
        "{admitted}"
    );
    let used = nodes[0].peek("ann", 0).await.unwrap();
    assert_eq!(told(&used)[1], ("day", LIMITS[0], LIMITS[0]));
    let used = nodes[0].plan("pro").peek("ann", 0).await.unwrap();
    assert_eq!(told(&used)[1], ("day", LIMITS[1], admitted));
}

/// Under each algorithm: lowered and raised again, the limit grants nothing.
#[tokio::test]
async fn down_and_up_again_grants_nothing() {
    let server = Server::start(&[]);
    let clock = ManualClock::new();
    clock.set_micros(Micros::new(1_704_067_200_000_000));
    let store = store(&server).clock(clock);
    for (high, low) in every(100, MINUTE).into_iter().zip(every(20, MINUTE)) {
        let name = high.name().to_owned();
        let plans = Plans::new([
            Plan::new("high").limit(&name, *high.algorithm()),
            Plan::new("low").limit(&name, *low.algorithm()),
        ]);
        let limiter = Limiter::builder()
            .policy(without_a_standby(high))
            .plans(plans, |_| None::<&str>)
            .store(store.clone())
            .build()
            .unwrap();
        let [high, low] = ["high", "low"].map(|plan| limiter.plan(plan));
        assert!(high.check("ann", 100).await.unwrap().is_allowed(), "{name}");
        for _ in 0..3 {
            assert!(!low.check("ann", 1).await.unwrap().is_allowed(), "{name}");
            assert!(!high.check("ann", 1).await.unwrap().is_allowed(), "{name}");
        }
    }
}
