//! Limits that are too small for leases, whatever sets them, and lives out of range.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tower_ratelimit::factor::{Factor, FactorCell};
use tower_ratelimit::plan::{Plan, Plans};
use tower_ratelimit::store::Lease;
use tower_ratelimit::{Limiter, RedisStore};

use super::{DAY, is_allowed, new_year, node, stats};
use crate::scene::{daily, limiter, without_a_standby};
use crate::support::log::Log;
use crate::support::redis::Server;

/// Sends so many requests at once that a larger limit would be leased. Returns the policies that the log reports as
/// not leased.
fn not_leased(open: impl AsyncFnOnce(RedisStore) -> Limiter) -> Vec<String> {
    let server = Server::start(&[]);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let asks = async {
        let node = Arc::new(open(node(&server, &new_year())).await);
        let mut tasks = JoinSet::new();
        for _ in 0..50 {
            let node = Arc::clone(&node);
            tasks.spawn(async move { is_allowed(&node, "ann", 1).await });
        }
        let passed = tasks.join_all().await;
        let passed = passed.into_iter().filter(|is_allowed| *is_allowed).count();
        assert_eq!((passed, stats(&node).granted), (7, 0));
    };
    let ((), mut lines) = Log::of(|| runtime.block_on(asks));
    lines.retain(|line| line.fields["code"] == "TRL035");
    lines
        .iter()
        .map(|line| line.fields["subject"].clone())
        .collect()
}

/// Returns the log message about this policy, which appears once.
fn named(policy: &str) -> [String; 1] {
    let why = "a plan, an override or a factor admits less than 8 units at once";
    [format!("{policy:?}: {why}")]
}

#[test]
fn a_plan_of_less_than_eight_units_is_not_leased() {
    let told = not_leased(async |store| {
        let small = Plan::new("small").limit("of a plan", *daily("a", 7).algorithm());
        Limiter::builder()
            .policy(without_a_standby(daily("of a plan", 100_000)))
            .plans(Plans::new([small]), |_| None::<&str>)
            .store(store)
            .build()
            .unwrap()
            .plan("small")
    });
    assert_eq!(told, named("of a plan"));
}

#[test]
fn an_override_of_less_than_eight_units_is_not_leased() {
    let told = not_leased(async |store| {
        let node = limiter(&store, [daily("overridden", 100_000)]);
        let small = *daily("a", 7).algorithm();
        let changed = node.override_limit("overridden", "ann", small, DAY);
        changed.unwrap().await.unwrap();
        node
    });
    assert_eq!(told, named("overridden"));
}

#[test]
fn a_factor_that_leaves_less_than_eight_units_ends_leases() {
    let told = not_leased(async |store| {
        let factor = FactorCell::new();
        factor.set(Factor::thousandths(100), "cpu 99 %");
        limiter(&store, [daily("scaled", 70).factor(&factor)])
    });
    assert_eq!(told, named("scaled"));
}

#[test]
fn a_life_is_ten_milliseconds_to_a_minute() {
    let open = |millis| {
        let lease = Lease::up_to(Duration::from_millis(millis));
        let opened = RedisStore::builder()
            .lease(lease)
            .open("redis://127.0.0.1:1/");
        opened.err().map(|error| error.to_string())
    };
    assert_eq!((open(10), open(60_000)), (None, None));
    for (millis, shown) in [(9, "9ms"), (60_001, "60.001s")] {
        let told = format!("`lease` cannot be {shown}: give a length from 10 ms to a minute");
        assert_eq!(open(millis), Some(told));
    }
}
