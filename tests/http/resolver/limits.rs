//! The limit that holds where a resolver gives limits or names a plan.

use std::time::Duration;

use tower_ratelimit::plan::{KeyLimits, Operations, Plan, Resolved, Resolver};
use tower_ratelimit::{
    AnchoredWindow, Decision, FixedWindow, Limiter, LocalLimiter, Policy, TokenBucket,
};

use crate::resolver::scene::*;

fn own(name: &str) -> Plan {
    Plan::new(name)
        .limit("minute", FixedWindow::per_minute(77))
        .unlimited("day")
}

fn rules(decision: &Decision) -> Vec<(String, String)> {
    let each = decision.rules();
    each.map(|(policy, rule)| (policy.to_owned(), rule.to_string()))
        .collect()
}

fn policies() -> [Policy; 3] {
    let operations = Operations::new().limit("read", FixedWindow::per_minute(5));
    let keys = KeyLimits::new()
        .key("ann", FixedWindow::per_minute(6))
        .key("bob", FixedWindow::per_minute(6));
    [
        Policy::new("minute", FixedWindow::per_minute(10))
            .key_limits(keys)
            .operations(operations),
        Policy::new("day", FixedWindow::per_day(100)),
        Policy::new("bucket", TokenBucket::per_second(5)),
    ]
}

fn limiter_of(resolver: &Resolver<String>) -> LocalLimiter {
    Limiter::builder()
        .policies(policies())
        .plans_by_name(plans())
        .resolver(resolver.clone(), tower_ratelimit::key::Key::to_text)
        .build_local()
        .unwrap()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |(policy, rule): &(&str, &str)| ((*policy).to_owned(), (*rule).to_owned());
    pairs.iter().map(own).collect()
}

/// Limits that a resolver gives come before those of operations and of keys; a plan that it names comes after.
#[tokio::test(start_paused = true)]
async fn limits_of_a_resolver_come_first_and_a_plan_that_it_names_is_a_plan() {
    let source = ScriptedSource::new();
    source.acts(
        "ann",
        LookupScript::Answer(Resolved::Limits(own("special"))),
    );
    source.set("bob", "pro");
    source.set("eve", "pro");
    let limiter = limiter_of(&source.resolver());
    let reading = limiter.operation("read");

    // The resolver says nothing of the bucket, and that the day is unlimited.
    let special = pairs(&[("minute", "resolver special"), ("bucket", "policy")]);
    assert_eq!(rules(&limiter.check("ann", 1).await.unwrap()), special);
    assert_eq!(rules(&reading.check("ann", 1).await.unwrap()), special);
    assert_eq!(rules(&limiter.check("ann", 1).now()), special);

    let rest = ("day", "policy");
    let of_bob = pairs(&[("minute", "key \"bob\""), rest, ("bucket", "policy")]);
    assert_eq!(rules(&limiter.check("bob", 1).await.unwrap()), of_bob);
    let of_reads = pairs(&[("minute", "operation read"), rest, ("bucket", "policy")]);
    assert_eq!(rules(&reading.check("bob", 1).await.unwrap()), of_reads);
    let of_eve = pairs(&[("minute", "plan pro"), rest, ("bucket", "policy")]);
    assert_eq!(rules(&limiter.check("eve", 1).await.unwrap()), of_eve);

    let length = Duration::from_secs(60);
    let limit = FixedWindow::per_minute(9);
    limiter
        .override_limit("minute", "ann", limit, length)
        .unwrap()
        .now()
        .unwrap();
    // The state of a key under operations is that of the operation: this policy has none for the override.
    let decision = limiter.check("ann", 1).await.unwrap();
    assert_eq!(decision.resolution().unwrap().to_string(), "fresh");
}

#[tokio::test(start_paused = true)]
async fn an_override_comes_before_a_resolver() {
    let source = ScriptedSource::new();
    source.acts(
        "ann",
        LookupScript::Answer(Resolved::Limits(own("special"))),
    );
    let limiter = Limiter::builder()
        .policy(Policy::new("minute", FixedWindow::per_minute(10)))
        .resolver(source.resolver(), tower_ratelimit::key::Key::to_text)
        .build_local()
        .unwrap();
    assert_eq!(ask(&limiter, "ann").await, "resolver special, fresh");
    let limit = FixedWindow::per_minute(9);
    limiter
        .override_limit("minute", "ann", limit, Duration::from_secs(60))
        .unwrap()
        .now()
        .unwrap();
    let decision = limiter.check("ann", 1).await.unwrap();
    assert_eq!(decision.rule().unwrap().to_string(), "override");
    assert_eq!(decision.binding().unwrap().1.limit(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_is_named_for_a_request_is_not_looked_up() {
    let source = ScriptedSource::new();
    source.set("ann", "pro");
    let limiter = limiter(&source.resolver());
    let decision = limiter.plan("ent").check("ann", 1).await.unwrap();
    assert_eq!(told(&decision), "plan ent, ");
    assert_eq!(source.all_begun(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_closure_names_the_plan_of_keys_that_a_resolver_does_not_find() {
    let source = ScriptedSource::new();
    source.set("ann", "pro");
    let limiter = Limiter::builder()
        .policy(Policy::new("minute", FixedWindow::per_minute(10)))
        .plans(plans(), |_| Some("ent"))
        .resolver(source.resolver(), tower_ratelimit::key::Key::to_text)
        .build_local()
        .unwrap();
    assert_eq!(ask(&limiter, "ann").await, "plan pro, fresh");
    assert_eq!(ask(&limiter, "bob").await, "plan ent, default: not found");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_no_plan_has_is_the_default_plan() {
    let source = ScriptedSource::new();
    source.set("ann", "gold");
    let limiter = limiter(&source.resolver());
    assert_eq!(ask(&limiter, "ann").await, "plan free, fresh");
}

/// The layer goes on with the limit that it would have had.
#[tokio::test(start_paused = true)]
async fn limits_that_cannot_be_are_left_out() {
    let source = ScriptedSource::new();
    let odd = Plan::new("odd")
        .limit("minute", AnchoredWindow::per_minute(77))
        .limit("day", FixedWindow::per_hour(77))
        .limit("bucket", TokenBucket::per_second(77))
        .limit("month", FixedWindow::per_day(77));
    source.acts("cleo", LookupScript::Answer(Resolved::Limits(odd)));
    let limiter = limiter_of(&source.resolver());
    let told = rules(&limiter.check("cleo", 1).await.unwrap());
    let wanted = [
        ("minute", "plan free"),
        ("day", "policy"),
        ("bucket", "resolver odd"),
    ];
    assert_eq!(told, pairs(&wanted));
}

/// The prepared limits of one limiter's policies mean nothing to another limiter's.
#[tokio::test(start_paused = true)]
async fn limiters_with_other_policies_share_a_resolver() {
    let source = ScriptedSource::new();
    source.acts(
        "ann",
        LookupScript::Answer(Resolved::Limits(own("special"))),
    );
    let resolver = source.resolver();
    let first = limiter_of(&resolver);
    let second = Limiter::builder()
        .policy(Policy::new("hour", FixedWindow::per_hour(10)))
        .policy(Policy::new("minute", FixedWindow::per_minute(10)))
        .resolver(resolver.clone(), tower_ratelimit::key::Key::to_text)
        .build_local()
        .unwrap();
    for _ in 0..2 {
        let told = rules(&first.check("ann", 1).await.unwrap());
        assert_eq!(
            told,
            pairs(&[("minute", "resolver special"), ("bucket", "policy")])
        );
        let told = rules(&second.check("ann", 1).await.unwrap());
        assert_eq!(
            told,
            pairs(&[("hour", "policy"), ("minute", "resolver special")])
        );
    }
    assert_eq!(source.all_begun(), 1);
}

/// Each key of a decision by name is looked up, at the same time.
#[tokio::test(start_paused = true)]
async fn a_decision_by_name_waits_for_the_plan_of_each_key() {
    let source = ScriptedSource::new();
    source.set("eve", "pro");
    source.set("leo", "ent");
    source.delay(40 * MILLIS);
    let limiter = Limiter::builder()
        .policy(Policy::new("minute", FixedWindow::per_minute(10)))
        .policy(Policy::new("other", FixedWindow::per_minute(10)))
        .plans_by_name(tower_ratelimit::plan::Plans::new(
            ["free", "pro", "ent"].map(|name| {
                let limit = FixedWindow::per_minute(3);
                Plan::new(name).limit("minute", limit).limit("other", limit)
            }),
        ))
        .resolver(source.resolver(), tower_ratelimit::key::Key::to_text)
        .build_local()
        .unwrap();
    let start = tokio::time::Instant::now();
    let asked = limiter
        .named([("other", "leo", 1), ("minute", "eve", 1)])
        .unwrap()
        .check();
    let told = rules(&asked.await.unwrap());
    assert_eq!(
        told,
        pairs(&[("minute", "plan pro"), ("other", "plan ent")])
    );
    assert_eq!(start.elapsed(), 40 * MILLIS);
    let told = rules(&limiter.named([("minute", "eve", 1)]).unwrap().check().now());
    assert_eq!(told, pairs(&[("minute", "plan pro")]));
    assert_eq!(rules(&limiter.peek("leo", 1).await.unwrap()).len(), 2);
    assert_eq!(limiter.acquire_up_to("leo", 1).await.unwrap().0, 1);
    assert_eq!(source.all_begun(), 2);
}
