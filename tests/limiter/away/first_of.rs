//! Policies of which one pays, while their store is away.

use tower_ratelimit::limiter::LimiterBuilder;
use tower_ratelimit::store::SharedStore;
use tower_ratelimit::{FixedWindow, Limiter, OnStoreFailure, Policy};

use super::lose;
use super::switch::Switch;

fn member(name: &str, limit: u32) -> Policy {
    Policy::new(name, FixedWindow::per_day(limit))
}

/// A plan of 2, these credits, and a pool of 1.
fn builder(credits: Policy, switch: &Switch) -> LimiterBuilder<SharedStore<Switch>> {
    Limiter::builder()
        .policies([member("plan", 2), credits, member("pool", 1)])
        .first_of("spend", ["plan", "credits", "pool"])
        .store(SharedStore::new(switch.clone()))
}

/// Returns who pays for each of some requests, and whether it passes.
async fn payers(limiter: &Limiter, requests: usize) -> Vec<(Option<String>, bool)> {
    let mut payers = Vec::new();
    for _ in 0..requests {
        let decision = limiter.check("ann", 1).await.unwrap();
        assert!(decision.is_degraded());
        let payer = decision.payer("spend").map(str::to_owned);
        payers.push((payer, decision.is_allowed()));
    }
    payers
}

/// Returns who pays for requests on this credits policy, after the plan has paid for one before the store went away.
async fn payers_without(credits: Policy, requests: usize) -> Vec<(Option<String>, bool)> {
    let switch = Switch::new();
    let limiter = builder(credits, &switch).build().unwrap();
    let shared = limiter.check("ann", 1).await.unwrap();
    assert_eq!(
        (shared.is_degraded(), shared.payer("spend")),
        (false, Some("plan"))
    );
    lose(&switch, &limiter).await;
    payers(&limiter, requests).await
}

fn paid(name: &str) -> (Option<String>, bool) {
    (Some(name.to_owned()), true)
}

#[tokio::test(start_paused = true)]
async fn this_process_chooses_by_its_own_state() {
    let told = payers_without(member("credits", 2), 6).await;
    let expected = ["plan", "plan", "credits", "credits", "pool"].map(paid);
    assert_eq!(told, [&expected[..], &[(None, false)]].concat());
}

#[tokio::test(start_paused = true)]
async fn a_member_that_refuses_without_its_store_is_passed_over() {
    let credits = member("credits", 2).on_store_failure(OnStoreFailure::Refuse);
    let told = payers_without(credits, 4).await;
    let expected = ["plan", "plan", "pool"].map(paid);
    assert_eq!(told, [&expected[..], &[(None, false)]].concat());
}

#[tokio::test(start_paused = true)]
async fn a_member_that_allows_everything_takes_the_rest_for_nothing() {
    let credits = member("credits", 2).on_store_failure(OnStoreFailure::Allow);
    let told = payers_without(credits, 9).await;
    let expected = [&["plan", "plan"].map(paid)[..], &vec![(None, true); 7]].concat();
    assert_eq!(told, expected);
}

#[tokio::test(start_paused = true)]
async fn a_request_is_refused_if_all_members_refuse() {
    let switch = Switch::new();
    let refusing = |policy: Policy| policy.on_store_failure(OnStoreFailure::Refuse);
    let limiter = Limiter::builder()
        .policies(["plan", "credits"].map(|name| refusing(member(name, 2))))
        .first_of("spend", ["plan", "credits"])
        .store(SharedStore::new(switch.clone()))
        .build()
        .unwrap();
    switch.fail();
    limiter.check("ann", 1).await.unwrap_err();
}

/// What the store has charged is settled with it or lost. Once, this process charged its own credits, too.
#[tokio::test(start_paused = true)]
async fn what_goes_on_to_the_next_member_is_lost_and_not_charged_here() {
    let switch = Switch::new();
    let limiter = builder(member("credits", 9), &switch).spill("spend");
    let limiter = limiter.build().unwrap();
    let reservation = limiter.reserve("ann", 1).await.unwrap();
    lose(&switch, &limiter).await;
    reservation.settle(6);
    // The settlement is in the background, and asks nobody but this process.
    tokio::task::yield_now().await;
    assert_eq!(limiter.lost_settlements(), 1);
    let inspection = limiter.inspect("ann").await.unwrap();
    let used: Vec<_> = inspection.policies().map(|(_, told)| told.used()).collect();
    assert_eq!(used, [0; 3]);
}
