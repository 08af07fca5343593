//! Verbs on keys, and policies that are not decided by the node, while nodes hold units.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tower_ratelimit::factor::{Factor, FactorCell};
use tower_ratelimit::plan::{Plan, Plans};
use tower_ratelimit::policy::Mode;
use tower_ratelimit::{AnchoredWindow, Hours, Limiter, Policy, RedisStore};

use super::{DAY, LIFE, REMEMBERED, is_allowed, new_year, node, poll_once, stats, warm};
use crate::scene::{PATIENCE, daily, limiter, scripts_run, used, without_a_standby};
use crate::support::redis::Server;

async fn used_of(limiter: &Limiter) -> Vec<u32> {
    used(&limiter.peek("ann", 0).await.unwrap())
}

#[tokio::test]
async fn an_override_is_seen_here_at_once_and_elsewhere_after_a_life() {
    let (server, clock) = (Server::start(&[]), new_year());
    let stores = [node(&server, &clock), node(&server, &clock)];
    let nodes = [0, 1].map(|place: usize| limiter(&stores[place], [daily("a", 100_000)]));
    for node in &nodes {
        warm(node, "ann").await;
    }
    // Less than the usage.
    let small = daily("a", 1);
    let changed = nodes[0].override_limit("a", "ann", *small.algorithm(), DAY);
    changed.unwrap().await.unwrap();
    assert_eq!(stats(&nodes[0]).held, 0);
    assert!(!is_allowed(&nodes[0], "ann", 1).await);
    assert!(is_allowed(&nodes[1], "ann", 1).await);
    clock.advance(LIFE);
    assert!(!is_allowed(&nodes[1], "ann", 1).await);
    nodes[0].end_override("a", "ann").unwrap().await.unwrap();
    assert!(is_allowed(&nodes[0], "ann", 1).await);
    clock.advance(REMEMBERED);
    assert!(is_allowed(&nodes[1], "ann", 1).await);
}

#[tokio::test]
async fn inspect_tells_how_many_units_all_nodes_hold() {
    let (server, clock) = (Server::start(&[]), new_year());
    let stores = [node(&server, &clock), node(&server, &clock)];
    let policies = || [daily("a", 100_000), daily("apart", 100_000).without_lease()];
    let nodes = [0, 1].map(|place: usize| limiter(&stores[place], [policies()[0].clone()]));
    let both = limiter(&stores[0], policies());
    let told = async || -> Vec<(String, u32)> {
        let inspection = both.inspect("ann").await.unwrap();
        let leased = inspection.leased();
        leased
            .map(|(name, units)| (name.to_owned(), units))
            .collect()
    };
    assert_eq!(told().await, []);
    for node in &nodes {
        warm(node, "ann").await;
    }
    let held: u64 = nodes.iter().map(|node| stats(node).held).sum();
    assert_eq!(
        told().await,
        [("a".to_owned(), u32::try_from(held).unwrap())]
    );
    for store in &stores {
        store.give_leases_back().await;
    }
    assert_eq!(told().await, []);
}

#[tokio::test]
async fn all_that_there_is_can_be_taken_but_what_other_nodes_hold() {
    const LIMIT: u32 = 1_000;
    let (server, clock) = (Server::start(&[]), new_year());
    let stores = [node(&server, &clock), node(&server, &clock)];
    let nodes = [0, 1].map(|place: usize| limiter(&stores[place], [daily("a", LIMIT)]));
    let mut asked = 0;
    for node in &nodes {
        asked += warm(node, "ann").await;
    }
    let elsewhere = u32::try_from(stats(&nodes[1]).held).unwrap();
    let (units, _) = nodes[0].acquire_up_to("ann", 2 * LIMIT).await.unwrap();
    assert_eq!(units, LIMIT - asked - elsewhere);
    assert_eq!(stats(&nodes[0]).held, 0);
    stores[1].give_leases_back().await;
    let (units, _) = nodes[0].acquire_up_to("ann", 2 * LIMIT).await.unwrap();
    assert_eq!(units, elsewhere);
}

#[tokio::test]
async fn a_request_is_settled_at_what_it_has_cost() {
    let (server, clock) = (Server::start(&[]), new_year());
    let store = node(&server, &clock);
    let limiter = limiter(&store, [daily("a", 100_000)]);
    let mut asked = warm(&limiter, "ann").await;
    while stats(&limiter).held < 20 {
        assert!(is_allowed(&limiter, "ann", 1).await);
        asked += 1;
    }
    let runs = scripts_run(&server);
    for (estimate, cost) in [(9, 4), (2, 50)] {
        let reservation = limiter.reserve("ann", estimate).await.unwrap();
        assert!(reservation.decision().is_allowed());
        // The first unit was held here.
        assert!(estimate != 9 || scripts_run(&server) == runs);
        reservation.settle(cost);
        asked += cost;
    }
    store.give_leases_back().await;
    let settled = async { while used_of(&limiter).await != [asked] {} };
    timeout(PATIENCE, settled).await.unwrap();
}

/// The units of a plan belong to the state that all plans share.
#[tokio::test]
async fn units_of_a_plan_are_not_spent_under_another() {
    let (server, clock) = (Server::start(&[]), new_year());
    let store = node(&server, &clock);
    let plans = Plans::new([
        Plan::new("free").limit("a", *daily("a", 100).algorithm()),
        Plan::new("pro").limit("a", *daily("a", 100_000).algorithm()),
    ]);
    let limiter = Limiter::builder()
        .policy(without_a_standby(daily("a", 100)))
        .plans(plans, |_| None::<&str>)
        .store(store.clone())
        .build()
        .unwrap();
    let (free, pro) = (limiter.plan("free"), limiter.plan("pro"));
    let mut asked = 0;
    while stats(&limiter).held < 40 {
        assert!(is_allowed(&pro, "ann", 1).await);
        asked += 1;
    }
    assert!(asked < 100, "{asked}");
    // Under the smaller limit, units that are held under the larger one count as used.
    let mut of_free = 0;
    while is_allowed(&free, "ann", 1).await {
        of_free += 1;
    }
    assert!(asked + of_free < 100, "{asked} {of_free}");
    store.give_leases_back().await;
    clock.advance(REMEMBERED);
    while is_allowed(&free, "ann", 1).await {
        of_free += 1;
    }
    assert_eq!(asked + of_free, 100);
    assert!(is_allowed(&pro, "ann", 1).await);
}

/// Sends so many requests that a policy which can be leased would be.
async fn asks_each_time(store: &RedisStore, server: &Server, policies: Vec<Policy>) -> u32 {
    let name = policies[0].name().to_owned();
    let limiter = limiter(store, policies);
    let (before, mut refused) = (scripts_run(server).0, 0);
    for _ in 0..100 {
        refused += u32::from(!is_allowed(&limiter, "ann", 1).await);
    }
    let calls = scripts_run(server).0 - before;
    assert!(calls >= 100 - u64::from(refused), "{name}: {calls}");
    assert_eq!(stats(&limiter).granted, 0, "{name}");
    refused
}

#[tokio::test]
async fn soft_and_shadow_policies_and_those_with_hours_ask_for_each_request() {
    let (server, clock) = (Server::start(&[]), new_year());
    let store = node(&server, &clock);
    let soft = daily("soft", 50).soft();
    assert_eq!(asks_each_time(&store, &server, vec![soft]).await, 0);
    let shadow = daily("shadow", 50).mode(Mode::Shadow);
    assert_eq!(asks_each_time(&store, &server, vec![shadow]).await, 0);
    let beside = vec![daily("wide", 1_000), daily("beside", 50).soft()];
    assert_eq!(asks_each_time(&store, &server, beside).await, 0);
    let hours = Hours::in_zone("Europe/Berlin").unwrap();
    let hours = hours
        .at("00:00-12:00", AnchoredWindow::per_day(1_000))
        .unwrap();
    let hours = Policy::new("hours", AnchoredWindow::per_day(50)).hours(&hours);
    let hours = vec![hours.unwrap()];
    assert_eq!(asks_each_time(&store, &server, hours).await, 0);
}

/// This node remembers a denial of a leased policy, and never for longer than its own questions take.
#[tokio::test]
async fn a_denial_is_remembered_for_a_tenth_of_a_second_at_most() {
    let (server, clock) = (Server::start(&[]), new_year());
    let stores = [node(&server, &clock), node(&server, &clock)];
    let nodes = [0, 1].map(|place: usize| limiter(&stores[place], [daily("a", 1_000)]));
    warm(&nodes[0], "ann").await;
    let (_, _) = nodes[1].acquire_up_to("ann", 1_000).await.unwrap();
    while is_allowed(&nodes[0], "ann", 1).await {}
    let mut silent = Duration::ZERO;
    for _ in 0..1_000 {
        let before = scripts_run(&server);
        assert!(!is_allowed(&nodes[0], "ann", 1).await);
        if scripts_run(&server) == before {
            clock.advance(Duration::from_millis(1));
            silent += Duration::from_millis(1);
            assert!(silent <= REMEMBERED);
        } else {
            silent = Duration::ZERO;
        }
    }
    nodes[1].refund("ann", 10).await.unwrap();
    clock.advance(REMEMBERED);
    assert!(is_allowed(&nodes[0], "ann", 1).await);
}

/// A unit that was leased under low load is spent at the present price.
#[tokio::test]
async fn a_leased_unit_is_spent_at_the_price_of_its_moment() {
    let (server, clock) = (Server::start(&[]), new_year());
    let store = node(&server, &clock);
    let factor = FactorCell::new();
    let policy = daily("a", 100_000).factor(&factor);
    let limiter = limiter(&store, [policy]);
    let mut asked = 0;
    while stats(&limiter).held < 60_000 {
        assert!(is_allowed(&limiter, "ann", 1).await);
        asked += 1;
    }
    factor.set(Factor::thousandths(500), "cpu 80 %");
    for _ in 0..200 {
        assert!(is_allowed(&limiter, "ann", 1).await);
    }
    factor.set(Factor::ONE, "");
    store.give_leases_back().await;
    assert_eq!(used_of(&limiter).await, [asked + 2 * 200]);
    assert!(stats(&limiter).calls_saved > 200, "{:?}", stats(&limiter));
}

/// The answer to a question was lost with the request that had asked it, and so were the units in it.
#[tokio::test]
async fn the_units_of_requests_that_go_away_before_the_answer_are_held() {
    let (server, clock) = (Server::start(&[]), new_year());
    let limiter = limiter(&node(&server, &clock), [daily("a", 100_000)]);
    let units_are_held = async {
        while stats(&limiter).held == 0 {
            // The request is sent, and dropped before its answer.
            let mut request = Box::pin(limiter.check("ann", 1).into_future());
            // Unless that of one before it has come meanwhile.
            let _ = poll_once(request.as_mut());
            drop(request);
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, units_are_held).await.unwrap();
}
