//! Plans that are unknown, out of reach, or chosen by the client.

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::Request;
use tower::ServiceExt;
use tower_ratelimit::key::{self, Head};
use tower_ratelimit::plan::{KeyLimits, Plan, Plans};
use tower_ratelimit::{FixedWindow, Limiter, Policy, RateLimitLayer};

use super::{assert_warns_once, block_on};
use crate::support::log::Log;

fn plans() -> Plans {
    let window = FixedWindow::per_hour;
    Plans::new([
        Plan::new("free").limit("hour", window(10)),
        Plan::new("pro").limit("hour", window(20)),
    ])
}

#[test]
fn an_unknown_plan_is_named_once_and_is_the_default_plan() {
    let ((), lines) = Log::of(|| {
        let limiter = Limiter::builder()
            .policy(Policy::new("hour", FixedWindow::per_hour(10)))
            .plans(plans(), |_| Some("platinum"))
            .build_local()
            .unwrap();
        for _ in 0..3 {
            let decision = limiter.check("ann", 1).now();
            assert_eq!(decision.rule().unwrap().to_string(), "plan free");
        }
    });
    assert_warns_once(&lines, "TRL017", "plan \"platinum\"");
}

#[test]
fn plans_that_no_request_can_have_are_named() {
    let hour = FixedWindow::per_hour;
    let by =
        |names: [&str; 2]| Plans::new(names.map(|name| Plan::new(name).limit("hour", hour(10))));
    let layer = |plans, finds: bool| {
        let policy = Policy::new("hour", hour(10)).key(key::global());
        let builder = RateLimitLayer::builder().policy(policy);
        let builder = if finds {
            builder.plans(plans, |_| None::<&str>)
        } else {
            builder.plans_by_name(plans)
        };
        builder.build().unwrap();
    };
    let ((), lines) = Log::of(|| layer(by(["default", "found"]), true));
    assert!(lines.is_empty(), "{lines:?}");
    let ((), lines) = Log::of(|| layer(by(["default", "found by nothing"]), false));
    assert_warns_once(&lines, "TRL033", "plan \"found by nothing\"");

    let limiter = |plan: &str, limits: KeyLimits| {
        let policy = Policy::new("hour", hour(10)).key_limits(limits);
        let plans = Plans::new([Plan::new(plan).limit("hour", hour(20))]);
        let limiter = Limiter::builder().policy(policy).plans_by_name(plans);
        limiter.build_local().unwrap();
    };
    let some = KeyLimits::new().key("ann", hour(1));
    let ((), lines) = Log::of(|| limiter("of all but ann", some.clone()));
    assert!(lines.is_empty(), "{lines:?}");
    let ((), lines) = Log::of(|| limiter("behind a table", some.clone().other(hour(2))));
    assert_warns_once(&lines, "TRL033", "plan \"behind a table\"");
}

#[test]
fn a_limit_of_a_closure_that_cannot_be_is_named_once() {
    let ((), lines) = Log::of(|| {
        let policy = Policy::new("limited by a closure", FixedWindow::per_hour(10));
        let limiter = Limiter::builder()
            .policy(policy.limit_by(|_| Some(FixedWindow::per_day(99))))
            .build_local()
            .unwrap();
        for _ in 0..3 {
            let decision = limiter.check("ann", 1).now();
            assert_eq!(decision.rule().unwrap().to_string(), "policy");
        }
    });
    assert_warns_once(&lines, "TRL020", "policy \"limited by a closure\"");
}

#[test]
fn a_policy_of_which_no_plan_speaks_is_named_unless_that_is_meant() {
    let build = |address: Policy| {
        let builder = Limiter::builder()
            .policy(Policy::new("hour", FixedWindow::per_hour(10)))
            .policy(address);
        builder
            .plans(plans(), |_| None::<&str>)
            .build_local()
            .unwrap();
    };
    let address = || Policy::new("address of plans", FixedWindow::per_day(10));
    let ((), lines) = Log::of(|| build(address().ignore_plans()));
    assert!(lines.is_empty(), "{lines:?}");
    let ((), lines) = Log::of(|| build(address()));
    assert_warns_once(&lines, "TRL018", "policy \"address of plans\"");
}

#[test]
fn a_plan_that_stands_in_a_header_is_warned_of() {
    let ask = |plan_of: fn(&Head<'_>) -> Option<String>| {
        let layer = RateLimitLayer::builder()
            .policy(Policy::new("hour", FixedWindow::per_hour(10)).key(key::global()))
            .plans(plans(), plan_of)
            .build()
            .unwrap();
        let app: Router = Router::new()
            .route("/", get(|| async { "hello" }))
            .layer(layer);
        let request = Request::builder().header("x-plan", "pro").extension(7_u32);
        block_on(app.oneshot(request.body(Body::empty()).unwrap())).unwrap();
    };
    let verified: fn(&Head<'_>) -> Option<String> = |head| {
        Some(format!(
            "fr{}",
            if head.extension::<u32>() == Some(&7) {
                "ee"
            } else {
                ""
            }
        ))
    };
    let ((), lines) = Log::of(|| ask(verified));
    assert!(lines.is_empty(), "{lines:?}");
    let ((), lines) = Log::of(|| ask(|head| head.header("x-plan").map(str::to_owned)));
    assert_warns_once(&lines, "TRL019", "header x-plan");
}
