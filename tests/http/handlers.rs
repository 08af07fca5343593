//! A handler that uses a limiter itself answers like a layer.

use std::convert::Infallible;
use std::error::Error;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Redirect};
use axum::routing::get as route;
use axum::{Extension, Router};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use tower::{Layer, service_fn};
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::key::{Head, Missing};
use tower_ratelimit::middleware::RateLimitLayerBuilder;
use tower_ratelimit::policy::Mode;
use tower_ratelimit::response::{
    Answer, Dialect, OrRefuse, Refusal, RefusalBody, Refused, Reset, Responder,
};
use tower_ratelimit::{
    FixedWindow, Limiter, LocalLimiter, ManualClock, MemoryStore, Policy, RateLimitLayer,
    StoreError, TokenBucket,
};

use crate::exchange::{Behind, Hello, Received, answer, ask, cost, get, get_of_cost, global, now};
use crate::slow_store::{BrokenStore, When};

fn policies() -> [Policy; 3] {
    [
        Policy::new("burst", TokenBucket::per_minute(6).burst(3)),
        Policy::new(
            "free",
            "unlimited".parse::<tower_ratelimit::Algorithm>().unwrap(),
        ),
        Policy::new("daily", FixedWindow::per_day(5)),
    ]
}

fn limiter(clock: &ManualClock) -> LocalLimiter {
    let limiter = Limiter::builder().policies(policies());
    limiter
        .store(MemoryStore::new().clock(clock.clone()))
        .build_local()
        .unwrap()
}

/// Returns a layer with the same policies around a service that answers `hello`.
fn layered(
    clock: &ManualClock,
    options: impl FnOnce(RateLimitLayerBuilder) -> RateLimitLayerBuilder,
) -> Hello {
    let policies = policies().map(|policy| global(policy.name(), *policy.algorithm()).cost(cost));
    let builder = RateLimitLayer::builder().policies(policies);
    let builder = options(builder).store(MemoryStore::new().clock(clock.clone()));
    Hello::behind(&builder.build().unwrap())
}

/// Returns the same service, as a handler that uses the limiter.
fn handled(limiter: &LocalLimiter, responder: &Responder, cost: u32) -> Received {
    let decision = limiter.check("ann", cost).now();
    let response = match decision.or_refuse() {
        Ok(decision) => {
            let mut response = Response::new(Full::<Bytes>::from("hello"));
            responder.add_headers(&decision, &mut response);
            response
        }
        Err(refused) => responder.refuse(refused),
    };
    answer(response)
}

#[track_caller]
fn assert_alike(handled: &Received, layered: &Received) {
    assert_eq!(handled.status, layered.status);
    assert_eq!(handled.headers, layered.headers);
    assert_eq!(handled.text(), layered.text());
    assert_eq!(handled.refusal.is_some(), layered.refusal.is_some());
}

fn page() -> RefusalBody {
    RefusalBody::custom(HeaderValue::from_static("text/html"), |denied| {
        let (name, _) = denied.decision().binding().unwrap();
        format!("<p>{name} {:?}", denied.retry_after())
    })
}

/// Without a `Responder`, such a handler had to write status, headers and body by hand.
#[test]
fn a_responder_answers_as_a_layer_with_the_same_options() {
    let dialects: [&[Dialect]; 6] = [
        &[],
        &[Dialect::Draft11],
        &[Dialect::Draft07],
        &[Dialect::Draft03, Dialect::XRateLimit(Reset::EpochSeconds)],
        &[Dialect::GitHub],
        &[
            Dialect::Draft11,
            Dialect::XRateLimitDashed(Reset::DeltaSeconds),
        ],
    ];
    let bodies = [
        RefusalBody::Problem,
        RefusalBody::BareProblem,
        RefusalBody::Json,
        RefusalBody::Text,
        page(),
    ];
    let status = StatusCode::SERVICE_UNAVAILABLE;
    for dialects in dialects {
        for body in &bodies {
            let clock = ManualClock::new();
            let limiter = limiter(&clock);
            let responder = Responder::builder()
                .dialects(dialects.iter().copied())
                .refusal_body(body.clone())
                .refusal_status(status);
            let responder = responder.build().unwrap();
            let service = layered(&clock, |builder| {
                let builder = builder.dialects(dialects.iter().copied());
                builder.refusal_body(body.clone()).refusal_status(status)
            });
            // The last one can never pass; both policies deny the one before it.
            for (pause, cost) in [(0, 2), (0, 2), (10, 2), (10, 1), (0, 1), (7, 1), (0, 6)] {
                clock.advance(Duration::from_secs(pause));
                let layered = ask(&service, get_of_cost(cost));
                assert_alike(&handled(&limiter, &responder, cost), &layered);
            }
        }
    }
}

#[test]
fn without_options_a_refusal_is_that_of_a_layer_with_the_defaults() {
    let clock = ManualClock::new();
    let (limiter, service) = (limiter(&clock), layered(&clock, |builder| builder));
    let denied = || limiter.check("ann", 4).now();
    let layered = ask(&service, get_of_cost(4));
    assert_eq!(layered.status, 429);
    let refused = || denied().or_refuse().unwrap_err();
    let plain: Response<Full<Bytes>> = refused().into_http();
    assert_alike(&answer(plain), &layered);
    let plain: Response<Full<Bytes>> = Refusal::Denied(denied()).into_http();
    assert_alike(&answer(plain), &layered);
    assert_alike(&answer(refused().into_response()), &layered);
    let refusal = Refusal::Denied(denied());
    assert_alike(&answer(refusal.into_response()), &layered);
}

async fn ask_limiter(
    Extension(limiter): Extension<LocalLimiter>,
    request: Request<Body>,
) -> Result<(Answer, &'static str), Refused> {
    let cost = cost(&Head::of(&request));
    let decision = limiter.check("ann", cost).await?.or_refuse()?;
    Ok((Answer(decision), "hello"))
}

#[test]
fn a_handler_of_axum_answers_with_a_question_mark() {
    let clock = ManualClock::new();
    let (limiter, service) = (limiter(&clock), layered(&clock, |builder| builder));
    let app: Router = Router::new()
        .route("/", route(ask_limiter))
        .layer(Extension(limiter));
    for cost in [1, 2, 1] {
        let layered = ask(&service, get_of_cost(cost));
        let mut handled = ask(&app, get_of_cost(cost).map(|()| Body::empty()));
        if layered.status == 200 {
            // The headers of a text.
            handled.headers.remove("content-type");
            handled.headers.remove("content-length");
        }
        handled.headers.remove("content-length");
        assert_alike(&handled, &layered);
    }
}

#[test]
fn a_layer_outside_adds_nothing_to_the_refusal_of_a_handler() {
    let clock = ManualClock::new();
    let limiter = limiter(&clock);
    let inner = service_fn(move |_: Request<()>| {
        let refused = limiter.check("ann", 4).now().or_refuse().unwrap_err();
        let response: Response<Full<Bytes>> = refused.into_http();
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let layer = RateLimitLayer::builder().policy(global("outer", FixedWindow::per_day(9)));
    let answer = ask(&layer.build().unwrap().layer(inner), get());
    assert_eq!(answer.status, 429);
    assert_eq!(answer.lines("ratelimit").len(), 1);
    assert!(!answer.field("ratelimit-policy").unwrap().contains("outer"));
}

#[test]
fn a_redirect_gets_no_fields_from_a_responder_either() {
    let decision = limiter(&ManualClock::new()).check("ann", 1).now();
    let mut response = Redirect::to("/elsewhere").into_response();
    Responder::default().add_headers(&decision, &mut response);
    assert_eq!(response.headers().get("ratelimit"), None);
}

#[test]
fn a_policy_in_shadow_gets_no_fields_from_a_responder() {
    let told_of = |policies: [(&'static str, Mode); 2]| {
        let policies =
            policies.map(|(name, mode)| Policy::new(name, FixedWindow::per_day(1)).mode(mode));
        let limiter = Limiter::builder().policies(policies).build_local().unwrap();
        let decision = limiter.check("ann", 1).now();
        let mut response = Response::new(());
        Responder::default().add_headers(&decision, &mut response);
        let field = response.headers().get("ratelimit");
        field.map(|field| {
            field
                .to_str()
                .unwrap()
                .split(';')
                .next()
                .unwrap()
                .to_owned()
        })
    };
    let (enforced, shadow) = (Mode::Enforce, Mode::Shadow);
    let one = told_of([("a", enforced), ("b", shadow)]);
    assert_eq!(one.as_deref(), Some("\"a\""));
    assert_eq!(told_of([("a", shadow), ("b", shadow)]), None);
}

#[test]
fn a_store_that_failed_is_answered_as_by_a_layer_and_its_cause_is_kept() {
    let kind = StoreErrorKind::Unavailable;
    let layer = RateLimitLayer::builder()
        .policy(global("a", FixedWindow::per_day(1)))
        .store(BrokenStore {
            when: When::Now,
            kind,
        });
    let layered = ask(&Hello::behind(&layer.build().unwrap()), get());
    let failed = || -> Result<(), Refused> {
        Err(StoreError::new(kind).because("away").caused_by("no route"))?
    };
    let refused = failed().unwrap_err();
    assert!(matches!(refused.refusal(), Refusal::StoreFailed(failed) if *failed == kind));
    let cause = refused.source().unwrap();
    assert!(cause.to_string().ends_with("away"), "{cause}");
    assert_alike(&answer(refused.into_response()), &layered);
}

#[test]
fn other_reasons_have_the_status_that_a_layer_gives_them() {
    let diagnostic = tower_ratelimit::diagnostics::Diagnostic::new("X1", "a", "b", "c");
    for (refusal, status) in [
        (Refusal::Forbidden, 403),
        (Refusal::MissingKey(Missing::ByServer(diagnostic)), 500),
        (Refusal::MissingKey(Missing::ByClient), 400),
        (Refusal::CannotHold(diagnostic), 500),
    ] {
        let answer = answer(refusal.into_response());
        assert_eq!(answer.status, status);
        assert_eq!(answer.field("cache-control"), Some("no-store"));
        assert!(answer.refusal.is_some());
    }
}

#[test]
fn a_body_of_ones_own_sees_the_head_that_a_handler_shows() {
    let body = RefusalBody::custom(HeaderValue::from_static("text/plain"), |denied| {
        denied.head().map_or("none", |_| "some")
    });
    let responder = Responder::builder().refusal_body(body).build().unwrap();
    let refused = || {
        let decision = limiter(&ManualClock::new()).check("ann", 6).now();
        decision.or_refuse().unwrap_err()
    };
    let told: Response<Full<Bytes>> = responder.refuse(refused());
    assert_eq!(answer(told).text(), "none");
    let request = get::<()>();
    let told: Response<Full<Bytes>> = responder.refuse_for(&Head::of(&request), refused());
    assert_eq!(answer(told).text(), "some");
}

#[test]
fn a_responder_spreads_its_waits_too() {
    let body = page();
    let responder = Responder::builder()
        .refusal_body(body)
        .retry_jitter(Duration::from_secs(1_000));
    let responder = responder.build().unwrap();
    let limiter = limiter(&ManualClock::new());
    assert!(limiter.check("ann", 3).now().is_allowed());
    let told: std::collections::BTreeSet<u64> = (0..100)
        .map(|_| {
            let answer = handled(&limiter, &responder, 1);
            let seconds = answer.field("retry-after").unwrap().parse().unwrap();
            assert_eq!(answer.text(), format!("<p>burst Some({seconds}s)"));
            seconds
        })
        .collect();
    assert!(told.iter().all(|wait| (10..=1_010).contains(wait)));
    // The probability that a hundred of a thousand give fewer than fifty is negligible.
    assert!(told.len() > 50, "{told:?}");
}

#[test]
fn a_responder_refuses_what_a_layer_refuses_to_be_built_with() {
    let shared = Responder::builder().dialects([Dialect::Draft11, Dialect::Draft07]);
    assert_eq!(shared.build().unwrap_err().field(), "dialects");
    let fine = Responder::builder().refusal_status(StatusCode::OK);
    assert_eq!(fine.build().unwrap_err().field(), "refusal_status");
    let short = Responder::builder().retry_jitter(Duration::from_millis(1));
    assert_eq!(short.build().unwrap_err().field(), "retry_jitter");
}

#[test]
fn an_answer_that_is_an_error_says_which_policy_it_is_of() {
    let decision = limiter(&ManualClock::new()).check("ann", 6).now();
    let refused = now(async { decision.or_refuse() }).unwrap_err();
    assert_eq!(refused.to_string(), r#"over the limit of "burst""#);
    let size = std::mem::size_of::<Result<(), Refused>>();
    assert_eq!(size, std::mem::size_of::<usize>());
}
