//! Denials that a node remembers, in place of a call to the store.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tokio::runtime::{Builder, Runtime};
use tower_ratelimit::policy::Penalty;
use tower_ratelimit::store::SharedStore;
use tower_ratelimit::{
    Algorithm, AnchoredWindow, Decision, FixedWindow, Gcra, LeakyBucket, LeakyQueue, Limiter,
    ManualClock, Policy, SlidingLog, SlidingSlots, SlidingWindow, TokenBucket,
};

use crate::shared_stores::{daily, map};
use crate::support::items::Map;

const HOUR: Duration = Duration::from_secs(3_600);

/// A limiter, and the clock of its store, which advances with tokio's.
struct Node {
    limiter: Limiter,
    clock: ManualClock,
}

impl Node {
    fn new(map: &Map, policies: &[Policy], remembered: Duration) -> Self {
        let store = SharedStore::new(map.clone()).remember_denials_for(remembered);
        let builder = Limiter::builder().policies(policies.iter().cloned());
        Self {
            limiter: builder.store(store).build().unwrap(),
            clock: map.clock.clone(),
        }
    }

    async fn check(&self, cost: u32) -> Decision {
        self.limiter.check("ann", cost).await.unwrap()
    }

    async fn is_allowed(&self) -> bool {
        self.check(1).await.is_allowed()
    }

    /// Returns how many denials were repeated without a call.
    fn told(&self) -> u64 {
        self.limiter.snapshot().store.remembered_denials
    }

    async fn pass(&self, time: Duration) {
        self.clock.advance(time);
        tokio::time::advance(time).await;
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Check(u32),
    TakeUpTo(u32),
    Refund(u32),
    Settle(u32),
    Block(u32),
    Unblock,
    Reset,
    Override(u32),
    /// A thousandth of the period, this many times.
    Pass(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => Just(Step::Check(1)),
        2 => (0..4_u32).prop_map(Step::Check),
        1 => (1..4_u32).prop_map(Step::TakeUpTo),
        1 => (1..4_u32).prop_map(Step::Refund),
        1 => (1..4_u32).prop_map(Step::Settle),
        1 => (1..900_u32).prop_map(Step::Block),
        1 => Just(Step::Unblock),
        1 => Just(Step::Reset),
        1 => (1..6_u32).prop_map(Step::Override),
        8 => (0..300_u32).prop_map(Step::Pass),
    ];
    vec(step, 1..60)
}

const PERIOD: Duration = Duration::from_secs(60);

fn algorithms(limit: u16) -> [Algorithm; 10] {
    [
        FixedWindow::per_minute(limit.into()).into(),
        AnchoredWindow::per_minute(limit.into()).into(),
        SlidingLog::per_minute(limit).into(),
        SlidingWindow::per_minute(limit.into()).into(),
        SlidingSlots::per_minute(limit.into()).into(),
        TokenBucket::per_minute(limit.into()).into(),
        TokenBucket::per_minute(limit.into()).by_interval().into(),
        LeakyBucket::per_minute(limit.into()).into(),
        Gcra::per_minute(limit.into()).into(),
        LeakyQueue::per_minute(limit.into()).places(2).into(),
    ]
}

fn paused() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap()
}

/// Does the same with both, and returns whether both give the same answers.
async fn is_same(
    one: &Node,
    other: &Node,
    limits: [Algorithm; 6],
    step: Step,
) -> Result<(), TestCaseError> {
    let done = async |node: &Node| {
        let limiter = &node.limiter;
        match step {
            Step::Check(cost) => format!("{:?}", node.check(cost).await),
            Step::TakeUpTo(most) => format!("{:?}", limiter.acquire_up_to("ann", most).await),
            Step::Refund(cost) => format!("{:?}", limiter.refund("ann", cost).await),
            Step::Settle(cost) => format!("{:?}", limiter.settle("ann", cost).await),
            Step::Block(parts) => {
                format!("{:?}", limiter.block("ann", PERIOD * parts / 1_000).await)
            }
            Step::Unblock => format!("{:?}", limiter.unblock("ann").await),
            Step::Reset => format!("{:?}", limiter.reset("ann").await),
            Step::Override(limit) => {
                let done = limiter.override_limit("a", "ann", limits[limit as usize], HOUR);
                match done {
                    Ok(done) => format!("{:?}", done.await),
                    Err(error) => format!("{error:?}"),
                }
            }
            Step::Pass(parts) => {
                node.clock.advance(PERIOD * parts / 1_000);
                String::new()
            }
        }
    };
    prop_assert_eq!(done(one).await, done(other).await);
    if let Step::Pass(parts) = step {
        tokio::time::advance(PERIOD * parts / 1_000).await;
    }
    Ok(())
}

#[test]
fn a_node_that_remembers_denials_tells_what_one_that_asks_tells() {
    let cases = (0..10_usize, 0..20_usize, (1..5_u16, 1..5_u16), steps());
    proptest!(|((which, second, limits, steps) in cases)| {
        let (first, others) = (algorithms(limits.0)[which], algorithms(limits.1));
        let limits = [1, 1, 2, 3, 4, 5].map(|limit| algorithms(limit)[which]);
        // A request waits in one queue at most, which is the last of them.
        let second = others[..9].get(second).map(|second| Policy::new("b", *second));
        let policies: Vec<_> = [Policy::new("a", first)].into_iter().chain(second).collect();
        paused().block_on(async {
            let asks = Node::new(&map(), &policies, Duration::ZERO);
            let remembers = Node::new(&map(), &policies, HOUR);
            for step in steps {
                is_same(&remembers, &asks, limits, step).await?;
            }
            Ok::<_, TestCaseError>(())
        })?;
    });
}

/// Otherwise the test above would compare two that ask.
#[test]
fn each_algorithm_has_denials_that_a_node_remembers() {
    let floods = [[Step::Check(1); 9].as_slice(), &[Step::Pass(500)]].concat();
    for algorithm in algorithms(1) {
        paused().block_on(async {
            let policies = [Policy::new("a", algorithm)];
            let asks = Node::new(&map(), &policies, Duration::ZERO);
            let remembers = Node::new(&map(), &policies, HOUR);
            for step in floods.repeat(5) {
                let same = is_same(&remembers, &asks, [algorithm; 6], step).await;
                same.unwrap();
            }
            // Of 45 requests.
            assert!(remembers.told() > 30, "{algorithm}: {}", remembers.told());
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_one_key_calls_the_store_once_until_its_wait_is_over() {
    let node = Node::new(&map(), &[daily(1)], HOUR);
    assert!(node.is_allowed().await);
    for _ in 0..1_000 {
        assert!(!node.is_allowed().await);
    }
    assert_eq!(node.told(), 999);
}

#[test]
fn denials_are_remembered_for_an_hour_at_most() {
    let store = SharedStore::new(map()).remember_denials_for(HOUR * 24);
    let error = Limiter::builder().policy(daily(1)).store(store).build();
    let remedy = "`remember_denials_for` cannot be 86400s: give an hour at most, or zero to ask the store each time";
    assert_eq!(error.unwrap_err().to_string(), remedy);
}

#[tokio::test(start_paused = true)]
async fn refunds_by_other_nodes_are_seen_after_the_bound_and_own_changes_at_once() {
    let map = map();
    let second = Duration::from_secs(1);
    let node = Node::new(&map, &[daily(1)], second);
    let other = Node::new(&map, &[daily(1)], Duration::ZERO);
    assert!(node.is_allowed().await && !node.is_allowed().await);
    other.limiter.reset("ann").await.unwrap();
    assert!(!node.is_allowed().await);
    node.pass(second).await;
    assert!(node.is_allowed().await && !node.is_allowed().await);
    node.limiter.reset("ann").await.unwrap();
    assert!(node.is_allowed().await);
}

/// Limiters over clones of a store are one node.
#[tokio::test(start_paused = true)]
async fn a_change_by_another_limiter_over_the_store_is_seen_at_once() {
    let store = SharedStore::new(map()).remember_denials_for(HOUR);
    let limiter = || {
        let builder = Limiter::builder().policy(daily(1)).store(store.clone());
        builder.build().unwrap()
    };
    let (one, other) = (limiter(), limiter());
    assert!(one.check("ann", 1).await.unwrap().is_allowed());
    assert!(!one.check("ann", 1).await.unwrap().is_allowed());
    other.refund("ann", 1).await.unwrap();
    assert!(one.check("ann", 1).await.unwrap().is_allowed());
}

/// Each refusal counts towards the block.
#[tokio::test(start_paused = true)]
async fn refusals_that_count_for_a_penalty_are_told_to_the_store() {
    let penalty = Penalty::after(3, HOUR);
    let policy = Policy::new("a", AnchoredWindow::per_day(1)).penalty(penalty);
    let node = Node::new(&map(), &[policy], HOUR);
    assert!(node.is_allowed().await);
    for _ in 0..2 {
        assert!(!node.check(1).await.binding().unwrap().1.is_blocked());
    }
    assert!(node.check(1).await.binding().unwrap().1.is_blocked());
}
