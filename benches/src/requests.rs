//! Requests, a service for them, and a way to send them that never waits.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use axum::body::Body;
use axum::extract::ConnectInfo;
use http::{Request, Response};
use tower::{Service, service_fn};

/// Returns a minimal service.
pub fn hello()
-> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send + 'static>
+ Clone
+ Send
+ Sync
+ 'static {
    service_fn(|_: Request<Body>| async { Ok(Response::new(Body::empty())) })
}

/// Returns a request of one client, with the address that axum would add.
pub fn request() -> Request<Body> {
    let mut request = Request::new(Body::empty());
    let peer = SocketAddr::from(([192, 0, 2, 1], 4711));
    request.extensions_mut().insert(ConnectInfo(peer));
    request
}

/// Sends one request, which never waits.
pub fn send<S, B>(service: &mut S, request: Request<Body>) -> Response<B>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
{
    let mut cx = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut cx).is_ready());
    match pin!(service.call(request)).poll(&mut cx) {
        Poll::Ready(Ok(response)) => response,
        Poll::Ready(Err(never)) => match never {},
        Poll::Pending => panic!("the service waits"),
    }
}
