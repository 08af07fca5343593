//! Either–or in a layer: who pays, what responses tell, and members that do not apply.

use std::convert::Infallible;

use axum::body::Body;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::key::Key;
use tower_ratelimit::plan::{KeyLimits, Plan, Resolved, Resolver};
use tower_ratelimit::policy::{Http, OnMissingKey, Settle};
use tower_ratelimit::{Decision, FixedWindow, MemoryStore, Policy, RateLimitLayer, key};

use crate::exchange::{ask, get, get_with, global};

/// Answers with the policy that pays.
async fn payer(request: Request<()>) -> Result<Response<Full<bytes::Bytes>>, Infallible> {
    let decision = request.extensions().get::<Decision>();
    let payer = decision.and_then(|decision| decision.payer("spend"));
    Ok(Response::new(Full::from(
        payer.unwrap_or("none").to_owned(),
    )))
}

fn day(name: &str, limit: u32) -> Policy<Http> {
    global(name, FixedWindow::per_day(limit))
}

fn layer(policies: impl IntoIterator<Item = Policy<Http>>) -> RateLimitLayer {
    RateLimitLayer::builder()
        .policies(policies)
        .first_of("spend", ["plan", "credits"])
        .expose_decision()
        .build()
        .unwrap()
}

#[test]
fn a_response_tells_of_the_policy_that_pays() {
    let layer = layer([day("plan", 1), day("credits", 2), day("all", 9)]);
    let service = layer.layer(service_fn(payer));
    let told = |received: &crate::exchange::Received| {
        let field = received.field("ratelimit").unwrap().to_owned();
        ["\"plan\"", "\"credits\"", "\"all\""].map(|name| field.contains(name))
    };
    let first = ask(&service, get());
    assert_eq!((first.text(), told(&first)), ("plan", [true, false, true]));
    let second = ask(&service, get());
    assert_eq!(
        (second.text(), told(&second)),
        ("credits", [false, true, true])
    );
    assert_eq!(ask(&service, get()).text(), "credits");
    let refused = ask(&service, get());
    assert_eq!(refused.status, 429);
    let wait: u64 = refused.field("retry-after").unwrap().parse().unwrap();
    assert!(wait > 0 && wait <= 86_400);
}

#[test]
fn a_member_without_a_key_is_passed_over() {
    let plan = Policy::new("plan", FixedWindow::per_day(5));
    let credits = Policy::new("credits", FixedWindow::per_day(5)).key(key::header("x-credits"));
    let plan = plan.key(key::header("x-plan"));
    let layer = layer([plan, credits]);
    let service = layer.layer(service_fn(payer));
    let by = |name| ask(&service, get_with([(name, 1)]));
    assert_eq!(by("x-plan").text(), "plan");
    assert_eq!(by("x-credits").text(), "credits");
    let both = ask(&service, get_with([("x-plan", 1), ("x-credits", 1)]));
    assert_eq!(both.text(), "plan");
}

#[test]
fn a_request_without_a_key_for_any_member_is_refused_or_counted_with_others() {
    let by_header =
        |name: &str| Policy::new(name, FixedWindow::per_day(1)).key(key::header("x-id"));
    let none = |policies| {
        let service = layer(policies).layer(service_fn(payer));
        [(); 3].map(|()| ask(&service, get()).status.as_u16())
    };
    // Each has a place for requests without a key, which pay there in turn.
    assert_eq!(
        none([by_header("plan"), by_header("credits")]),
        [200, 200, 429]
    );
    let refusing =
        |name| by_header(name).on_missing_key(OnMissingKey::Refuse(StatusCode::UNAUTHORIZED));
    let refused = none([refusing("plan"), refusing("credits")]);
    assert_eq!(refused, [401; 3]);
    assert_eq!(
        none([refusing("plan"), by_header("credits")]),
        [200, 429, 429]
    );
}

#[test]
fn a_member_whose_condition_does_not_hold_is_passed_over() {
    let plan = day("plan", 5).when(|head| head.header("x-plan").is_some());
    let layer = layer([plan, day("credits", 5)]);
    let service = layer.layer(service_fn(payer));
    assert_eq!(ask(&service, get_with([("x-plan", 1)])).text(), "plan");
    assert_eq!(ask(&service, get()).text(), "credits");
}

#[test]
fn no_member_applies_and_nobody_pays() {
    let never = |name: &str| day(name, 1).when(|_| false);
    let layer = layer([never("plan"), never("credits")]);
    let service = layer.layer(service_fn(payer));
    for _ in 0..3 {
        assert_eq!(ask(&service, get()).text(), "none");
    }
}

#[tokio::test]
async fn the_policy_that_pays_is_settled_at_the_end() {
    let settled = |name, limit| {
        let settle = Settle::from_ending(|_| Some(1));
        day(name, limit).estimate(5).settle(settle)
    };
    let layer = layer([settled("plan", 6), settled("credits", 100)]);
    let service = layer.layer(service_fn(async |request: Request<Body>| {
        let decision = request.extensions().get::<Decision>();
        let payer = decision.and_then(|decision| decision.payer("spend"));
        let payer = payer.unwrap_or("none").to_owned();
        Ok::<_, Infallible>(Response::new(Full::<bytes::Bytes>::from(payer)))
    }));
    let mut payers = Vec::new();
    for _ in 0..3 {
        let response = service
            .clone()
            .oneshot(Request::new(Body::empty()))
            .await
            .unwrap();
        let body = http_body_util::BodyExt::collect(response.into_body())
            .await
            .unwrap();
        payers.push(String::from_utf8(body.to_bytes().to_vec()).unwrap());
    }
    // After each settlement of the plan 1 of its 6 units is used: 5 are left, then 4.
    assert_eq!(payers, ["plan", "plan", "credits"]);
}

/// The credits are not settled by themselves, and take what the plan has no room for.
#[tokio::test]
async fn what_an_answer_costs_beyond_the_plan_goes_to_the_credits() {
    let settle = Settle::from_ending(|_| Some(5));
    let plan = day("plan", 3).estimate(1).settle(settle);
    let layer = RateLimitLayer::builder()
        .policies([plan, day("credits", 4)])
        .first_of("spend", ["plan", "credits"])
        .spill("spend")
        .build()
        .unwrap();
    let service = layer.layer(service_fn(async |_: Request<Body>| {
        Ok::<_, Infallible>(Response::new(Full::<bytes::Bytes>::from("done")))
    }));
    let request = Request::new(Body::empty());
    let response = service.clone().oneshot(request).await.unwrap();
    drop(response);
    let inspection = layer.limiter().inspect(Key::GLOBAL).await.unwrap();
    let used: Vec<_> = inspection.policies().map(|(_, told)| told.used()).collect();
    assert_eq!(used, [3, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_resolver_and_limits_by_key_set_the_limits_of_members() {
    let resolver = Resolver::new(|_: String| async {
        let own = Plan::new("own").limit("plan", FixedWindow::per_day(2));
        Ok::<_, std::io::Error>(Resolved::Limits(own))
    });
    let of_acme = KeyLimits::new().key("acme", FixedWindow::per_day(2));
    let by_org = |name: &str| Policy::new(name, FixedWindow::per_day(1)).key(key::header("x-org"));
    let layer = RateLimitLayer::builder()
        .policies([by_org("plan"), by_org("credits").key_limits(of_acme)])
        .first_of("spend", ["plan", "credits"])
        .resolver(resolver, |head| head.header("x-org").map(str::to_owned))
        .expose_decision();
    let service = layer.build().unwrap().layer(service_fn(payer));
    for payer in ["plan", "plan", "credits", "credits"] {
        let request = Request::get("/").header("x-org", "acme").body(()).unwrap();
        let answer = service.clone().oneshot(request).await.unwrap();
        assert_eq!(crate::exchange::answer(answer).text(), payer);
    }
}

#[test]
fn a_renamed_member_goes_on_with_what_it_had() {
    let store = MemoryStore::new();
    let layer = |plan: Policy<Http>, member: &str| {
        let builder = RateLimitLayer::builder().policies([plan, day("credits", 9)]);
        let builder = builder
            .first_of("spend", [member, "credits"])
            .expose_decision();
        builder
            .store(store.clone())
            .build()
            .unwrap()
            .layer(service_fn(payer))
    };
    let first = layer(day("plan", 1), "plan");
    assert_eq!(ask(&first, get()).text(), "plan");
    let renamed = layer(day("abo", 1).renamed_from("plan"), "abo");
    assert_eq!(ask(&renamed, get()).text(), "credits");
}
