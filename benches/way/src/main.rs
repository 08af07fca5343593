//! Sends some requests through a layer, for a profiler: `way LAYER REQUESTS`. It has one client and never waits.

use std::convert::Infallible;
use std::env;
use std::fmt::Debug;
use std::hint::black_box;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use axum::body::Body;
use axum::extract::ConnectInfo;
use http::{Request, Response};
use tower::{Layer, Service, service_fn};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;
use tower_ratelimit::{RateLimitLayer, TokenBucket, key};

const BURST: u32 = 1_000_000;

fn main() {
    let mut arguments = env::args().skip(1);
    let layer = arguments.next().expect("the name of a layer");
    let requests = arguments.next().expect("a number of requests");
    let requests: u32 = requests.parse().expect("a number of requests");
    let inner =
        service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
    match &*layer {
        "tower-ratelimit" => {
            let limit = TokenBucket::per_second(5).burst(BURST);
            let layer = RateLimitLayer::new(key::client_ip(), limit);
            send(layer.layer(inner), requests);
        }
        "tower_governor" => {
            let config = GovernorConfigBuilder::default()
                .per_second(5)
                .burst_size(BURST)
                .finish();
            let layer = GovernorLayer::new(config.expect("neither number is zero"));
            send::<_, Body>(layer.layer(inner), requests);
        }
        other => panic!("there is no layer {other:?}"),
    }
}

/// Sends one request, which makes the state of the client, and then these.
fn send<S, B>(mut service: S, requests: u32)
where
    S: Service<Request<Body>, Response = Response<B>, Error: Debug>,
{
    let mut cx = Context::from_waker(Waker::noop());
    for sent in 0..=requests {
        let mut request = Request::new(Body::empty());
        let peer = SocketAddr::from(([192, 0, 2, 7], 4000));
        request.extensions_mut().insert(ConnectInfo(peer));
        let request = black_box(request);
        assert!(service.poll_ready(&mut cx).is_ready());
        let is_answered = if sent == 0 {
            answers(&mut service, request, &mut cx)
        } else {
            answers_measured(&mut service, request, &mut cx)
        };
        assert!(is_answered, "the service waits, fails or refuses");
    }
}

/// The function whose instructions the profiler counts.
#[inline(never)]
fn answers_measured<S, B>(service: &mut S, request: Request<Body>, cx: &mut Context<'_>) -> bool
where
    S: Service<Request<Body>, Response = Response<B>, Error: Debug>,
{
    answers(service, request, cx)
}

fn answers<S, B>(service: &mut S, request: Request<Body>, cx: &mut Context<'_>) -> bool
where
    S: Service<Request<Body>, Response = Response<B>, Error: Debug>,
{
    let answer = pin!(service.call(request)).poll(cx);
    matches!(answer, Poll::Ready(Ok(response)) if response.status() == 200)
}
