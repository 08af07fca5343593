//! A layer for outgoing calls, which keeps to the limits that servers announce.
//!
//! [`ClientThrottleLayer`] wraps any service that sends HTTP or gRPC requests: the client of hyper or reqwest, or a
//! channel of tonic. It passes the responses on, and learns from them. Once a server has announced that nothing
//! is left, further calls to it wait in order until the announced time; then one call goes ahead of the others.
//!
//! If you know the limit of a server beforehand, pace the calls by a [`LeakyQueue`](crate::LeakyQueue) in a
//! [`LimitLayer`](crate::service::LimitLayer) instead.
//!
//! # Example
//!
//! With the defaults, under which each host has its own limit:
//!
//! ```
//! use std::convert::Infallible;
//! use std::time::Duration;
//!
//! use http::{Request, Response};
//! use tokio::time::Instant;
//! use tower::{Layer, ServiceExt, service_fn};
//! use tower_ratelimit::client::ClientThrottleLayer;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! // In place of a real client: nothing is left after the first call.
//! let client = service_fn(async |_: Request<()>| {
//!     let response = Response::builder().header("ratelimit", "\"default\";r=0;t=7");
//!     Ok::<_, Infallible>(response.body(()).unwrap())
//! });
//! let client = ClientThrottleLayer::new().layer(client);
//!
//! let call = || {
//!     let request = Request::get("http://api.example/").body(()).unwrap();
//!     client.clone().oneshot(request)
//! };
//! let start = Instant::now();
//! call().await.unwrap();
//! assert_eq!(start.elapsed(), Duration::ZERO);
//! call().await.unwrap();
//! assert_eq!(start.elapsed(), Duration::from_secs(7));
//! # }
//! ```
//!
#![cfg_attr(not(doctest), doc = include_str!("clients.md"))]
//!
//! The client of reqwest has its own types, which convert from and to the types of `http`:
//!
//! ```text
//! let client = reqwest::Client::new();
//! let client = tower::service_fn(move |request: http::Request<reqwest::Body>| {
//!     let client = client.clone();
//!     async move { Ok::<_, reqwest::Error>(client.execute(request.try_into()?).await?.into()) }
//! });
//! let client = ClientThrottleLayer::new().layer(client);
//! ```
//!
//! # Which headers it reads
//!
//! | header | where |
//! | --- | --- |
//! | `Retry-After`, in seconds or as a date (RFC 9110) | on 429 and 503, before all others |
//! | `RateLimit` of [draft 11](https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/11/) | on any response |
//! | `X-RateLimit-Remaining` with `-Reset` or `-Reset-After`, `X-Rate-Limit-*`, and `RateLimit-*` of drafts before it was one header | on any response without the above |
//! | `google.rpc.RetryInfo` among the details (features `client` and `tonic`), else `Retry-After` | with `RESOURCE_EXHAUSTED` and `UNAVAILABLE`, in the header section |
//!
//! - The layer ignores malformed headers, as their specifications say; parameters that it does not know; numbers from a cache
//!   (`Age`); and policies that count something other than requests (`qu`).
//! - In `RateLimit`, the names `a` and `w` of the draft's next version are read like `r` and `t`, and a policy may then be named by a
//!   token.
//! - `X-RateLimit-Reset` has no specification. A number below 1,000,000,000 is read as seconds from now; from
//!   there on as a time in seconds since the Unix epoch; from 1,000,000,000,000 on in milliseconds.
//! - Dates and times go by the server's clock, if the response has a `Date`.
//! - A 429 without a time, and a response with nothing remaining and without a time, hold calls for a second. A
//!   503 without a time holds no calls, and neither does an error of the client.
//! - A hold lasts at most an hour ([`max_hold`](ClientThrottleLayer::max_hold)).
//! - A gRPC call that fails after its head was sent has its status in the trailers, which the layer does not
//!   read.
//!
//! # What it guarantees
//!
//! **A server that announces its limits in its responses, and responds within a second, refuses no call if no
//! other client uses the limit and each call costs one.** With other clients it refuses hardly more than one
//! call each time that the limit is reached. A response says how many calls remain, and not which of the calls
//! on their way it has counted: the layer subtracts all of these, and so never sends more calls than are known
//! to be allowed. Therefore the first call to a server, and the first after a hold, go alone.
//!
//! - A server that never announces what remains is learnt from its refusals: after a refusal one call goes, and
//!   with each response one more at once. When it refuses again, the calls on their way are refused too.
//! - A server whose responses take longer than its windows is used less than it would allow.
//! - Calls go in the order in which they came. A call without a response, and a call that may go but is not
//!   polled, hold the others up for at most a second.
//! - A server that cannot be reached has no queue: each failure lets two calls go.
//! - A call that is dropped while it waits makes room. A call that is dropped on its way may have been counted, or may
//!   still be: it is subtracted from what responses to later calls tell, for one to two seconds.
//! - The refused call itself is passed on as it is. To send it again, put `tower::retry` outside this layer: the
//!   retry then waits here.
//! - What the layer has learnt stays in this process.

mod advice;
mod future;
mod host;
mod layer;
mod line;
mod lines;
mod service;
mod throttle;
mod throttled;

pub use self::future::ClientThrottleFuture;
pub use self::host::host;
pub use self::layer::ClientThrottleLayer;
pub use self::service::ClientThrottle;
pub use self::throttled::{ClientThrottleError, Reason, Throttled};
