//! A service behind the layer of a configuration text.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response, request};
use http_body_util::{BodyExt, Full};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::{ManualClock, MemoryStore, RateLimitLayer};
use tower_ratelimit_config::{Config, Format};

/// Reads a text in TOML that has no mistake.
#[track_caller]
pub(crate) fn config(text: &str) -> Config {
    match text.parse() {
        Ok(config) => config,
        Err(error) => panic!("{error}"),
    }
}

/// Returns the mistakes of a text in TOML, one line each.
#[track_caller]
pub(crate) fn mistakes(text: &str) -> Vec<String> {
    mistakes_of(text.parse::<Config>())
}

/// Returns the mistakes of a text in JSON, one line each.
#[track_caller]
pub(crate) fn mistakes_in_json(text: &str) -> Vec<String> {
    mistakes_of(Config::builder().parse(text, Format::Json))
}

#[track_caller]
fn mistakes_of(read: Result<Config, tower_ratelimit_config::FileError>) -> Vec<String> {
    let error = read.expect_err("a mistake");
    error.mistakes().iter().map(ToString::to_string).collect()
}

/// The response that a client receives.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) status: u16,
    pub(crate) policies: Option<String>,
    pub(crate) limits: Option<String>,
    pub(crate) head: http::response::Parts,
    pub(crate) body: Bytes,
}

/// Returns a layer of a configuration whose clock stands still.
pub(crate) fn layer(config: &Config) -> RateLimitLayer {
    let store = MemoryStore::new().clock(ManualClock::new());
    config.layer_over(store).unwrap()
}

/// Sends a request through the layer. It comes from 192.0.2.1, unless it says otherwise.
#[track_caller]
pub(crate) fn send(layer: &RateLimitLayer, request: request::Builder) -> Received {
    now(sent(layer, request))
}

/// The same, for a layer that may have to wait.
pub(crate) async fn sent(layer: &RateLimitLayer, request: request::Builder) -> Received {
    let mut request = request.body(()).unwrap();
    if request.extensions().get::<SocketAddr>().is_none() {
        let peer = SocketAddr::from(([192, 0, 2, 1], 4711));
        request.extensions_mut().insert(peer);
    }
    let hello = service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello")))
    });
    let response = layer.layer(hello).oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let field = |name: &str| Some(head.headers.get(name)?.to_str().unwrap().to_owned());
    Received {
        status: head.status.as_u16(),
        policies: field("ratelimit-policy"),
        limits: field("ratelimit"),
        head,
        body,
    }
}

pub(crate) fn get(path: &str) -> request::Builder {
    Request::get(path)
}

/// Returns the `RateLimit-Policy` header of the response to a request.
pub(crate) fn told(config: &Config, request: request::Builder) -> String {
    send(&layer(config), request).policies.unwrap_or_default()
}

/// Returns the output of a future that has nothing to wait for.
#[track_caller]
pub(crate) fn now<F: IntoFuture>(future: F) -> F::Output {
    match pin!(future.into_future()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("there is no answer yet"),
    }
}
