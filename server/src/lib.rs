//! A reverse proxy that limits requests by a file, for services in any language.
//!
//! A [`Gateway`] forwards requests to one upstream and streams bodies both ways. It limits requests by a file of limits,
//! which can change while it runs. A proxy that is already there can ask it about a request, at `/_limit/check`.
//! [The guide](crate::guide) describes how to run it.
//!
//! | module | part of a request |
//! | --- | --- |
//! | [`socket`] | where clients connect |
//! | [`certificate`] | TLS of a listener |
//! | [`server`] | connections of clients, HTTP/1 and HTTP/2, until shutdown |
//! | `places` | how many connections there are, of one client and of all |
//! | `silence` | ends connections whose client does nothing |
//! | `framing` | lets bytes of HTTP/1 pass only if they have one reading |
//! | `head` | leaves one way to read a head, for the limits and for the upstream |
//! | `refusals` | the lines of the log about refused requests |
//! | `trace` | the trace to which a request belongs |
//! | [`spans`] | a span for each request, for OpenTelemetry |
//! | `counted` | leaves what is counted as what the upstream reads |
//! | [`gateway`] | chooses between `/_limit/*` and the upstream |
//! | `question` | answers `/_limit/check` |
//! | [`envoy`] | answers Envoy over gRPC |
//! | [`ratelimit`] | decides about the descriptors that Envoy sends |
//! | `forward` | sends a request to the upstream, and passes its response back |
//! | `calls` | the connection to the upstream for calls of gRPC |
//! | [`tls`] | which certificates of the upstream are trusted |
//! | `fields` | which header fields pass |
//! | `stall` | the timeout of the upstream |
//! | [`sample`] | a small upstream, to try the server |
//! | [`command`] | the command line |
//! | [`limits`] | the limits in force |
//! | [`ops`] | what operators and their tools see |
//! | [`token`] | the secret that tells an operator from others |
//! | [`phase`] | whether the server is ready for requests |
//!
//! The proxy is hyper, with one parser of our own before it. `pingora-proxy` 0.9.1 was tried with the hostile heads of the tests, in a program on
//! loopback. It hid no request, but 8 of 27 heads reached the upstream that are refused here: without `Host`, `GET *` and `GET a:80`, two equal
//! lengths, a length beside `chunked`, codings before `chunked`. It reads lines that end with LF alone, and passes `x_forwarded_for`. The bound on
//! a head is a constant. A layer of Tower can stand in its filter of requests alone, and never sees the response, which settlement by usage,
//! refunds and slots need.

mod calls;
pub mod certificate;
pub mod command;
mod counted;
pub mod envoy;
mod fields;
mod forward;
mod framing;
pub mod gateway;
pub mod guide;
mod head;
mod late;
pub mod limits;
pub mod ops;
pub mod phase;
mod places;
mod question;
pub mod ratelimit;
mod refusals;
pub mod sample;
pub mod server;
mod silence;
pub mod socket;
pub mod spans;
mod stall;
mod tasks;
pub mod tls;
pub mod token;
mod trace;

pub use self::forward::Upstream;
pub use self::gateway::Gateway;
pub use self::limits::Limits;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};

/// The error of a body that breaks off.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a response.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// Returns a response of the gateway itself, with one line of text.
fn text_response(status: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(full(format!("{text}\n")));
    *response.status_mut() = status;
    let text = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, text);
    response
}
