//! Requests, a service for them, and its responses.

use std::convert::Infallible;
use std::fmt::Debug;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_ratelimit::key::{self, Head};
use tower_ratelimit::policy::Http;
use tower_ratelimit::response::Refusal;
use tower_ratelimit::{Algorithm, ManualClock, MemoryStore, Policy, RateLimitLayer};

/// The response that a client receives, and the typed reason beside it.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) refusal: Option<Refusal>,
}

impl Received {
    /// Returns the value of a header. A header that appears twice fails the test.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let lines = self.lines(name);
        assert!(lines.len() <= 1, "{name} is there twice: {lines:?}");
        lines.first().copied()
    }

    pub(crate) fn lines(&self, name: &str) -> Vec<&str> {
        let lines = self.headers.get_all(name).iter();
        lines.map(|line| line.to_str().unwrap()).collect()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// Asserts that the response has none of the layer's headers.
    #[track_caller]
    pub(crate) fn assert_no_fields(&self) {
        for name in ["ratelimit", "ratelimit-policy", "retry-after"] {
            assert_eq!(self.lines(name), Vec::<&str>::new(), "{name}");
        }
    }
}

/// Returns the output of a future that has nothing to wait for.
#[track_caller]
pub(crate) fn now<F: IntoFuture>(future: F) -> F::Output {
    match poll(pin!(future.into_future())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("there is no answer yet"),
    }
}

/// Polls a future once, with a waker that does nothing.
pub(crate) fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Sends a request to a clone of a service that answers at once.
#[track_caller]
pub(crate) fn ask<S, B, R>(service: &S, request: Request<B>) -> Received
where
    S: Service<Request<B>, Response = Response<R>, Error: Debug> + Clone,
    R: Body<Error: Debug>,
{
    answer(now(service.clone().oneshot(request)).unwrap())
}

/// Takes a response apart whose body is complete.
#[track_caller]
pub(crate) fn answer<R: Body<Error: Debug>>(response: Response<R>) -> Received {
    let (head, body) = response.into_parts();
    Received {
        status: head.status,
        headers: head.headers,
        body: now(body.collect()).unwrap().to_bytes(),
        refusal: head.extensions.get().cloned(),
    }
}

/// `GET /`, with a body of any type.
pub(crate) fn get<B: Default>() -> Request<B> {
    Request::new(B::default())
}

/// `GET /` with these header fields.
pub(crate) fn get_with<const N: usize>(fields: [(&'static str, u32); N]) -> Request<()> {
    let mut request = get();
    for (name, value) in fields {
        request.headers_mut().insert(name, value.into());
    }
    request
}

/// `GET /` of this cost, for policies whose cost is [`cost`].
pub(crate) fn get_of_cost(cost: u32) -> Request<()> {
    get_with([("x-cost", cost)])
}

/// Returns the number in the header `x-cost`, or 1.
pub(crate) fn cost(head: &Head<'_>) -> u32 {
    head.header("x-cost")
        .map_or(1, |cost| cost.parse().unwrap())
}

/// Returns the number in this header, or 0.
pub(crate) fn cost_in(header: &'static str) -> impl Fn(&Head<'_>) -> u32 {
    move |head| head.header(header).map_or(0, |cost| cost.parse().unwrap())
}

/// Returns a policy with one key for all clients.
pub(crate) fn global(name: &str, algorithm: impl Into<Algorithm>) -> Policy<Http> {
    Policy::new(name, algorithm).key(key::global())
}

/// Returns a layer of these policies, and its clock.
pub(crate) fn limit(
    policies: impl IntoIterator<Item = Policy<Http>>,
) -> (ManualClock, RateLimitLayer) {
    let clock = ManualClock::new();
    let store = MemoryStore::new().clock(clock.clone());
    let mut builder = RateLimitLayer::builder().store(store);
    for policy in policies {
        builder = builder.policy(policy);
    }
    (clock, builder.build().unwrap())
}

/// Returns a service behind [`limit`] that answers `hello`.
pub(crate) fn limited_hello(
    policies: impl IntoIterator<Item = Policy<Http>>,
) -> (ManualClock, Hello) {
    let (clock, layer) = limit(policies);
    (clock, Hello::behind(&layer))
}

/// A service behind a layer that answers `hello` to requests without a body.
pub(crate) type Hello = tower_ratelimit::RateLimit<Greeter>;

type Greeter = tower::util::ServiceFn<fn(Request<()>) -> Greeting>;
type Greeting = std::future::Ready<Result<Response<Full<Bytes>>, Infallible>>;

pub(crate) trait Behind {
    fn behind(layer: &RateLimitLayer) -> Self;
}

impl Behind for Hello {
    fn behind(layer: &RateLimitLayer) -> Self {
        layer.layer(service_fn(greet as fn(_) -> _))
    }
}

fn greet(_: Request<()>) -> Greeting {
    std::future::ready(Ok(Response::new(Full::from("hello"))))
}
