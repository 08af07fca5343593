//! Limits above each other while their store is away.

use tower_ratelimit::key::{IntoKey, Key};
use tower_ratelimit::store::{NodeCount, SharedStore};
use tower_ratelimit::{Decision, FixedWindow, Limiter, OnStoreFailure, Policy, Quota, StoreError};

use super::switch::Switch;
use super::{limiter, lose};

fn tree(set: impl Fn(Policy) -> Policy) -> [Policy; 2] {
    let org = Policy::new("org", FixedWindow::per_day(5));
    let team = org.share("team", 0.6).unwrap();
    [org, set(team)]
}

async fn ask(limiter: &Limiter, team: &str) -> Result<Decision, StoreError> {
    let team = Key::branch("acme", &[team.into_key()]);
    let asked = [("org", team.root(), 1), ("team", team, 1)];
    limiter.named(asked).unwrap().check().await
}

/// Returns the remaining units of each level.
fn left(decision: &Decision) -> Vec<u32> {
    let policies = decision.policies();
    policies.map(|(_, outcome)| outcome.remaining()).collect()
}

#[tokio::test(start_paused = true)]
async fn each_level_is_decided_here_and_all_are_charged_or_none() {
    let switch = Switch::new();
    let limiter = limiter(&SharedStore::new(switch.clone()), tree(|team| team));
    let shared = ask(&limiter, "blue").await.unwrap();
    assert!(!shared.is_degraded());
    assert_eq!(left(&shared), [4, 2]);
    lose(&switch, &limiter).await;
    for used in 1..=3 {
        let here = ask(&limiter, "blue").await.unwrap();
        assert!(here.is_allowed() && here.is_degraded());
        assert_eq!(left(&here), [5 - used, 3 - used]);
    }
    let refused = ask(&limiter, "blue").await.unwrap();
    assert!(!refused.is_allowed());
    assert_eq!(refused.binding().unwrap().0, "team");
    // The organisation was not charged for it.
    assert_eq!(left(&ask(&limiter, "red").await.unwrap()), [1, 2]);
    assert_eq!(left(&ask(&limiter, "red").await.unwrap()), [0, 1]);
    let refused = ask(&limiter, "red").await.unwrap();
    assert_eq!(refused.binding().unwrap().0, "org");
}

#[tokio::test(start_paused = true)]
async fn a_level_may_refuse_or_let_pass_what_the_store_does_not_decide() {
    let switch = Switch::new();
    let refusing = |team: Policy| team.on_store_failure(OnStoreFailure::Refuse);
    let limiter = limiter(&SharedStore::new(switch.clone()), tree(refusing));
    switch.fail();
    for _ in 0..9 {
        ask(&limiter, "blue").await.unwrap_err();
    }

    let switch = Switch::new();
    let allowing = |team: Policy| team.on_store_failure(OnStoreFailure::Allow);
    let limiter = super::limiter(&SharedStore::new(switch.clone()), tree(allowing));
    lose(&switch, &limiter).await;
    // The level above is still limited.
    let mut passed = 0;
    while ask(&limiter, "blue").await.unwrap().is_allowed() {
        passed += 1;
    }
    assert_eq!(passed, 5);
}

/// A node keeps its share of what a level guarantees, of its share of the limit above.
#[tokio::test(start_paused = true)]
async fn what_a_level_guarantees_is_kept_here() {
    for (nodes, lent, kept) in [(1, 16, 3), (2, 8, 1)] {
        let switch = Switch::new();
        let store = SharedStore::new(switch.clone()).nodes(NodeCount::new(nodes));
        let org = Policy::new("org", FixedWindow::per_day(20));
        let team = Policy::new("team", FixedWindow::per_day(20)).below("org");
        let limiter = limiter(&store, [org, team.guaranteed(Quota::per_day(4))]);
        assert!(!ask(&limiter, "blue").await.unwrap().is_degraded());
        lose(&switch, &limiter).await;
        let passed = async |team: &str| {
            let mut passed = 0;
            while ask(&limiter, team).await.unwrap().is_allowed() {
                passed += 1;
            }
            passed
        };
        // It asks here, and so has its guarantee here.
        assert!(ask(&limiter, "blue").await.unwrap().is_degraded());
        assert_eq!(passed("red").await, lent);
        assert_eq!(passed("blue").await, kept);
    }
}
