//! The refusal of a layer: status, headers, problem and the typed reason.

use std::time::Duration;

use http::StatusCode;
use tower::ServiceExt;
use tower_ratelimit::__internal::Sealed;
use tower_ratelimit::decision::Outcomes;
use tower_ratelimit::diagnostics::Diagnostic;
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::key::{Head, Key, Missing};
use tower_ratelimit::policy::Rule;
use tower_ratelimit::response::Refusal;
use tower_ratelimit::store::{Charge, Store};
use tower_ratelimit::{
    FixedWindow, ManualClock, MemoryStore, Micros, Policy, RateLimitLayer, TokenBucket, key,
};

use crate::exchange::{
    Behind, Hello, Received, ask, cost, get, get_of_cost, global, limit, limited_hello, now,
};
use crate::slow_store::{BrokenStore, Reciting, When};

const QUOTA_EXCEEDED: &str = r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"detail":"DETAIL","violated-policies":[NAMES]}"#;

fn problem(detail: &str, names: &str) -> String {
    QUOTA_EXCEEDED
        .replace("DETAIL", detail)
        .replace("NAMES", names)
}

/// Asserts the parts that every refusal of the layer has, whatever its status.
#[track_caller]
fn assert_is_a_problem_that_no_cache_keeps(answer: &Received) {
    assert_eq!(answer.field("cache-control"), Some("no-store"));
    assert_eq!(
        answer.field("content-type"),
        Some("application/problem+json")
    );
    let problem: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(problem["status"], answer.status.as_u16());
    assert!(problem["type"].is_string() && problem["title"].is_string());
}

#[test]
fn the_problem_names_the_policy_that_denied_and_the_wait() {
    let (clock, service) = limited_hello([global("default", FixedWindow::per_minute(1))]);
    clock.advance(Duration::from_millis(10_800));
    ask(&service, get());
    let answer = ask(&service, get());
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.field("retry-after"), Some("50"));
    assert_eq!(
        answer.text(),
        problem("Too many requests. Retry after 50 seconds.", r#""default""#)
    );
    assert_is_a_problem_that_no_cache_keeps(&answer);
}

#[test]
fn the_problem_names_all_policies_that_denied() {
    let window = FixedWindow::per_minute(1);
    let policies = [
        global("burst", window),
        global("roomy", FixedWindow::per_minute(2)),
        global("daily", window),
    ];
    let (clock, service) = limited_hello(policies);
    clock.advance(Duration::from_secs(10));
    ask(&service, get());
    let answer = ask(&service, get());
    assert_eq!(
        answer.text(),
        problem(
            "Too many requests. Retry after 50 seconds.",
            r#""burst","daily""#
        )
    );
    assert_eq!(answer.body.len(), 203);
    assert_is_a_problem_that_no_cache_keeps(&answer);
}

#[test]
fn one_second_is_singular() {
    let (_, service) = limited_hello([global("a", TokenBucket::per_second(1))]);
    ask(&service, get());
    let answer = ask(&service, get());
    assert_eq!(
        answer.text(),
        problem("Too many requests. Retry after 1 second.", r#""a""#)
    );
}

#[test]
fn a_request_that_no_wait_can_help_is_told_so() {
    let (_, service) = limited_hello([global("a", TokenBucket::per_second(1)).cost(cost)]);
    let answer = ask(&service, get_of_cost(2));
    assert_eq!(
        answer.text(),
        problem(
            "Too many requests. No wait will let this one pass.",
            r#""a""#
        )
    );
    assert_eq!(answer.field("retry-after"), None);
    assert_is_a_problem_that_no_cache_keeps(&answer);
}

#[test]
fn the_longest_wait_is_told_beside_the_wait_of_each_policy() {
    let (_, service) = limited_hello([
        global("minute", FixedWindow::per_minute(1)),
        global("hour", FixedWindow::per_hour(1)),
        global("second", FixedWindow::per_second(1)),
    ]);
    ask(&service, get());
    let answer = ask(&service, get());
    assert_eq!(answer.field("retry-after"), Some("3600"));
    assert_eq!(
        answer.field("ratelimit"),
        Some(r#""minute";r=0;t=60, "hour";r=0;t=3600, "second";r=0;t=1"#)
    );
}

#[test]
fn a_denial_carries_its_decision_for_layers_outside() {
    let (_, service) = limited_hello([
        global("roomy", FixedWindow::per_day(9)),
        global("tight", FixedWindow::per_hour(1)),
    ]);
    assert!(ask(&service, get()).refusal.is_none());
    let refusal = ask(&service, get()).refusal;
    let Some(Refusal::Denied(decision)) = refusal else {
        panic!("{refusal:?}");
    };
    assert!(!decision.is_allowed());
    assert_eq!(decision.retry_after(), Some(Duration::from_secs(3600)));
    assert_eq!(decision.binding().unwrap().0, "tight");
    let remaining: Vec<_> = decision
        .policies()
        .map(|(name, outcome)| (name, outcome.is_allowed(), outcome.remaining()))
        .collect();
    assert_eq!(remaining, [("roomy", true, 8), ("tight", false, 0)]);
}

#[test]
fn a_key_that_the_server_does_not_provide_is_500_and_charges_no_request() {
    #[derive(Clone)]
    struct Identity;
    impl key::IntoKey for Identity {
        fn into_key(self) -> key::Key {
            "ann".into_key()
        }
    }
    let (_, service) = limited_hello([
        global("first", FixedWindow::per_day(1)),
        Policy::new("second", FixedWindow::per_day(1)).key(key::extension::<Identity>()),
    ]);

    let answer = ask(&service, get());
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(
        answer.text(),
        r#"{"type":"about:blank","title":"Internal Server Error","status":500}"#
    );
    assert_is_a_problem_that_no_cache_keeps(&answer);
    answer.assert_no_fields();
    let Some(Refusal::MissingKey(Missing::ByServer(diagnostic))) = answer.refusal else {
        panic!("{answer:?}");
    };
    assert_eq!(diagnostic.code(), "TRL002");
    assert!(diagnostic.subject().ends_with("Identity"), "{diagnostic}");

    let mut identified = get();
    identified.extensions_mut().insert(Identity);
    let answer = ask(&service, identified);
    assert_eq!(
        answer.status,
        StatusCode::OK,
        "the first policy was charged"
    );
}

#[test]
fn a_store_failure_is_503_and_never_429() {
    for when in [When::Now, When::Later] {
        for kind in [StoreErrorKind::Unavailable, StoreErrorKind::Misconfigured] {
            let layer = RateLimitLayer::builder()
                .policy(global("default", FixedWindow::per_minute(100)))
                .store(BrokenStore { when, kind })
                .build()
                .unwrap();
            let answer = ask(&Hello::behind(&layer), get());
            assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(
                answer.text(),
                r#"{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"The rate limiter is unavailable."}"#
            );
            assert_eq!(answer.body.len(), 109);
            assert_eq!(answer.field("retry-after"), Some("5"));
            assert_eq!(answer.field("ratelimit"), None);
            assert_eq!(answer.field("ratelimit-policy"), None);
            assert_is_a_problem_that_no_cache_keeps(&answer);
            assert!(
                matches!(answer.refusal, Some(Refusal::StoreFailed(told)) if told == kind),
                "{answer:?}"
            );
        }
    }
}

#[test]
fn a_failed_store_tells_a_limiter_its_kind_and_whether_a_retry_can_help() {
    for (kind, transient) in [
        (StoreErrorKind::Unavailable, true),
        (StoreErrorKind::Misconfigured, false),
    ] {
        let when = When::Later;
        let limiter = tower_ratelimit::Limiter::builder()
            .policy(Policy::new("default", FixedWindow::per_minute(100)))
            .store(BrokenStore { when, kind })
            .build()
            .unwrap();
        let error = now(limiter.check("ann", 1)).unwrap_err();
        assert_eq!((error.kind(), error.is_transient()), (kind, transient));
    }
}

#[test]
fn a_store_that_cannot_hold_a_policy_is_an_error_when_the_layer_is_built() {
    struct Choosy;
    impl Sealed for Choosy {}

    impl Store for Choosy {
        type Backend = tower_ratelimit::store::MemoryBackend;

        fn open(&self, _: &[Rule]) -> Result<Self::Backend, tower_ratelimit::ConfigError> {
            Err("1/month".parse::<tower_ratelimit::Quota>().unwrap_err())
        }
    }
    let builder = RateLimitLayer::builder().policy(global("a", FixedWindow::per_day(1)));
    let error = builder.store(Choosy).build().unwrap_err();
    assert_eq!(error.field(), "period");
}

#[test]
fn an_answer_about_other_policies_is_a_failure_and_one_out_of_order_is_put_right() {
    let policy = |name| Rule::new(name, FixedWindow::per_minute(2));
    let names = ["a", "b", "c"];
    let store = MemoryStore::new().clock(ManualClock::new());
    let memory = store.open(&names.map(policy)).unwrap();
    let answer = |policies: &[usize]| {
        let charge = |policy: &usize| Charge::new(*policy, Key::MISSING, 0);
        let charges: Vec<_> = policies.iter().map(charge).collect();
        let told = memory.charge_now(&charges);
        let mut outcomes = Outcomes::new(Micros::ZERO);
        for policy in policies {
            let (_, outcome) = told.iter().find(|(told, _)| told == policy).unwrap();
            outcomes.push(*policy, *outcome);
        }
        outcomes
    };
    for when in [When::Now, When::Later] {
        for (policies, status) in [
            (&[0, 1][..], 200),
            (&[1, 0], 200),
            (&[0], 503),
            (&[], 503),
            (&[0, 2], 503),
            (&[0, 1, 2], 503),
        ] {
            let outcomes = answer(policies);
            let layer = RateLimitLayer::builder()
                .policy(global("a", FixedWindow::per_minute(2)))
                .policy(global("b", FixedWindow::per_minute(2)))
                .store(Reciting { when, outcomes })
                .build()
                .unwrap();
            let answer = ask(&Hello::behind(&layer), get());
            assert_eq!(answer.status, status, "{policies:?} {when:?}");
            let policies = r#""a";q=2;w=60, "b";q=2;w=60"#;
            let told = (status == 200).then_some(policies);
            assert_eq!(answer.field("ratelimit-policy"), told);
        }
    }
}

const NO_KEY: Diagnostic = Diagnostic::new("TEST002", "a test", "no key", "none");

#[test]
fn a_refusal_repeats_nothing_of_the_request() {
    let keyless = |_: &Head<'_>| Err::<Key, _>(Missing::ByServer(NO_KEY));
    let (_, keyless) = limit([Policy::new("a", FixedWindow::per_minute(1)).key(keyless)]);
    let (_, closed) = limit([global("a", FixedWindow::per_day(0))]);
    let broken = BrokenStore {
        when: When::Later,
        kind: StoreErrorKind::Unavailable,
    };
    let builder = RateLimitLayer::builder().policy(global("a", FixedWindow::per_day(1)));
    let broken = builder.store(broken).build().unwrap();
    for (layer, status) in [(keyless, 500), (closed, 429), (broken, 503)] {
        let mut request = get::<()>();
        request.extensions_mut().insert("a secret");
        let response = now(Hello::behind(&layer).oneshot(request)).unwrap();
        assert_eq!(response.status(), status);
        let extensions = response.extensions();
        assert_eq!(extensions.len(), 1, "{status}");
        assert!(extensions.get::<Refusal>().is_some(), "{status}");
    }
}
