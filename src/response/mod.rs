//! The responses and headers that clients get.
//!
//! An allowed request goes on, and its response says how much is left. A denied request is answered
//! by the layer, in place of the inner service:
//!
//! ```text
//! HTTP/1.1 429 Too Many Requests
//! retry-after: 1
//! ratelimit-policy: "default";q=10;w=2
//! ratelimit: "default";r=0;t=1
//! cache-control: no-store
//! content-type: application/problem+json
//!
//! {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded", …}
//! ```
//!
//! - `RateLimit` and `RateLimit-Policy` have the syntax of draft-ietf-httpapi-ratelimit-headers-11.
//!   - `q` is the limit (of a bucket: its size), and `w` the period (of a bucket: the time in which
//!     it fills).
//!   - `r` is what remains, and `t` how long that has to last: to the end of the window, or for a
//!     bucket `r` divided by its rate. With nothing left, `t` is the wait for the next unit. On a
//!     refusal, `t` is the wait after which the same request passes.
//! - `Retry-After` (RFC 9110) is the longest of these waits. Waits are rounded up to whole seconds
//!   and are at least 1. If no wait helps, the header is absent.
//! - The body is a problem of RFC 9457 that names the policies that denied the request.
//! - `Cache-Control: no-store` is there because a cache would replay a stored refusal to other
//!   clients.
//!
//! The [builder](crate::middleware::RateLimitLayerBuilder) sets the headers, the status, the body,
//! and a jitter of `Retry-After`.
//!
//! `RateLimit-Policy` lists every policy that applied. On success `RateLimit` lists the same
//! policies; on a refusal it lists only those that denied. No headers are added to
//!
//! - a redirect (3xx other than 304), because a client may wait before it follows;
//! - an informational response (1xx);
//! - the refusal of an inner rate limiting layer, whose headers stand alone.
//!
//! Other refusals have other statuses, and a body without the reason:
//!
//! - The server does not provide a key: `500`, or as the policy's [`OnMissingKey`](crate::policy::OnMissingKey)
//!   says.
//! - The store fails: `503` with `Retry-After: 5`.
//! - The request is on the [deny list](crate::middleware::RateLimitLayerBuilder::deny) of the
//!   layer: `403`.
//! - The body has to be read for its key or its cost, and cannot be: `413` if it is too long, `415` if
//!   it is no JSON, and `400` if it is malformed or a field stands twice in it.
//!
//! The first two are never a `429` by default, because the client has done nothing wrong.
//!
//! Each refusal has its typed reason, a [`Refusal`], in the extensions of the response, so that an
//! outer layer can count it.
//!
//! # Dialects
//!
//! Draft 11 is the default. [`Dialect`] has the headers of older clients:
//!
//! | dialect | headers | reset | read by |
//! | --- | --- | --- | --- |
//! | `Draft11` | `RateLimit`, `RateLimit-Policy` | `t` | clients of drafts 08 to 11; trillium-ratelimit |
//! | `Draft07` | `RateLimit`, `RateLimit-Policy` | seconds | ratelimit-header-parser |
//! | `Draft06` | `RateLimit-Limit`, `-Remaining`, `-Reset`, `-Policy` | seconds | ky; ratelimit-header-parser |
//! | `Draft03` | `RateLimit-Limit` with the policies, `-Remaining`, `-Reset` | seconds | ky |
//! | `XRateLimit` | `X-RateLimit-Limit`, `-Remaining`, `-Reset` | [`Reset`] | ky, as seconds or epoch |
//! | `XRateLimitDashed` | `X-Rate-Limit-Limit`, `-Remaining`, `-Reset` | [`Reset`] | ky; clients of X (Twitter), as epoch |
//! | `GitHub` | as `XRateLimit`, with `-Used` and `-Resource` | epoch | octokit's throttling plugin |
//!
//! Nearly every client reads `Retry-After`, and many read nothing else: urllib3, go-retryablehttp,
//! got, undici and axios-retry wait as it says, on 429 and 503. So the default serves all of them.
//! Choose another dialect for clients that slow down before they are refused, and check what they
//! read:
//!
//! - Send milliseconds only to clients that were written for them.
//! - Never send a delta to octokit, which takes `X-RateLimit-Reset` as a moment.
//! - ratelimit-header-parser 0.1.0 reads no number at all from a `RateLimit` in the syntax of draft
//!   08 or later.
//!
//! Dialects without a common header can be sent together, such as `Draft11` and `XRateLimit`. All
//! of them tell the same decision; a dialect with room for one policy tells the one that binds.
//!
//! ```
//! use axum::{Router, body::Body, http::{Request, StatusCode}, routing::get};
//! use std::time::Duration;
//! use tower::ServiceExt;
//! use tower_ratelimit::response::{Dialect, RefusalBody, Reset};
//! use tower_ratelimit::{FixedWindow, ManualClock, MemoryStore, Policy, RateLimitLayer, key};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let layer = RateLimitLayer::builder()
//!     .policy(Policy::new("default", FixedWindow::per_minute(1)).key(key::global()))
//!     .store(MemoryStore::new().clock(ManualClock::new()))
//!     .dialects([Dialect::Draft11, Dialect::XRateLimit(Reset::EpochSeconds)])
//!     .refusal_body(RefusalBody::Json)
//!     .retry_jitter(Duration::from_secs(10))
//!     .build()?;
//! let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layer);
//!
//! let response = app.clone().oneshot(Request::new(Body::empty())).await?;
//! assert_eq!(response.headers()["ratelimit"], "\"default\";r=0;t=60");
//! assert_eq!(response.headers()["x-ratelimit-remaining"], "0");
//! // Midnight of 1 January 2024, plus a minute.
//! assert_eq!(response.headers()["x-ratelimit-reset"], "1704067260");
//!
//! let response = app.oneshot(Request::new(Body::empty())).await?;
//! assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
//! assert_eq!(response.headers()["content-type"], "application/json");
//! let wait: u64 = response.headers()["retry-after"].to_str()?.parse()?;
//! assert!((60..=70).contains(&wait));
//! # Ok(())
//! # }
//! ```
//!
//! # In a handler
//!
//! A handler may use a [`Limiter`](crate::Limiter) itself, for example because the key or the cost is in the
//! body of the request. It then answers as a layer does: [`or_refuse`](OrRefuse::or_refuse)
//! turns a denied request into an error, and with feature `axum` that error is the response:
//!
//! ```
//! use axum::extract::State;
//! use axum::{Router, body::Body, http::Request, routing::post};
//! use tower::ServiceExt;
//! use tower_ratelimit::response::{Answer, OrRefuse, Refused};
//! use tower_ratelimit::{FixedWindow, Limiter, Policy};
//!
//! async fn send(
//!     State(mails): State<Limiter>,
//!     recipient: String,
//! ) -> Result<(Answer, &'static str), Refused> {
//!     let decision = mails.check(&recipient, 1).await?.or_refuse()?;
//!     // The answer has the headers that tell what is left.
//!     Ok((Answer(decision), "sent"))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mails = Limiter::builder()
//!     .policy(Policy::new("mails", FixedWindow::per_day(1)))
//!     .build()?;
//! let app = Router::new().route("/", post(send)).with_state(mails);
//! let send = |to: &'static str| app.clone().oneshot(Request::post("/").body(Body::from(to)).unwrap());
//!
//! let sent = send("ann@example.org").await?;
//! assert_eq!(sent.status(), 200);
//! assert_eq!(sent.headers()["ratelimit-policy"], "\"mails\";q=1;w=86400");
//!
//! let refused = send("ann@example.org").await?;
//! assert_eq!(refused.status(), 429);
//! assert!(refused.headers().contains_key("retry-after"));
//! assert_eq!(refused.headers()["content-type"], "application/problem+json");
//! # Ok(())
//! # }
//! ```
//!
//! A [`Responder`] has options for the headers, the status and the body, and needs no axum:
//!
//! ```
//! use bytes::Bytes;
//! use http::Response;
//! use http_body_util::Full;
//! use tower_ratelimit::response::{Dialect, Refusal, RefusalBody, Responder};
//! use tower_ratelimit::{FixedWindow, Limiter, Policy};
//!
//! let mails = Limiter::builder()
//!     .policy(Policy::new("mails", FixedWindow::per_day(1)))
//!     .build_local()?;
//! let responder = Responder::builder()
//!     .dialects([Dialect::GitHub])
//!     .refusal_body(RefusalBody::Json)
//!     .build()?;
//!
//! let answer = |key: &str| {
//!     let decision = mails.check(key, 1).now();
//!     if !decision.is_allowed() {
//!         return responder.refuse(Refusal::Denied(decision));
//!     }
//!     let mut response = Response::new(Full::<Bytes>::from("sent"));
//!     responder.add_headers(&decision, &mut response);
//!     response
//! };
//! assert_eq!(answer("ann@example.org").headers()["x-ratelimit-remaining"], "0");
//! let refused = answer("ann@example.org");
//! assert_eq!(refused.status(), 429);
//! assert_eq!(refused.headers()["x-ratelimit-resource"], "mails");
//! # Ok::<(), tower_ratelimit::ConfigError>(())
//! ```
//!
//! Such a response passes unchanged through a layer: the layer adds no headers of its own to a refusal. To
//! any other response it adds its headers as it does to [those of any
//! service](#headers-of-the-inner-service).
//!
//! # Headers of the inner service
//!
//! Headers of the inner service stay where possible:
//!
//! - The lists of draft 11 get a second line.
//! - In the other dialects a header has one value, and a client would read two lines as none. Of
//!   the two sets the one with less remaining stays, as a whole. A set without a readable number
//!   stays too.
//! - A `RateLimit` or `RateLimit-Policy` in the syntax of an older draft gets no line of draft 11.
//!   Beside such a `RateLimit`, the layer sends no `RateLimit-Policy`.
//! - The layer never changes the `Retry-After` of the inner service.
//!
//! # gRPC
//!
//! With feature `tonic`, a request with a content type of gRPC or gRPC-Web is a call. Its refusal is that of
//! a call, even if HTTP requests come over the same port: status 200, everything in the header section, and
//! no body ("trailers-only").
//!
//! ```text
//! HTTP/2 200
//! content-type: application/grpc
//! grpc-status: 8
//! grpc-message: rate%20limit%20exceeded
//! grpc-status-details-bin: CAgSE3JhdGUgbGltaXQgZXhjZWVkZWQaNgoodHlwZS5nb29nbGVhcGlz…
//! retry-after: 1
//! ratelimit-policy: "burst";q=10;w=1
//! ratelimit: "burst";r=0;t=1
//! cache-control: no-store
//! ```
//!
//! The details are a `google.rpc.RetryInfo` and a `google.rpc.QuotaFailure`:
//!
//! - `RetryInfo` has the wait to the microsecond, plus the jitter of `Retry-After`. If no wait
//!   helps, there is no `RetryInfo`.
//! - `QuotaFailure` has a violation for each policy that denied: `burst: 10 requests per 1 s`, or
//!   the name alone in a layer
//!   [`without_headers`](crate::middleware::RateLimitLayerBuilder::without_headers).
//!
//! [`Grpc`] sets the message, the subject and `grpc-retry-pushback-ms`, and can force or switch off
//! the detection. [`AnswerInHttp`] in the extensions of a request switches it off for that request.
//!
//! Clients may accept no more than 8 KiB of a refusal. So a refusal has only as many violations as
//! fit, and headers of more than 1 KiB are left out.
//!
//! The headers are those of HTTP, in any dialect. A client finds them in the metadata of the
//! status, or for an allowed call in the metadata of the response. A gRPC refusal has no body:
//! [`RefusalBody`] and the status of refusals are for HTTP alone.
//!
//! | reason | HTTP | gRPC |
//! | --- | --- | --- |
//! | a policy denied it | 429, or as chosen | 8 `RESOURCE_EXHAUSTED` |
//! | it is on the deny list | 403 | 7 `PERMISSION_DENIED` |
//! | all slots of an adaptive concurrency are taken | 503, or 429 | 14 `UNAVAILABLE`, or 8 `RESOURCE_EXHAUSTED` |
//! | the store failed | 503 | 14 `UNAVAILABLE`, with `RetryInfo` |
//! | the server does not provide its key, or cannot hold it | 500 | 13 `INTERNAL` |
//! | it has no key, and its policy refuses such requests | 401 | 16 `UNAUTHENTICATED` |
//! | | 403 | 7 `PERMISSION_DENIED` |
//! | | 404 | 5 `NOT_FOUND` |
//! | | 409 | 10 `ABORTED` |
//! | | 412, 428 | 9 `FAILED_PRECONDITION` |
//! | | 429 | 8 `RESOURCE_EXHAUSTED` |
//! | | 499 | 1 `CANCELLED` |
//! | | 400 and all other 4xx | 3 `INVALID_ARGUMENT` |
//! | | 501 | 12 `UNIMPLEMENTED` |
//! | | 502, 503 | 14 `UNAVAILABLE` |
//! | | 504 | 4 `DEADLINE_EXCEEDED` |
//! | | all other 5xx | 13 `INTERNAL` |
//!
//! # Caches and browsers
//!
//! A shared cache that keeps a response would tell the numbers of one client to others. Refusals
//! are never kept. For other responses your own `Cache-Control` decides, which the layer does not
//! change: `private` keeps shared caches out, and
//! [`without_headers_if_public`](crate::middleware::RateLimitLayerBuilder::without_headers_if_public)
//! leaves the headers out of responses that say they are public.
//!
//! A script in a browser reads only the headers that the server exposes: [`EXPOSED_HEADERS`].

mod answers;
mod binding;
mod body;
mod call;
mod dialect;
mod draft11;
mod fields;
mod form;
#[cfg(feature = "tonic")]
mod grpc;
mod handler;
mod jitter;
mod lists;
mod names;
mod options;
mod partition;
mod problem;
mod refusal;
mod refusals;
mod responder;
pub(crate) mod saturated;
mod sentence;
mod set;
mod several;
#[cfg(feature = "usage")]
mod unread;

pub use self::body::{CustomBody, Denied, RefusalBody};
pub use self::dialect::{Dialect, Reset};
#[cfg(feature = "tonic")]
pub use self::grpc::{AnswerInHttp, Grpc};
#[cfg(feature = "axum")]
pub use self::handler::Answer;
pub use self::handler::{OrRefuse, Refused};
#[cfg(feature = "tonic")]
pub use self::names::EXPOSED_GRPC_HEADERS;
pub use self::names::EXPOSED_HEADERS;
pub use self::refusal::Refusal;
pub use self::responder::{Responder, ResponderBuilder};

pub(crate) use self::answers::Answers;
pub(crate) use self::call::is_call;
pub(crate) use self::fields::Fields;
pub(crate) use self::options::AnswerOptions;
#[cfg(feature = "usage")]
pub(crate) use self::unread::unread;
