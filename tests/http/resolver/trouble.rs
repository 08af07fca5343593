//! Lookups that fail, panic, never end, or lose their runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::{Instant, advance};
use tower_ratelimit::StoreError;
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::plan::{Resolved, Resolver};

use crate::resolver::scene::*;

#[tokio::test(start_paused = true)]
async fn a_key_whose_lookup_failed_is_not_looked_up_for_a_second() {
    let source = ScriptedSource::new();
    source.acts("ann", LookupScript::Fail);
    let limiter = limiter(&source.resolver());
    for _ in 0..100 {
        assert_eq!(
            ask(&limiter, "ann").await,
            "plan free, default: lookup failed"
        );
    }
    advance(999 * MILLIS).await;
    assert_eq!(
        ask(&limiter, "ann").await,
        "plan free, default: lookup failed"
    );
    assert_eq!(source.all_begun(), 1);
    source.set("ann", "pro");
    advance(MILLIS).await;
    assert_eq!(ask(&limiter, "ann").await, "plan pro, fresh");
}

#[tokio::test(start_paused = true)]
async fn the_last_known_plan_goes_on_for_as_long_as_the_source_is_away() {
    let source = ScriptedSource::new();
    source.set("ann", "pro");
    let limiter = limiter(&source.resolver());
    assert_eq!(ask(&limiter, "ann").await, "plan pro, fresh");
    source.acts("ann", LookupScript::Fail);
    advance(SURELY_STALE).await;
    // The failure is not known yet.
    assert_eq!(
        ask(&limiter, "ann").await,
        "plan pro, stale: lookup in flight"
    );
    settle().await;
    for hours in 0..48 {
        let told = ask(&limiter, "ann").await;
        assert!(told.starts_with("plan pro, stale: lookup"), "{told}");
        settle().await;
        assert_eq!(ask(&limiter, "ann").await, "plan pro, stale: lookup failed");
        assert_eq!(source.all_begun(), hours + 2);
        advance(3_600 * SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_known_plan_is_refused_by_choice() {
    let source = ScriptedSource::new();
    source.set("ann", "pro");
    source.acts("bob", LookupScript::Fail);
    let resolver = source.builder().refuse_unresolved().build().unwrap();
    let limiter = limiter(&resolver);
    let kind = |answer: Result<_, StoreError>| answer.map(drop).map_err(|error| error.kind());
    let unresolved = Err(StoreErrorKind::Unresolved);
    assert_eq!(kind(limiter.check("bob", 1).await), unresolved);
    // At once, without a lookup.
    assert_eq!(kind(limiter.check("bob", 1).await), unresolved);
    assert_eq!(kind(limiter.peek("bob", 1).await), unresolved);
    assert_eq!(
        kind(limiter.acquire_up_to("bob", 1).await.map(|(_, it)| it)),
        unresolved
    );
    let named = limiter.named([("minute", "bob", 1)]).unwrap().check();
    assert_eq!(kind(named.await), unresolved);
    assert_eq!(source.all_begun(), 1);
    // What does not wait has the default plan.
    assert_eq!(
        told(&limiter.check("bob", 1).now()),
        "plan free, default: lookup failed"
    );
    // The default plan is the answer.
    assert_eq!(ask(&limiter, "eve").await, "plan free, default: not found");
    // The last known plan is one.
    assert_eq!(ask(&limiter, "ann").await, "plan pro, fresh");
    source.acts("ann", LookupScript::Fail);
    resolver.invalidate(&"ann".to_owned());
    assert_eq!(ask(&limiter, "ann").await, "plan pro, stale: lookup failed");
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_panics_has_failed_and_is_tried_again() {
    let source = ScriptedSource::new();
    source.acts("ann", LookupScript::Panic);
    source.set("bob", "pro");
    let resolver = source.resolver();
    let limiter = limiter(&resolver);
    for _ in 0..10 {
        assert_eq!(
            ask(&limiter, "ann").await,
            "plan free, default: lookup failed"
        );
    }
    assert_eq!((source.all_begun(), resolver.usage().in_flight), (1, 0));
    assert_eq!(ask(&limiter, "bob").await, "plan pro, fresh");
    source.set("ann", "ent");
    advance(SECOND).await;
    assert_eq!(ask(&limiter, "ann").await, "plan ent, fresh");
}

/// The closure that makes the future panics, and not the future.
#[tokio::test(start_paused = true)]
async fn a_closure_that_panics_has_failed() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let resolver = Resolver::new(move |_: String| {
        assert!(
            counted.fetch_add(1, Ordering::Relaxed) > 0,
            "a panic of a test"
        );
        async { Ok::<_, std::io::Error>(Resolved::plan("pro")) }
    });
    let limiter = limiter(&resolver);
    assert_eq!(
        ask(&limiter, "ann").await,
        "plan free, default: lookup failed"
    );
    advance(SECOND).await;
    assert_eq!(ask(&limiter, "ann").await, "plan pro, fresh");
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_never_ends_gives_its_place_back() {
    let source = ScriptedSource::new();
    let resolver = source.builder().in_flight(1).build().unwrap();
    let limiter = limiter(&resolver);
    let start = Instant::now();
    let _held = source.hold();
    assert_eq!(
        ask(&limiter, "ann").await,
        "plan free, default: lookup in flight"
    );
    assert_eq!(
        ask(&limiter, "bob").await,
        "plan free, default: too many lookups in flight"
    );
    while resolver.usage().in_flight > 0 {
        advance(50 * MILLIS).await;
        settle().await;
        assert!(start.elapsed() < Duration::from_secs(11));
    }
    assert!(start.elapsed() >= Duration::from_secs(10));
    assert_eq!(source.in_flight(), 0);
    source.hold_no_longer();
    source.set("bob", "pro");
    assert_eq!(ask(&limiter, "bob").await, "plan pro, fresh");
}

#[test]
fn without_a_runtime_the_last_known_plan_holds_or_else_the_default_plan() {
    let source = ScriptedSource::new();
    source.set("ann", "pro");
    let resolver = source.resolver();
    let limiter = limiter(&resolver);
    let unknown = "plan free, default: no runtime to look it up in";
    assert_eq!(told(&limiter.check("ann", 1).now()), unknown);
    assert_eq!(source.all_begun(), 0);
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let seen = runtime.block_on(async {
        // It begins a lookup, and does not wait for it.
        let seen = told(&limiter.check("ann", 1).now());
        settle().await;
        seen
    });
    assert_eq!(seen, "plan free, default: lookup in flight");
    assert_eq!(told(&limiter.check("ann", 1).now()), "plan pro, fresh");
    assert!(limiter.admit("ann", 1).now());
    resolver.invalidate_all();
    let stale = "plan pro, stale: no runtime to look it up in";
    assert_eq!(told(&limiter.check("ann", 1).now()), stale);
}

/// A runtime without timers cannot bound a wait.
#[test]
fn without_timers_no_request_waits() {
    let source = ScriptedSource::new();
    source.set("ann", "pro");
    let limiter = limiter(&source.resolver());
    let runtime = Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        assert_eq!(
            ask(&limiter, "ann").await,
            "plan free, default: lookup in flight"
        );
        settle().await;
        assert_eq!(ask(&limiter, "ann").await, "plan pro, fresh");
    });
}

#[test]
fn a_lookup_whose_runtime_ends_gives_its_place_back_and_is_begun_again_in_another() {
    let source = ScriptedSource::new();
    source.set("ann", "pro");
    let resolver = source.builder().in_flight(1).build().unwrap();
    let limiter = limiter(&resolver);
    let runtime = || {
        Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap()
    };
    let first = runtime();
    let gate = source.hold();
    let told = first.block_on(ask(&limiter, "ann"));
    assert_eq!(told, "plan free, default: lookup in flight");
    assert_eq!(resolver.usage().in_flight, 1);

    // A request in another runtime joins it, and is told when it ends.
    let second = runtime();
    let joined = {
        let _entered = second.enter();
        tokio::spawn(limiter.check("ann", 1).into_future())
    };
    second.block_on(settle());
    drop(first);
    let joined = second.block_on(joined).unwrap().unwrap();
    assert_eq!(
        crate::resolver::scene::told(&joined),
        "plan free, default: lookup failed"
    );
    assert_eq!((resolver.usage().in_flight, source.in_flight()), (0, 0));
    gate.add_permits(1);
    assert_eq!(second.block_on(ask(&limiter, "ann")), "plan pro, fresh");
}

/// The timer of a lookup stands still together with its runtime.
#[test]
fn a_lookup_in_a_runtime_that_is_not_run_any_more_is_given_up_by_the_next_request() {
    let source = ScriptedSource::new();
    source.set("ann", "pro");
    source.set("bob", "pro");
    let resolver = source
        .builder()
        .in_flight(1)
        .lookup_timeout(50 * MILLIS)
        .build()
        .unwrap();
    let limiter = limiter(&resolver);
    let runtime = || Builder::new_current_thread().enable_time().build().unwrap();
    let (asleep, runs) = (runtime(), runtime());
    let gate = source.hold();
    let told = asleep.block_on(async {
        let told = told(&limiter.check("ann", 1).now());
        // The lookup begins, and waits.
        tokio::task::yield_now().await;
        told
    });
    assert_eq!(told, "plan free, default: lookup in flight");
    assert_eq!(resolver.usage().in_flight, 1);
    // One of them is for the lookup that is asleep.
    gate.add_permits(10);
    let ask = async |key| {
        // It may take as long as the machine does: there is no other place.
        loop {
            let told = ask(&limiter, key).await;
            if told == "plan pro, fresh" {
                return;
            }
            tokio::time::sleep(MILLIS).await;
        }
    };
    runs.block_on(async {
        let both = async {
            ask("bob").await;
            ask("ann").await;
        };
        let both = tokio::time::timeout(20 * SECOND, both).await;
        both.expect("the place of the lookup is free");
    });
    assert_eq!(resolver.usage().in_flight, 0);
    drop(asleep);
    assert_eq!(resolver.usage().in_flight, 0);
}

/// A runtime that has ended drops what it is given.
#[test]
fn a_lookup_that_begins_in_a_runtime_that_has_ended_gives_its_place_back() {
    let source = ScriptedSource::new();
    source.set("ann", "pro");
    let resolver = source.builder().in_flight(1).build().unwrap();
    let limiter = limiter(&resolver);
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let handle = runtime.handle().clone();
    drop(runtime);
    {
        let _inside = handle.enter();
        let told = told(&limiter.check("ann", 1).now());
        assert!(told.starts_with("plan free, default: lookup"), "{told}");
    }
    assert_eq!(resolver.usage().in_flight, 0);
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    assert_eq!(runtime.block_on(ask(&limiter, "ann")), "plan pro, fresh");
}

#[test]
fn options_that_cannot_be_are_named() {
    let source = ScriptedSource::new();
    let error = |built: Result<Resolver<String>, _>| built.map(drop).unwrap_err();
    for (built, said) in [
        (
            source.builder().capacity(0).build(),
            "`capacity` cannot be 0: give 1 or more",
        ),
        (
            source.builder().in_flight(0).build(),
            "`in_flight` cannot be 0: give 1 or more",
        ),
        (
            source.builder().not_found_capacity(0).build(),
            "`not_found_capacity` cannot be 0: give 1 or more",
        ),
        (
            source.builder().fresh_for(Duration::ZERO).build(),
            "`fresh_for` cannot be 0ns: give a millisecond or more",
        ),
    ] {
        let error: tower_ratelimit::ConfigError = error(built);
        assert_eq!(error.to_string(), said);
    }
    let longest = source
        .builder()
        .fresh_for(Duration::MAX)
        .stale_for(Duration::MAX);
    assert!(
        longest
            .timeout(Duration::MAX)
            .retry_after(Duration::MAX)
            .build()
            .is_ok()
    );
}

#[tokio::test(start_paused = true)]
async fn the_longest_times_are_no_mistake() {
    let source = ScriptedSource::new();
    source.set("ann", "pro");
    source.acts("bob", LookupScript::Fail);
    let most = Duration::MAX;
    let resolver = source
        .builder()
        .fresh_for(most)
        .stale_for(most)
        .not_found_for(most);
    let resolver = resolver
        .timeout(most)
        .retry_after(most)
        .lookup_timeout(most)
        .build();
    let limiter = limiter(&resolver.unwrap());
    assert_eq!(ask(&limiter, "ann").await, "plan pro, fresh");
    assert_eq!(
        ask(&limiter, "bob").await,
        "plan free, default: lookup failed"
    );
    assert_eq!(ask(&limiter, "eve").await, "plan free, default: not found");
    advance(Duration::from_secs(86_400 * 365)).await;
    assert_eq!(ask(&limiter, "ann").await, "plan pro, fresh");
    assert_eq!(source.all_begun(), 3);
}
