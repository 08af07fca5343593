//! A decision after an invalidation looks the key up anew.

use tokio::time::Instant;

use crate::resolver::scene::*;

#[tokio::test(start_paused = true)]
async fn an_invalidated_key_is_looked_up_by_its_next_decision() {
    let source = ScriptedSource::new();
    source.set("ann", "free");
    source.set("bob", "free");
    let resolver = source.resolver();
    let limiter = limiter(&resolver);
    ask(&limiter, "ann").await;
    ask(&limiter, "bob").await;
    source.set("ann", "pro");
    source.set("bob", "pro");
    resolver.invalidate(&"ann".to_owned());
    assert_eq!(source.all_begun(), 2, "no lookup before a decision");
    assert_eq!(ask(&limiter, "ann").await, "plan pro, fresh");
    assert_eq!(ask(&limiter, "bob").await, "plan free, fresh");
    assert_eq!(source.all_begun(), 3);
    // A clone has the same cache.
    resolver.clone().invalidate_all();
    assert_eq!(ask(&limiter, "bob").await, "plan pro, fresh");
    assert_eq!(ask(&limiter, "ann").await, "plan pro, fresh");
    assert_eq!(source.all_begun(), 5);
}

#[tokio::test(start_paused = true)]
async fn the_value_of_an_invalidated_key_serves_failures_alone() {
    let source = ScriptedSource::new();
    source.set("ann", "pro");
    let resolver = source.resolver();
    let limiter = limiter(&resolver);
    ask(&limiter, "ann").await;
    source.acts("ann", LookupScript::Fail);
    resolver.invalidate(&"ann".to_owned());
    assert_eq!(ask(&limiter, "ann").await, "plan pro, stale: lookup failed");
    // An invalidation ends the second after a failure.
    source.set("ann", "ent");
    resolver.invalidate_all();
    assert_eq!(ask(&limiter, "ann").await, "plan ent, fresh");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_not_found_or_has_failed_is_looked_up_after_an_invalidation() {
    let source = ScriptedSource::new();
    source.acts("bob", LookupScript::Fail);
    let resolver = source.resolver();
    let limiter = limiter(&resolver);
    assert_eq!(ask(&limiter, "ann").await, "plan free, default: not found");
    assert_eq!(
        ask(&limiter, "bob").await,
        "plan free, default: lookup failed"
    );
    source.set("ann", "pro");
    source.set("bob", "pro");
    resolver.invalidate(&"ann".to_owned());
    resolver.invalidate(&"bob".to_owned());
    assert_eq!(ask(&limiter, "ann").await, "plan pro, fresh");
    assert_eq!(ask(&limiter, "bob").await, "plan pro, fresh");
}

/// The row was read before it was changed.
#[tokio::test(start_paused = true)]
async fn the_answer_of_a_lookup_that_began_before_the_invalidation_is_not_fresh() {
    for all in [false, true] {
        let source = ScriptedSource::new();
        source.set("ann", "free");
        let resolver = source.resolver();
        let limiter = limiter(&resolver);
        let gate = source.hold();
        let waiting = tokio::spawn(limiter.check("ann", 1).into_future());
        settle().await;
        if all {
            resolver.invalidate_all();
        } else {
            resolver.invalidate(&"ann".to_owned());
        }
        // The first lookup answers with the row that it has read, and the second one has not answered yet.
        gate.add_permits(1);
        settle().await;
        assert!(!waiting.is_finished());
        assert_eq!((source.begun("ann"), source.in_flight()), (2, 1));
        source.set("ann", "pro");
        gate.add_permits(1);
        let decision = waiting.await.unwrap().unwrap();
        assert_eq!(told(&decision), "plan pro, fresh");
        assert_eq!(ask(&limiter, "ann").await, "plan pro, fresh");
        assert_eq!(source.begun("ann"), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_was_outdated_in_flight_is_kept_for_failure_alone() {
    let source = ScriptedSource::new();
    source.set("ann", "free");
    let resolver = source.resolver();
    let limiter = limiter(&resolver);
    let gate = source.hold();
    let _ = limiter.check("ann", 1).now();
    settle().await;
    resolver.invalidate(&"ann".to_owned());
    gate.add_permits(1);
    settle().await;
    assert_eq!(source.all_begun(), 1, "no request waits");
    // The next request waits, and no longer than it would anyway.
    let start = Instant::now();
    let told = ask(&limiter, "ann").await;
    assert_eq!(told, "plan free, stale: lookup in flight");
    assert!(start.elapsed() >= 50 * MILLIS);
    assert_eq!(source.all_begun(), 2);
    source.set("ann", "pro");
    gate.add_permits(1);
    settle().await;
    assert_eq!(ask(&limiter, "ann").await, "plan pro, fresh");
}

/// Each key has one lookup at a time under any invalidations.
#[tokio::test(start_paused = true)]
async fn invalidations_begin_no_second_lookup_of_a_key() {
    let source = ScriptedSource::new();
    source.set("ann", "pro");
    let resolver = source.resolver();
    let limiter = limiter(&resolver);
    let gate = source.hold();
    let mut waiting = Vec::new();
    for _ in 0..100 {
        waiting.push(tokio::spawn(limiter.check("ann", 1).into_future()));
        settle().await;
        resolver.invalidate(&"ann".to_owned());
        resolver.invalidate_all();
    }
    assert_eq!((source.most_in_flight(), source.all_begun()), (1, 1));
    gate.add_permits(2);
    settle().await;
    assert_eq!((source.most_in_flight(), source.all_begun()), (1, 2));
    for request in waiting {
        assert_eq!(told(&request.await.unwrap().unwrap()), "plan pro, fresh");
    }
}
