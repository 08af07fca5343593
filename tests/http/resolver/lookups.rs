//! Fresh, stale and absent answers, and the bounds of lookups.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::time::{Instant, advance};
use tower_ratelimit::decision::{Resolution, Unresolved};

use crate::resolver::scene::*;

#[tokio::test(start_paused = true)]
async fn a_fresh_answer_is_served_without_another_lookup() {
    let source = ScriptedSource::new();
    source.set("ann", "pro");
    let limiter = limiter(&source.resolver());
    for _ in 0..100 {
        assert_eq!(ask(&limiter, "ann").await, "plan pro, fresh");
    }
    advance(SURELY_FRESH).await;
    assert_eq!(ask(&limiter, "ann").await, "plan pro, fresh");
    assert_eq!(source.all_begun(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stale_answer_is_served_at_once_while_one_lookup_refreshes_it() {
    let source = ScriptedSource::new();
    source.set("ann", "free");
    let limiter = limiter(&source.resolver());
    assert_eq!(ask(&limiter, "ann").await, "plan free, fresh");

    source.set("ann", "pro");
    advance(SURELY_STALE).await;
    let gate = source.hold();
    let start = Instant::now();
    for _ in 0..100 {
        let told = ask(&limiter, "ann").await;
        assert_eq!(told, "plan free, stale: lookup in flight");
    }
    settle().await;
    assert_eq!((source.begun("ann"), start.elapsed()), (2, Duration::ZERO));

    gate.add_permits(1);
    settle().await;
    assert_eq!(ask(&limiter, "ann").await, "plan pro, fresh");
    assert_eq!(source.begun("ann"), 2);
}

#[tokio::test(start_paused = true)]
async fn an_answer_older_than_it_is_served_is_awaited_and_kept_for_failure() {
    let source = ScriptedSource::new();
    source.set("ann", "free");
    source.set("bob", "free");
    let limiter = limiter(&source.resolver());
    ask(&limiter, "ann").await;
    ask(&limiter, "bob").await;
    advance(Duration::from_secs(667)).await;

    source.set("ann", "pro");
    source.acts("bob", LookupScript::Fail);
    assert_eq!(ask(&limiter, "ann").await, "plan pro, fresh");
    let told = ask(&limiter, "bob").await;
    assert_eq!(told, "plan free, stale: lookup failed");
}

/// The random tenth keeps the answers of all keys from ending at the same moment.
#[tokio::test(start_paused = true)]
async fn answers_are_fresh_for_the_time_give_or_take_a_tenth() {
    let source = ScriptedSource::new();
    let keys: Vec<String> = (0..200).map(|number| format!("key {number}")).collect();
    for key in &keys {
        source.set(key, "pro");
    }
    let limiter = limiter(&source.resolver());
    let fresh = async || {
        let each = keys.iter().map(|key| resolution(&limiter, key));
        let each = join_all(each).await;
        each.iter().filter(|it| **it == Resolution::Fresh).count()
    };
    // There are fewer places in flight than keys.
    for key in &keys {
        ask(&limiter, key).await;
    }
    // No lookup lands from now on.
    let _held = source.hold();
    advance(Duration::from_millis(53_999)).await;
    assert_eq!(fresh().await, 200);
    advance(Duration::from_secs(6)).await;
    let half = fresh().await;
    assert!((50..=150).contains(&half), "{half} of 200 are fresh");
    advance(Duration::from_millis(6_002)).await;
    assert_eq!(fresh().await, 0);
}

#[tokio::test(start_paused = true)]
async fn an_absent_answer_is_awaited_for_the_timeout_and_no_longer() {
    let source = ScriptedSource::new();
    source.set("ann", "pro");
    source.set("bob", "pro");
    let limiter = limiter(&source.resolver());
    source.delay(49 * MILLIS);
    let start = Instant::now();
    assert_eq!(ask(&limiter, "ann").await, "plan pro, fresh");
    assert_eq!(start.elapsed(), 49 * MILLIS);

    source.delay(80 * MILLIS);
    let start = Instant::now();
    let told = ask(&limiter, "bob").await;
    assert_eq!(told, "plan free, default: lookup in flight");
    assert!((50 * MILLIS..=51 * MILLIS).contains(&start.elapsed()));
    advance(40 * MILLIS).await;
    settle().await;
    assert_eq!(ask(&limiter, "bob").await, "plan pro, fresh");
    assert_eq!(source.begun("bob"), 1);
}

#[tokio::test(start_paused = true)]
async fn requests_of_a_key_share_one_lookup() {
    let source = ScriptedSource::new();
    source.set("ann", "pro");
    source.delay(20 * MILLIS);
    let limiter = limiter(&source.resolver());
    let all = join_all((0..1_000).map(|_| ask(&limiter, "ann"))).await;
    assert!(all.iter().all(|told| told == "plan pro, fresh"));
    assert_eq!(source.all_begun(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_goes_away_cancels_no_lookup() {
    let source = ScriptedSource::new();
    source.set("ann", "pro");
    let limiter = limiter(&source.resolver());
    let gate = source.hold();
    let request = tokio::spawn(limiter.check("ann", 1).into_future());
    settle().await;
    request.abort();
    assert!(request.await.unwrap_err().is_cancelled());
    assert_eq!(source.in_flight(), 1);
    gate.add_permits(1);
    settle().await;
    assert_eq!(ask(&limiter, "ann").await, "plan pro, fresh");
    assert_eq!(source.all_begun(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_more_lookups_are_in_flight_than_may_be_and_the_others_do_not_wait() {
    let source = ScriptedSource::new();
    let known: Vec<String> = (0..100).map(|number| format!("known {number}")).collect();
    for key in &known {
        source.set(key, "pro");
    }
    let resolver = source.resolver();
    let limiter = limiter(&resolver);
    for key in &known {
        ask(&limiter, key).await;
    }
    advance(SURELY_STALE).await;

    let _held = source.hold();
    let ask = |key| limiter.check(key, 1).into_future();
    let invented = (0..200).map(|number| ask(format!("invented {number}")));
    let invented = tokio::spawn(join_all(invented));
    settle().await;
    // A quarter of the places is left to keys that have a plan.
    assert_eq!((source.in_flight(), resolver.usage().in_flight), (48, 48));
    let start = Instant::now();
    let told: Vec<_> = join_all(known.iter().map(|key| resolution(&limiter, key))).await;
    settle().await;
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(source.in_flight(), 64);
    let count = |why| {
        told.iter()
            .filter(|it| **it == Resolution::Stale(why))
            .count()
    };
    assert_eq!(
        (count(Unresolved::Pending), count(Unresolved::Busy)),
        (16, 84)
    );
    assert_eq!(resolution(&limiter, "another").await, BUSY);
    assert_eq!(start.elapsed(), Duration::ZERO);

    let told = invented.await.unwrap();
    let busy = |it: &_| matches!(it, Ok::<_, _>(decision) if resolution_of(decision) == BUSY);
    assert_eq!(told.iter().filter(|it| busy(it)).count(), 152);
    assert_eq!(source.most_in_flight(), 64);
}

/// A customer with a stale plan goes on with it. One without a plan had the default plan, because refreshes took all places.
#[tokio::test(start_paused = true)]
async fn refreshes_of_plans_leave_room_for_keys_without_a_plan() {
    let source = ScriptedSource::new();
    let keys =
        |kind: &str| -> Vec<String> { (0..100).map(|number| format!("{kind} {number}")).collect() };
    let (known, new) = (keys("known"), keys("new"));
    for key in known.iter().chain(&new) {
        source.set(key, "pro");
    }
    let limiter = limiter(&source.resolver());
    for key in &known {
        ask(&limiter, key).await;
    }
    advance(SURELY_STALE).await;

    let gate = source.hold();
    let refreshed: Vec<_> = join_all(known.iter().map(|key| resolution(&limiter, key))).await;
    settle().await;
    let is_stale = |it: &Resolution| matches!(it, Resolution::Stale(_));
    assert!(refreshed.iter().all(is_stale), "{refreshed:?}");
    assert_eq!(source.in_flight(), 32);
    let waiting = new[..32]
        .iter()
        .map(|key| limiter.check(key.clone(), 1).into_future());
    let waiting = tokio::spawn(join_all(waiting));
    settle().await;
    assert_eq!(source.in_flight(), 64);
    // The first refreshes end, and no others take their places.
    gate.add_permits(16);
    settle().await;
    let _ = join_all(known.iter().map(|key| resolution(&limiter, key))).await;
    settle().await;
    assert_eq!(source.in_flight(), 48);
    let more = new[32..48]
        .iter()
        .map(|key| limiter.check(key.clone(), 1).into_future());
    let more = tokio::spawn(join_all(more));
    settle().await;
    assert_eq!(source.in_flight(), 64);
    source.hold_no_longer();
    gate.add_permits(1_000);
    for told in [waiting, more] {
        let told = told.await.unwrap();
        let told: Vec<_> = told
            .iter()
            .map(|told| resolution_of(told.as_ref().unwrap()))
            .collect();
        assert!(told.iter().all(|it| *it == Resolution::Fresh), "{told:?}");
    }
}

/// A customer whose plan is known waits for no lookup, however many keys others invent: its decision is ready when it is first
/// polled.
#[tokio::test(start_paused = true)]
async fn a_flood_of_invented_keys_keeps_no_customer_waiting_whose_plan_is_known() {
    let source = ScriptedSource::new();
    source.set("ann", "pro");
    let limiter = limiter(&source.resolver());
    ask(&limiter, "ann").await;
    let gate = source.hold();
    for (rounds, aged) in [(100, Duration::ZERO), (100, SURELY_STALE)] {
        advance(aged).await;
        for round in 0..rounds {
            let ask = |key| limiter.check(key, 1).into_future();
            let invented = (0..100).map(|number| ask(format!("{aged:?} {round} {number}")));
            let invented = tokio::spawn(join_all(invented));
            settle().await;
            let known = resolution(&limiter, "ann").now_or_never();
            let is_known = matches!(known, Some(Resolution::Fresh | Resolution::Stale(_)));
            assert!(is_known, "{aged:?}, round {round}: {known:?}");
            // Some of the lookups end, and others begin.
            gate.add_permits(10);
            invented.abort();
        }
    }
}

fn resolution_of(decision: &tower_ratelimit::Decision) -> Resolution {
    decision.resolution().unwrap()
}

#[tokio::test(start_paused = true)]
async fn invented_keys_take_no_place_of_known_ones() {
    let source = ScriptedSource::new();
    let known: Vec<String> = (0..1_000).map(|number| format!("known {number}")).collect();
    for key in &known {
        source.set(key, "pro");
    }
    let resolver = source.builder().capacity(4_000).build().unwrap();
    let limiter = limiter(&resolver);
    for key in &known {
        ask(&limiter, key).await;
    }
    for number in 0..20_000 {
        let told = resolution(&limiter, &format!("invented {number}")).await;
        assert_eq!(told, NOT_FOUND);
    }
    let begun = source.all_begun();
    for key in &known {
        assert_eq!(ask(&limiter, key).await, "plan pro, fresh");
    }
    assert_eq!(source.all_begun(), begun);
    let usage = resolver.usage();
    assert_eq!(usage.found, 1_000);
    assert!(usage.not_found <= 1_024, "{usage:?}");
}

#[tokio::test(start_paused = true)]
async fn a_key_without_a_plan_is_not_looked_up_again_for_a_while() {
    let source = ScriptedSource::new();
    let limiter = limiter(&source.resolver());
    for _ in 0..100 {
        assert_eq!(ask(&limiter, "eve").await, "plan free, default: not found");
    }
    assert_eq!(source.all_begun(), 1);
    source.set("eve", "pro");
    advance(Duration::from_secs(12)).await;
    // The known answer is served, and refreshed.
    assert_eq!(ask(&limiter, "eve").await, "plan free, default: not found");
    settle().await;
    assert_eq!(ask(&limiter, "eve").await, "plan pro, fresh");
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_is_taken_away_is_the_default_plan() {
    let source = ScriptedSource::new();
    source.set("ann", "pro");
    let resolver = source.resolver();
    let limiter = limiter(&resolver);
    assert_eq!(ask(&limiter, "ann").await, "plan pro, fresh");
    source.acts(
        "ann",
        LookupScript::Answer(tower_ratelimit::plan::Resolved::NotFound),
    );
    advance(SURELY_STALE).await;
    ask(&limiter, "ann").await;
    settle().await;
    assert_eq!(ask(&limiter, "ann").await, "plan free, default: not found");
    assert_eq!(resolver.usage().found, 0);
}
