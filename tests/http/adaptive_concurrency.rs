//! A layer with an adaptive limit on requests in flight.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_ratelimit::response::Refusal;
use tower_ratelimit::{FixedWindow, RateLimitLayer, key};
use tower_ratelimit_adapt::middleware::AdaptiveConcurrencyLayer;
use tower_ratelimit_adapt::{AdaptiveConcurrency, Sample};

use crate::exchange::{answer, ask, now, poll};

fn of(slots: u32) -> AdaptiveConcurrency {
    let builder = AdaptiveConcurrency::builder().start(slots).most(slots);
    builder.build().unwrap()
}

/// Answers with the status in the path, and fails if the path is no status.
async fn status(request: Request<()>) -> Result<Response<Full<Bytes>>, &'static str> {
    let status = request.uri().path().trim_start_matches('/').parse();
    let mut response = Response::new(Full::from("hello"));
    *response.status_mut() = status.map_err(|_| "failed")?;
    Ok(response)
}

fn to(path: &str) -> Request<()> {
    Request::builder().uri(path).body(()).unwrap()
}

#[test]
fn a_request_without_a_slot_is_refused_with_503_and_no_wait() {
    let concurrency = of(1);
    let layer = AdaptiveConcurrencyLayer::new(&concurrency);
    let service = layer.layer(service_fn(status));
    let first = now(service.clone().oneshot(to("/200"))).unwrap();
    let refused = ask(&service, to("/200"));
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        refused.field("ratelimit-policy"),
        Some(r#""concurrency";q=1;qu="concurrent-requests""#)
    );
    assert_eq!(refused.field("ratelimit"), Some(r#""concurrency";r=0"#));
    assert_eq!(refused.field("retry-after"), None);
    assert_eq!(refused.field("cache-control"), Some("no-store"));
    assert_eq!(
        refused.text(),
        r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporary Reduced Capacity","status":503,"detail":"Too many requests are in flight.","violated-policies":["concurrency"]}"#
    );
    assert!(matches!(
        refused.refusal,
        Some(Refusal::Saturated { limit: 1 })
    ));

    // At the end of the first body.
    let _ = now(first.into_body().collect()).unwrap();
    assert_eq!(ask(&service, to("/200")).status, StatusCode::OK);
    assert_eq!(concurrency.in_flight(), 0);
    assert_eq!(concurrency.refused(), 1);
}

#[test]
fn a_refusal_is_429_where_that_is_chosen() {
    let concurrency = of(1);
    let layer = AdaptiveConcurrencyLayer::new(&concurrency).too_many_requests();
    let service = layer.layer(service_fn(status));
    let _first = now(service.clone().oneshot(to("/200"))).unwrap();
    let refused = ask(&service, to("/200"));
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.text().contains(r#""status":429"#));
}

#[test]
fn a_call_of_grpc_without_a_slot_is_unavailable() {
    let concurrency = of(1);
    let service = AdaptiveConcurrencyLayer::new(&concurrency).layer(service_fn(status));
    let _first = now(service.clone().oneshot(to("/200"))).unwrap();
    let mut call = to("/200");
    let content_type = "application/grpc".parse().unwrap();
    call.headers_mut().insert("content-type", content_type);
    let refused = ask(&service, call);
    assert_eq!(refused.status, StatusCode::OK);
    assert_eq!(refused.field("grpc-status"), Some("14"));
    let message = refused.field("grpc-message");
    assert_eq!(message, Some("too%20many%20calls%20are%20in%20flight"));
    assert_eq!(refused.field("content-type"), Some("application/grpc"));
    assert_eq!(refused.field("ratelimit"), Some(r#""concurrency";r=0"#));
    assert!(refused.body.is_empty());
}

/// A service that is not ready is not overloaded, and holds no slot.
#[test]
fn nothing_is_shed_on_pending_alone() {
    let concurrency = of(1);
    let layer = AdaptiveConcurrencyLayer::new(&concurrency);
    let inner = tower::limit::ConcurrencyLimit::new(service_fn(status), 1);
    let (mut first, mut second) = (layer.layer(inner.clone()), layer.layer(inner));
    assert!(poll(std::pin::pin!(first.ready())).is_ready());
    // The other clone waits for the inner service, for as long as the first is idle.
    assert!(poll(std::pin::pin!(second.ready())).is_pending());
    assert_eq!((concurrency.in_flight(), concurrency.refused()), (0, 0));
    assert_eq!(
        now(first.call(to("/200"))).unwrap().status(),
        StatusCode::OK
    );
    drop(first);
    assert!(poll(std::pin::pin!(second.ready())).is_ready());
}

#[test]
fn a_slot_is_free_when_the_body_has_ended_or_either_is_dropped() {
    let concurrency = of(5);
    let layer = AdaptiveConcurrencyLayer::new(&concurrency);
    let service = layer.layer(service_fn(status));
    drop(now(service.clone().oneshot(to("/200"))).unwrap());
    assert!(now(service.clone().oneshot(to("/none"))).is_err());
    assert_eq!(concurrency.in_flight(), 0);

    let pending = service_fn(|_: Request<()>| {
        std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>()
    });
    let mut service = layer.layer(pending);
    let mut call = Box::pin(service.call(to("/")));
    assert!(poll(call.as_mut()).is_pending());
    assert_eq!(concurrency.in_flight(), 1);
    drop(call);
    assert_eq!(concurrency.in_flight(), 0);

    // Trailers end the request, even if the body is kept.
    let frames = || {
        let frames = [
            Ok::<_, Infallible>(Frame::data(Bytes::from("a"))),
            Ok(Frame::trailers(HeaderMap::new())),
        ];
        BoxBody::new(StreamBody::new(tokio_stream::iter(frames)))
    };
    let service = layer.layer(service_fn(move |_: Request<()>| async move {
        Ok::<_, Infallible>(Response::new(frames()))
    }));
    let mut body = now(service.oneshot(to("/"))).unwrap().into_body();
    assert!(now(body.frame()).unwrap().unwrap().is_data());
    assert_eq!(concurrency.in_flight(), 1);
    assert!(now(body.frame()).unwrap().unwrap().is_trailers());
    assert_eq!(concurrency.in_flight(), 0);
}

#[test]
fn probes_take_no_slot() {
    let concurrency = of(1);
    let layer = AdaptiveConcurrencyLayer::new(&concurrency).except(|head| head.path() == "/204");
    let service = layer.layer(service_fn(status));
    let _first = now(service.clone().oneshot(to("/200"))).unwrap();
    assert_eq!(ask(&service, to("/204")).status, StatusCode::NO_CONTENT);
    assert_eq!(
        ask(&service, to("/200")).status,
        StatusCode::SERVICE_UNAVAILABLE
    );
}

#[test]
fn a_partition_keeps_its_share() {
    let concurrency = AdaptiveConcurrency::builder()
        .start(2)
        .partition("checkout", 50)
        .build()
        .unwrap();
    let layer = AdaptiveConcurrencyLayer::new(&concurrency);
    let layer = layer.partition_of(|head| head.path().starts_with("/201").then_some("checkout"));
    let service = layer.layer(service_fn(status));
    let _held = [to("/200"), to("/200")].map(|it| now(service.clone().oneshot(it)).unwrap());
    assert_eq!(
        ask(&service, to("/200")).status,
        StatusCode::SERVICE_UNAVAILABLE
    );
    assert_eq!(ask(&service, to("/201")).status, StatusCode::CREATED);
}

#[test]
fn a_failure_is_classified_before_it_is_a_sample() {
    let with = |status: u16, call: Option<&str>| {
        let mut response = Response::builder().status(status);
        if let Some(code) = call {
            response = response.header("grpc-status", code);
        }
        let (head, ()) = response.body(()).unwrap().into_parts();
        Sample::of(&head)
    };
    for status in [200, 204, 304] {
        assert_eq!(with(status, None), Sample::Served, "{status}");
    }
    for status in [400, 404, 429, 500, 502] {
        assert_eq!(with(status, None), Sample::Nothing, "{status}");
    }
    for status in [503, 504] {
        assert_eq!(with(status, None), Sample::Overloaded, "{status}");
    }
    for (code, sample) in [
        ("0", Sample::Served),
        ("4", Sample::Overloaded),
        ("8", Sample::Overloaded),
        ("14", Sample::Overloaded),
        ("5", Sample::Nothing),
    ] {
        assert_eq!(with(200, Some(code)), sample, "grpc-status {code}");
    }
}

/// An inner rate limit refuses at once, and that is no sign of a healthy service.
#[test]
fn a_refusal_of_a_rate_limit_teaches_nothing_and_a_shed_request_is_charged_nothing() {
    let concurrency = of(1);
    let limit = RateLimitLayer::new(key::global(), FixedWindow::per_day(2));
    let inner = limit.layer(service_fn(status));
    let service = AdaptiveConcurrencyLayer::new(&concurrency).layer(inner);
    let first = now(service.clone().oneshot(to("/200"))).unwrap();
    for _ in 0..5 {
        let shed = ask(&service, to("/200"));
        assert!(matches!(shed.refusal, Some(Refusal::Saturated { .. })));
    }
    drop(answer(first));
    assert_eq!(ask(&service, to("/200")).status, StatusCode::OK);
    let refused = now(service.oneshot(to("/200"))).unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let (head, _) = refused.into_parts();
    assert_eq!(Sample::of(&head), Sample::Nothing);
}
