//! The outgoing side: a layer around a client, which heeds what servers tell of their limits.
//!
//! [`HeedLayer`] wraps any service that sends requests of HTTP or gRPC: hyper's client, a channel of
//! tonic's, or reqwest's. It passes on what is answered, and learns from it. Once a server has said
//! that there is nothing left, further calls to it wait in order until the time that it told, and then
//! one goes ahead of the others.
//!
//! Calls to somebody whose limit you know beforehand are paced by a [`LeakyQueue`](crate::LeakyQueue)
//! instead, in a [`LimitLayer`](crate::service::LimitLayer).
//!
//! # Example
//!
//! With the defaults, where each host has a limit of its own:
//!
//! ```
//! use std::convert::Infallible;
//! use std::time::Duration;
//!
//! use http::{Request, Response};
//! use tokio::time::Instant;
//! use tower::{Layer, ServiceExt, service_fn};
//! use tower_ratelimit::client::HeedLayer;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! // In place of a real client: nothing is left after the first call.
//! let client = service_fn(async |_: Request<()>| {
//!     let response = Response::builder().header("ratelimit", "\"default\";r=0;t=7");
//!     Ok::<_, Infallible>(response.body(()).unwrap())
//! });
//! let client = HeedLayer::new().layer(client);
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
//! reqwest's client has types of its own, which are made of those of `http` and back:
//!
//! ```text
//! let client = reqwest::Client::new();
//! let client = tower::service_fn(move |request: http::Request<reqwest::Body>| {
//!     let client = client.clone();
//!     async move { Ok::<_, reqwest::Error>(client.execute(request.try_into()?).await?.into()) }
//! });
//! let client = HeedLayer::new().layer(client);
//! ```
//!
//! # What is heeded
//!
//! | what tells it | where |
//! | --- | --- |
//! | `Retry-After`, in seconds or as a date (RFC 9110) | on 429 and 503, before all else |
//! | `RateLimit` of [draft 11](https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/11/) | on any answer |
//! | `X-RateLimit-Remaining` with `-Reset` or `-Reset-After`, `X-Rate-Limit-*`, and `RateLimit-*` of drafts before it was one field | on any answer without the above |
//! | `google.rpc.RetryInfo` among the details (features `client` and `tonic`), else `Retry-After` | with `RESOURCE_EXHAUSTED` and `UNAVAILABLE`, in the header section |
//!
//! - A field that is malformed is ignored, as its specification says; so are numbers that a cache has
//!   kept (`Age`), and policies that count something else than requests (`qu`).
//! - `X-RateLimit-Reset` has no specification. Below 1,000,000,000 it is read as seconds from now, from
//!   there on as a moment in seconds since the Unix epoch, from 1,000,000,000,000 on in milliseconds.
//! - Dates and moments are read by the server's clock, if its answer has a `Date`.
//! - A 429 that tells no time, and an answer that says that nothing is left and not for how long, hold
//!   calls for a second. A 503 that tells none holds nobody, nor does an error of the client's.
//! - What is told is capped at an hour ([`longest_hold`](HeedLayer::longest_hold)).
//! - A call of gRPC that fails after its head was sent tells it in the trailers, which are not read.
//!
//! # What is promised
//!
//! **A server that tells its limits with its answers, and answers within a second, refuses no call if
//! nobody else uses the limit and each call costs one**; if others do, hardly more than one each time
//! that the limit is reached. An answer tells how many remain, and not which of the calls on their way
//! are counted in it: all of these are taken off, so that no more go than are known to be allowed. What
//! a server is sent first, and what it is sent after a hold, is therefore a single call.
//!
//! - A server that never tells what remains is learnt from its refusals: after each, one call goes, and
//!   with each answer one more at once. Those on their way when it refuses again are refused too.
//! - A server whose answers take longer than its windows is used less than it would allow.
//! - Calls go in the order in which they came. One that is not answered, and one that may go and that
//!   nobody polls, holds up the others for a second at most.
//! - A server that cannot be reached has no queue before it: each failure lets two calls go.
//! - A call that is dropped while it waits makes room. One that is dropped on its way may have been
//!   counted, and is taken off.
//! - The call that was refused is passed on as it is. To send it again, put `tower::retry` outside this
//!   layer: it then waits here.
//! - What was learnt is in this process alone.

mod future;
mod held;
mod host;
mod layer;
mod line;
mod lines;
mod service;
mod standing;
mod told;

pub use self::future::HeedFuture;
pub use self::held::{HeedError, Held, Reason};
pub use self::host::host;
pub use self::layer::HeedLayer;
pub use self::service::Heed;
