//! What a layer adds to a service: ours beside `tower_governor`'s, in one run.
//!
//! Each iteration builds a request and drives the response to its end; `bare` is the service
//! alone, to be subtracted from the others. Both layers write their header fields, and both read
//! the clock that they come with: ours std's, the peer's `quanta`.

use std::convert::Infallible;
use std::hint::black_box;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::body::Body;
use axum::extract::ConnectInfo;
use criterion::{Criterion, criterion_group, criterion_main};
use http::{Request, Response, StatusCode};
use tower::{Layer, Service, service_fn};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;
use tower_ratelimit::{Gcra, RateLimitLayer, key};

/// How often a unit comes back: sooner than any request does, or much later.
const AT_ONCE: Duration = Duration::from_nanos(10);
const MUCH_LATER: Duration = Duration::from_secs(3_600);

fn hello()
-> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone
{
    service_fn(|_: Request<Body>| async { Ok(Response::new(Body::empty())) })
}

fn request() -> Request<Body> {
    let mut request = Request::new(Body::empty());
    let peer = SocketAddr::from(([192, 0, 2, 1], 4711));
    request.extensions_mut().insert(ConnectInfo(peer));
    request
}

/// Sends one request; nothing here ever waits.
fn send<S, B>(service: &mut S) -> StatusCode
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
{
    let mut cx = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut cx).is_ready());
    let Poll::Ready(Ok(response)) = pin!(service.call(request())).poll(&mut cx) else {
        panic!("the service waits");
    };
    black_box(response).status()
}

fn layer(c: &mut Criterion) {
    let mut group = c.benchmark_group("layer");
    let mut bare = hello();
    group.bench_function("bare", |b| b.iter(|| send(&mut bare)));

    for (name, interval) in [("allowed", AT_ONCE), ("refused", MUCH_LATER)] {
        let in_an_hour = MUCH_LATER.as_nanos() / interval.as_nanos();
        let in_an_hour = u32::try_from(in_an_hour).unwrap_or(u32::MAX);
        let limit = RateLimitLayer::new(key::client_ip(), Gcra::per_hour(in_an_hour).burst(10));
        let mut ours = limit.layer(hello());
        for _ in 0..10 {
            send(&mut ours);
        }
        group.bench_function(format!("ours/{name}"), |b| b.iter(|| send(&mut ours)));

        let config = GovernorConfigBuilder::default()
            .period(interval)
            .burst_size(10)
            .use_headers()
            .finish()
            .expect("neither number is zero");
        let mut governor = GovernorLayer::new(config).layer(hello());
        for _ in 0..10 {
            send(&mut governor);
        }
        group.bench_function(format!("tower_governor/{name}"), |b| {
            b.iter(|| send(&mut governor));
        });
    }
    group.finish();
}

criterion_group!(benches, layer);
criterion_main!(benches);
