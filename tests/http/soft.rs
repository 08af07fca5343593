//! Soft policies: a request over their limit goes on, marked.

use std::convert::Infallible;

use http::{Request, Response, StatusCode};
use http_body_util::Full;
use proptest::prelude::*;
use tower::{Layer, service_fn};
use tower_ratelimit::middleware::OverLimit;
use tower_ratelimit::response::{Dialect, Reset};
use tower_ratelimit::{
    Algorithm, AnchoredWindow, Decision, FixedWindow, ManualClock, MemoryStore, Policy,
};
use tower_ratelimit::{Limiter, RateLimitLayer, TokenBucket};

use crate::exchange::{Behind, Hello, ask, cost, get, get_of_cost, global, limit, limited_hello};

/// Says which soft policies the request is over.
pub(crate) async fn over(request: Request<()>) -> Result<Response<Full<bytes::Bytes>>, Infallible> {
    let over = match request.extensions().get::<OverLimit>() {
        Some(over) => over
            .decision()
            .over_limit()
            .map(|(name, _)| name)
            .collect::<Vec<_>>()
            .join(" "),
        None => "none".to_owned(),
    };
    Ok(Response::new(Full::from(over)))
}

#[test]
fn a_request_over_a_soft_limit_goes_on_marked_and_over_a_hard_one_is_refused() {
    let (_, layer) = limit([
        global("cheap", FixedWindow::per_day(1)).soft(),
        global("dear", FixedWindow::per_day(2)).soft(),
        global("all", FixedWindow::per_day(3)),
    ]);
    let service = layer.layer(service_fn(over));
    let told = [
        (
            "none",
            r#""cheap";r=0;t=86400, "dear";r=1;t=86400, "all";r=2;t=86400"#,
        ),
        (
            "cheap",
            r#""cheap";r=0;t=86400, "dear";r=0;t=86400, "all";r=1;t=86400"#,
        ),
        (
            "cheap dear",
            r#""cheap";r=0;t=86400, "dear";r=0;t=86400, "all";r=0;t=86400"#,
        ),
    ];
    for (marked, fields) in told {
        let answer = ask(&service, get());
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.text(), marked);
        assert_eq!(answer.field("ratelimit"), Some(fields));
        assert_eq!(answer.field("retry-after"), None);
    }
    let answer = ask(&service, get());
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.field("ratelimit"), Some(r#""all";r=0;t=86400"#));
    assert!(
        answer.text().ends_with(r#""violated-policies":["all"]}"#),
        "{}",
        answer.text()
    );
}

#[test]
fn a_soft_policy_alone_refuses_no_request() {
    let (_, service) = limited_hello([global("soft", FixedWindow::per_day(1)).soft()]);
    for _ in 0..5 {
        assert_eq!(ask(&service, get()).status, StatusCode::OK);
    }
}

#[test]
fn requests_are_marked_though_no_fields_are_sent_and_no_decision_is_exposed() {
    let layer = RateLimitLayer::builder()
        .policy(global("soft", AnchoredWindow::per_day(1)).soft())
        .without_headers()
        .build()
        .unwrap();
    let service = layer.layer(service_fn(over));
    assert_eq!(ask(&service, get()).text(), "none");
    let answer = ask(&service, get());
    assert_eq!(answer.text(), "soft");
    answer.assert_no_fields();
}

#[test]
fn a_request_over_a_soft_limit_is_charged_to_the_hard_limits_alone() {
    let (clock, service) = limited_hello([
        global("soft", FixedWindow::per_day(5)).soft().cost(cost),
        global("hard", FixedWindow::per_day(10)).cost(cost),
    ]);
    let first = ask(&service, get_of_cost(6));
    assert_eq!(
        first.field("ratelimit"),
        Some(r#""soft";r=5;t=86400, "hard";r=4;t=86400"#)
    );
    let second = ask(&service, get_of_cost(4));
    assert_eq!(
        second.field("ratelimit"),
        Some(r#""soft";r=1;t=86400, "hard";r=0;t=86400"#)
    );
    // The hard policy denies the request, and both charge nothing.
    assert_eq!(
        ask(&service, get_of_cost(1)).status,
        StatusCode::TOO_MANY_REQUESTS
    );
    clock.advance(std::time::Duration::from_secs(86_400));
    assert_eq!(ask(&service, get_of_cost(1)).status, StatusCode::OK);
}

#[test]
fn the_wait_of_a_refusal_is_that_of_the_hard_policies() {
    let (clock, service) = limited_hello([
        global("soft", FixedWindow::per_day(1)).soft(),
        global("hard", TokenBucket::per_second(1)),
    ]);
    ask(&service, get());
    let refused = ask(&service, get());
    assert_eq!(refused.field("retry-after"), Some("1"));
    clock.advance(std::time::Duration::from_secs(1));
    assert_eq!(ask(&service, get()).status, StatusCode::OK);
}

/// Nine more pass, though none within the soft limit.
#[test]
fn a_soft_policy_does_not_hide_what_remains_under_a_hard_one() {
    let layer = RateLimitLayer::builder()
        .policy(global("soft", AnchoredWindow::per_day(1)).soft())
        .policy(global("hard", AnchoredWindow::per_day(9)))
        .dialects([Dialect::XRateLimit(Reset::DeltaSeconds)])
        .build()
        .unwrap();
    let answer = ask(&Hello::behind(&layer), get());
    assert_eq!(answer.field("x-ratelimit-remaining"), Some("8"));
}

fn algorithm() -> impl Strategy<Value = Algorithm> {
    const KINDS: &[&str] = &[
        "fixed-window",
        "sliding-log",
        "sliding-window",
        "token-bucket",
        "anchored-window",
    ];
    (prop::sample::select(KINDS), 1..6_u32, 1..4_u32)
        .prop_map(|(kind, limit, secs)| format!("{kind} {limit}/{secs}s").parse().unwrap())
}

/// Law 10 with soft policies: the hard policies decide as if the soft ones did not exist, and each soft policy
/// decides as if it were alone among the requests that went on.
fn law_10(policies: &[(Algorithm, bool)], attempts: &[(u64, u32)]) -> Result<(), TestCaseError> {
    let clock = ManualClock::new();
    let store = || MemoryStore::new().clock(clock.clone());
    let of = |index: usize| {
        let (algorithm, is_soft) = policies[index];
        let policy = Policy::new(index.to_string(), algorithm);
        if is_soft { policy.soft() } else { policy }
    };
    let together = Limiter::builder()
        .policies((0..policies.len()).map(of))
        .store(store())
        .build_local()
        .unwrap();
    let hard: Vec<_> = (0..policies.len())
        .filter(|index| !policies[*index].1)
        .collect();
    let hard_alone = Limiter::builder()
        .policies(hard.iter().map(|index| of(*index)))
        .store(store())
        .build_local();
    let each_alone: Vec<_> = (0..policies.len())
        .map(|index| {
            Limiter::builder()
                .policy(Policy::new("one", policies[index].0))
                .store(store())
                .build_local()
                .unwrap()
        })
        .collect();
    let numbers = |decision: &Decision| {
        let told = decision.policies();
        told.map(|(name, outcome)| (name.to_owned(), outcome.remaining(), outcome.retry_after()))
            .collect::<Vec<_>>()
    };
    for (pause, cost) in attempts {
        clock.advance(std::time::Duration::from_millis(*pause));
        let decision = together.check("ann", *cost).now();
        let told = numbers(&decision);
        if let Ok(hard_alone) = &hard_alone {
            let expected = hard_alone.check("ann", *cost).now();
            prop_assert_eq!(decision.is_allowed(), expected.is_allowed());
            let told_by_hard: Vec<_> = hard.iter().map(|index| told[*index].clone()).collect();
            prop_assert_eq!(told_by_hard, numbers(&expected));
        } else {
            prop_assert!(decision.is_allowed());
        }
        for index in (0..policies.len()).filter(|index| policies[*index].1) {
            // A request that does not go on is charged nothing.
            if !decision.is_allowed() {
                continue;
            }
            let expected = each_alone[index].check("ann", *cost).now();
            let (_, outcome) = decision.policies().nth(index).unwrap();
            prop_assert!(outcome.is_soft());
            prop_assert_eq!(outcome.is_allowed(), expected.is_allowed());
            prop_assert_eq!(
                outcome.remaining(),
                expected.policies().next().unwrap().1.remaining()
            );
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn law_10_holds_among_the_hard_policies_and_each_soft_one_counts_what_went_on(
        policies in prop::collection::vec((algorithm(), any::<bool>()), 1..5),
        attempts in prop::collection::vec((0..900_u64, 0..4_u32), 1..40),
    ) {
        law_10(&policies, &attempts)?;
    }
}
