//! What a layer counts of the requests of its service.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_ratelimit_adapt::middleware::TrafficLayer;
use tower_ratelimit_adapt::{Load, Signal, Traffic};

use crate::exchange::{now, poll};

/// Answers with the status in the path, and fails if that is no status.
async fn answer(request: Request<()>) -> Result<Response<Full<Bytes>>, &'static str> {
    let status = request
        .uri()
        .path()
        .trim_start_matches('/')
        .parse()
        .map_err(|_| "failed")?;
    let mut response = Response::new(Full::from("hello"));
    *response.status_mut() = status;
    Ok(response)
}

fn to(path: &str) -> Request<()> {
    Request::builder().uri(path).body(()).unwrap()
}

#[test]
fn a_request_is_under_way_until_the_end_of_its_body() {
    let traffic = Traffic::new();
    let mut in_flight = traffic.in_flight(NonZeroU32::new(10).unwrap());
    let mut read = || in_flight.read(Duration::ZERO).unwrap();
    let service = TrafficLayer::new(&traffic).layer(service_fn(answer));

    let response = now(service.clone().oneshot(to("/200"))).unwrap();
    read();
    assert_eq!(read(), Load::percent(10));
    let _ = now(response.into_body().collect()).unwrap();
    read();
    assert_eq!(read(), Load::NONE);

    // So is one whose body is not read, and one whose client is gone before the answer.
    drop(now(service.clone().oneshot(to("/200"))).unwrap());
    read();
    assert_eq!(read(), Load::NONE);
    let pending = service_fn(|_: Request<()>| {
        std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>()
    });
    let mut service = TrafficLayer::new(&traffic).layer(pending);
    let mut call = Box::pin(service.call(to("/")));
    assert!(poll(call.as_mut()).is_pending());
    assert_eq!(read(), Load::percent(10));
    drop(call);
    read();
    assert_eq!(read(), Load::NONE);
}

#[test]
fn errors_of_the_server_and_of_the_service_are_failures() {
    let traffic = Traffic::new();
    let mut failures = traffic.failures();
    let service = TrafficLayer::new(&traffic).layer(service_fn(answer));
    for (path, requests) in [("/200", 60), ("/404", 20), ("/503", 15), ("/no-status", 5)] {
        for _ in 0..requests {
            let _ = now(service.clone().oneshot(to(path)));
        }
    }
    assert_eq!(failures.read(Duration::ZERO), Some(Load::percent(20)));
}

#[test]
fn probes_are_left_out() {
    let traffic = Traffic::new();
    let mut latency = traffic.latency(Duration::from_secs(1));
    let layer = TrafficLayer::new(&traffic).except(|head| head.path() == "/204");
    let service = layer.layer(service_fn(answer));
    for _ in 0..100 {
        let probe = now(service.clone().oneshot(to("/204"))).unwrap();
        assert_eq!(probe.status(), StatusCode::NO_CONTENT);
    }
    assert_eq!(latency.read(Duration::ZERO), None);
    for _ in 0..100 {
        now(service.clone().oneshot(to("/200"))).unwrap();
    }
    assert!(latency.read(Duration::ZERO).is_some());
}
