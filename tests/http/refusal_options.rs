//! The options of a refusal: its status, its body, and jitter.

use std::collections::BTreeSet;
use std::time::Duration;

use http::{HeaderValue, Request, StatusCode};
use http_body::Body;
use tower::ServiceExt;
use tower_ratelimit::decision::Outcomes;
use tower_ratelimit::error::StoreErrorKind;
use tower_ratelimit::middleware::RateLimitLayerBuilder;
use tower_ratelimit::response::{Dialect, Refusal, RefusalBody, Reset};
use tower_ratelimit::{
    Algorithm, FixedWindow, ManualClock, MemoryStore, Micros, RateLimitLayer, TokenBucket,
};

use crate::exchange::{Behind, Hello, Received, ask, cost, get, get_of_cost, global, now};
use crate::slow_store::{BrokenStore, Reciting, When};
use crate::structured::list;

/// One a minute under each of these names, 50 s before the next.
fn once(names: &[&str], options: fn(RateLimitLayerBuilder) -> RateLimitLayerBuilder) -> Hello {
    let clock = ManualClock::new();
    let policies = names
        .iter()
        .map(|name| global(name, FixedWindow::per_minute(1)).cost(cost));
    let builder = RateLimitLayer::builder()
        .policies(policies)
        .store(MemoryStore::new().clock(clock.clone()));
    let service = Hello::behind(&options(builder).build().unwrap());
    assert_eq!(ask(&service, get()).status, 200);
    clock.advance(Duration::from_secs(10));
    service
}

/// Returns the refusal, whose body is as long as its header says.
#[track_caller]
fn refused(service: &Hello, cost: u32) -> Received {
    let response = now(service.clone().oneshot(get_of_cost(cost))).unwrap();
    let length = response.body().size_hint().exact();
    let answer = crate::exchange::answer(response);
    assert_eq!(length, Some(answer.body.len() as u64));
    assert_eq!(answer.field("cache-control"), Some("no-store"));
    assert_eq!(answer.lines("content-type").len(), 1);
    answer
}

const PROBLEM: &str = "application/problem+json";

#[test]
fn a_problem_can_leave_out_its_detail() {
    let bare = |builder: RateLimitLayerBuilder| builder.refusal_body(RefusalBody::BareProblem);
    let answer = refused(&once(&["default"], bare), 1);
    assert_eq!(
        answer.text(),
        r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"violated-policies":["default"]}"#
    );
    assert_eq!(answer.body.len(), 143);
    assert_eq!(answer.field("content-type"), Some(PROBLEM));
    assert_eq!(answer.field("retry-after"), Some("50"));

    let names = [r#"a "b""#, r"c\d"];
    let answer = refused(&once(&names, bare), 1);
    let problem: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(problem["violated-policies"], serde_json::json!(names));
    assert_eq!(problem.get("detail"), None);
}

#[test]
fn the_default_problem_has_a_detail_and_all_names() {
    let answer = refused(&once(&["burst", "daily"], |builder| builder), 1);
    assert_eq!(
        answer.text(),
        r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"detail":"Too many requests. Retry after 50 seconds.","violated-policies":["burst","daily"]}"#
    );
    assert_eq!(answer.body.len(), 203);
}

#[test]
fn json_tells_the_wait_where_there_is_one() {
    let service = once(&["a"], |builder| builder.refusal_body(RefusalBody::Json));
    let answer = refused(&service, 1);
    assert_eq!(
        answer.text(),
        r#"{"error":"rate_limit_exceeded","message":"Too many requests. Retry after 50 seconds.","retry_after":50}"#
    );
    assert_eq!(answer.field("content-type"), Some("application/json"));
    assert_eq!(answer.field("retry-after"), Some("50"));
    assert_eq!(answer.field("ratelimit"), Some(r#""a";r=0;t=50"#));
    assert_eq!(
        refused(&service, 2).text(),
        r#"{"error":"rate_limit_exceeded","message":"Too many requests. No wait will let this one pass."}"#
    );
}

#[test]
fn text_is_one_line() {
    let service = once(&["a"], |builder| builder.refusal_body(RefusalBody::Text));
    let answer = refused(&service, 1);
    assert_eq!(
        answer.text(),
        "Too many requests. Retry after 50 seconds.\n"
    );
    let content_type = answer.field("content-type");
    assert_eq!(content_type, Some("text/plain; charset=utf-8"));
}

#[test]
fn a_body_of_ones_own_is_made_of_the_decision() {
    let service = once(&["a", "b"], |builder| {
        let page = RefusalBody::custom(HeaderValue::from_static("text/html"), |denied| {
            let (name, outcome) = denied.decision().binding().unwrap();
            format!("<p>{name} {:?}", outcome.retry_after())
        });
        builder.refusal_body(page).dialects([])
    });
    let answer = refused(&service, 1);
    assert_eq!(answer.text(), "<p>a Some(50s)");
    assert_eq!(answer.field("content-type"), Some("text/html"));
    assert!(matches!(answer.refusal, Some(Refusal::Denied(_))));

    let empty = once(&["a"], |builder| {
        let content_type = HeaderValue::from_static("text/html");
        builder.refusal_body(RefusalBody::custom(content_type, |_| ""))
    });
    assert_eq!(refused(&empty, 1).text(), "");
}

/// A page showed the wait of the decision to its reader, up to ten seconds less than the `Retry-After` beside it. The
/// page could not use the client's language either.
#[test]
fn a_body_of_ones_own_sees_the_wait_that_is_sent_and_the_head_of_the_request() {
    let service = once(&["a"], |builder| {
        let page = RefusalBody::custom(HeaderValue::from_static("text/plain"), |denied| {
            let head = denied.head().unwrap();
            let language = head.header("accept-language");
            format!("{} {language:?} {:?}", head.path(), denied.retry_after())
        });
        let jitter = Duration::from_secs(1_000);
        builder.refusal_body(page).retry_jitter(jitter)
    });
    let refused = |cost: u32| {
        let request = Request::get("/pages?a=b")
            .header("accept-language", "de")
            .header("x-cost", cost);
        ask(&service, request.body(()).unwrap())
    };
    let answer = refused(1);
    let wait: u64 = answer.field("retry-after").unwrap().parse().unwrap();
    assert_eq!(answer.text(), format!(r#"/pages Some("de") Some({wait}s)"#));
    let never = refused(2);
    assert_eq!(never.field("retry-after"), None);
    assert_eq!(never.text(), r#"/pages Some("de") None"#);
}

#[test]
fn the_status_of_a_problem_is_that_of_the_response() {
    let unavailable =
        |builder: RateLimitLayerBuilder| builder.refusal_status(StatusCode::SERVICE_UNAVAILABLE);
    let answer = refused(&once(&["a"], unavailable), 1);
    assert_eq!(answer.status, 503);
    assert_eq!(
        answer.text(),
        r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":503,"detail":"Too many requests. Retry after 50 seconds.","violated-policies":["a"]}"#
    );
    assert_eq!(answer.field("retry-after"), Some("50"));
    let bare = once(&["a"], |builder| {
        builder
            .refusal_status(StatusCode::FORBIDDEN)
            .refusal_body(RefusalBody::BareProblem)
    });
    let answer = refused(&bare, 1);
    assert_eq!(answer.status, 403);
    assert!(
        answer.text().contains(r#""status":403,"violated"#),
        "{}",
        answer.text()
    );
}

#[test]
fn the_answer_to_a_store_failure_does_not_depend_on_the_options() {
    let kind = StoreErrorKind::Unavailable;
    let layer = RateLimitLayer::builder()
        .policy(global("a", FixedWindow::per_day(1)))
        .store(BrokenStore {
            when: When::Now,
            kind,
        })
        .refusal_status(StatusCode::FORBIDDEN)
        .refusal_body(RefusalBody::Text)
        .retry_jitter(Duration::from_secs(1_000))
        .build()
        .unwrap();
    let answer = ask(&Hello::behind(&layer), get());
    assert_eq!(answer.status, 503);
    assert_eq!(answer.body.len(), 109);
    assert_eq!(answer.field("content-type"), Some(PROBLEM));
    assert_eq!(answer.field("retry-after"), Some("5"));
}

#[test]
fn a_status_that_is_no_error_is_refused() {
    for status in [100, 200, 204, 302, 304, 399, 600, 999] {
        let status = StatusCode::from_u16(status).unwrap();
        let builder = RateLimitLayer::builder().policy(global("a", FixedWindow::per_day(1)));
        let error = builder.refusal_status(status).build().unwrap_err();
        assert_eq!(error.field(), "refusal_status");
        assert_eq!(error.value(), status.as_str());
        assert_eq!(error.remedy(), "give a status of an error, 400 to 599");
    }
    for status in [400, 420, 429, 500, 529, 599] {
        let status = StatusCode::from_u16(status).unwrap();
        let builder = RateLimitLayer::builder().policy(global("a", FixedWindow::per_day(1)));
        assert!(builder.refusal_status(status).build().is_ok(), "{status}");
    }
}

/// Returns a service that has refused no request yet, 50 s before any request passes.
fn jittery(options: fn(RateLimitLayerBuilder) -> RateLimitLayerBuilder) -> Hello {
    once(&["a"], options)
}

#[test]
fn a_thousand_requests_refused_at_once_get_the_true_wait_or_some_seconds_more() {
    let service = jittery(|builder| {
        builder
            .retry_jitter(Duration::from_secs(10))
            .dialects([Dialect::Draft11, Dialect::XRateLimit(Reset::DeltaSeconds)])
    });
    let told: BTreeSet<u64> = (0..1_000)
        .map(|_| {
            let answer = refused(&service, 1);
            let seconds = answer.field("retry-after").unwrap().parse().unwrap();
            assert!(
                answer
                    .text()
                    .contains(&format!("Retry after {seconds} seconds."))
            );
            // The moment at which the request can pass has no jitter.
            let limits = list(answer.field("ratelimit").unwrap());
            assert_eq!(limits[0].number("t"), Some(50));
            assert_eq!(answer.field("x-ratelimit-reset"), Some("50"));
            seconds
        })
        .collect();
    // The probability that one of eleven values is missing is 4 in 10^41.
    assert_eq!(told, (50..=60).collect());
    // Where no wait helps, there is no `Retry-After`.
    assert_eq!(refused(&service, 2).field("retry-after"), None);
}

#[test]
fn without_jitter_all_are_told_the_same() {
    let service = jittery(|builder| builder);
    for _ in 0..100 {
        assert_eq!(refused(&service, 1).field("retry-after"), Some("50"));
    }
}

#[test]
fn jitter_does_not_pass_what_31_bits_hold() {
    let century = TokenBucket::new(1, Duration::from_secs(366 * 86_400)).unwrap();
    let layer = RateLimitLayer::builder()
        .policy(global("century", century.burst(100)).cost(cost))
        .retry_jitter(Duration::from_secs(u64::MAX))
        .store(MemoryStore::new().clock(ManualClock::new()))
        .build();
    let service = Hello::behind(&layer.unwrap());
    ask(&service, get_of_cost(100));
    let answer = ask(&service, get_of_cost(100));
    assert_eq!(answer.field("retry-after"), Some("2147483647"));
}

#[test]
fn where_retry_after_is_capped_so_is_every_reset() {
    let century = TokenBucket::new(1, Duration::from_secs(366 * 86_400)).unwrap();
    for (dialect, field, told) in [
        (
            Dialect::Draft07,
            "ratelimit",
            "limit=100, remaining=0, reset=2147483647",
        ),
        (Dialect::Draft06, "ratelimit-reset", "2147483647"),
        (Dialect::Draft03, "ratelimit-reset", "2147483647"),
        (
            Dialect::XRateLimit(Reset::DeltaMillis),
            "x-ratelimit-reset",
            "2147483647000",
        ),
        (Dialect::GitHub, "x-ratelimit-reset", "3851550847"),
    ] {
        let layer = RateLimitLayer::builder()
            .policy(global("century", century.burst(100)).cost(cost))
            .store(MemoryStore::new().clock(ManualClock::new()))
            .dialects([dialect])
            .build();
        let service = Hello::behind(&layer.unwrap());
        ask(&service, get_of_cost(100));
        let answer = ask(&service, get_of_cost(100));
        assert_eq!(answer.field("retry-after"), Some("2147483647"));
        assert_eq!(answer.field(field), Some(told));
    }
}

#[test]
fn jitter_that_is_not_whole_seconds_is_refused() {
    for millis in [1, 1_500] {
        let builder = RateLimitLayer::builder().policy(global("a", FixedWindow::per_day(1)));
        let jitter = Duration::from_millis(millis);
        let error = builder.retry_jitter(jitter).build().unwrap_err();
        assert_eq!(error.field(), "retry_jitter");
        assert_eq!(error.value(), format!("{jitter:?}"));
        assert_eq!(error.remedy(), "give whole seconds");
    }
}

/// The state is left by a larger limit, in a store that outlives the configuration.
#[test]
fn a_limit_lowered_below_what_is_used_leaves_nothing_and_tells_a_wait_that_works() {
    let at = Micros::new(1_800_000_010_000_000);
    let [before, after]: [Algorithm; 2] =
        [100, 50].map(|limit| FixedWindow::per_minute(limit).into());
    let (_, used) = before.step(tower_ratelimit::algorithm::State::default(), at, 80);
    let (outcome, _) = after.step(used, at, 1);
    let mut outcomes = Outcomes::new(at);
    outcomes.push(0, outcome);
    for (dialect, field, told) in [
        (Dialect::Draft11, "ratelimit", r#""a";r=0;t=50"#),
        (
            Dialect::Draft07,
            "ratelimit",
            "limit=50, remaining=0, reset=50",
        ),
        (Dialect::Draft06, "ratelimit-remaining", "0"),
        (Dialect::GitHub, "x-ratelimit-used", "50"),
        (Dialect::GitHub, "x-ratelimit-reset", "1800000060"),
    ] {
        let layer = RateLimitLayer::builder()
            .policy(global("a", after))
            .store(Reciting {
                when: When::Now,
                outcomes: outcomes.clone(),
            })
            .dialects([dialect])
            .build();
        let answer = ask(&Hello::behind(&layer.unwrap()), get());
        assert_eq!(answer.field("retry-after"), Some("50"));
        assert_eq!(answer.field(field), Some(told));
    }
}
