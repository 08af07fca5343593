//! The layer for HTTP services.
//!
//! [`RateLimitLayer`] wraps a service and decides each request by a [`Limiter`](crate::Limiter). An allowed
//! request goes on, and its response says how much is left. A denied request is answered with `429 Too Many
//! Requests`, and the inner service never sees it. That answer is a response, never an error of the inner
//! service, so no error handler is needed. [`response`](crate::response) describes it.
//!
//! # Example
//!
//! One policy with the defaults, and its state in this process:
//!
//! ```
//! use std::net::SocketAddr;
//!
//! use axum::{Router, body::Body, extract::connect_info::MockConnectInfo, routing::get};
//! use http::{Request, StatusCode};
//! use tower::ServiceExt;
//! use tower_ratelimit::{FixedWindow, RateLimitLayer, key};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let app = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(RateLimitLayer::new(key::client_ip(), FixedWindow::per_day(1)))
//!     // In place of a real connection.
//!     .layer(MockConnectInfo(SocketAddr::from(([192, 0, 2, 1], 0))));
//!
//! let response = app.clone().oneshot(Request::new(Body::empty())).await?;
//! assert_eq!(response.status(), StatusCode::OK);
//! assert_eq!(response.headers()["ratelimit-policy"], "\"default\";q=1;w=86400");
//!
//! let response = app.oneshot(Request::new(Body::empty())).await?;
//! assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
//! assert!(response.headers().contains_key("retry-after"));
//! # Ok(())
//! # }
//! ```
//!
//! Several policies, with a cost and a condition, and a clock that a test controls:
//!
//! ```
//! use std::{net::SocketAddr, time::Duration};
//!
//! use axum::{Router, body::Body, routing::{get, post}};
//! use http::{Request, StatusCode};
//! use tower::ServiceExt;
//! use tower_ratelimit::{
//!     FixedWindow, ManualClock, MemoryStore, Policy, RateLimitLayer, TokenBucket, key,
//! };
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = ManualClock::new();
//! let layer = RateLimitLayer::builder()
//!     .policy(Policy::new("burst", TokenBucket::per_second(1).burst(2)).key(key::client_ip()))
//!     .policy(
//!         Policy::new("uploads", FixedWindow::per_hour(100))
//!             .key(key::client_ip())
//!             .when(|head| head.method() == "POST")
//!             .cost(|head| if head.path() == "/bulk" { 60 } else { 1 }),
//!     )
//!     .store(MemoryStore::new().clock(clock.clone()))
//!     .build()?;
//! let app = Router::new()
//!     .route("/", get(|| async {}))
//!     .route("/bulk", post(|| async {}))
//!     .layer(layer);
//! let send = |method, path| {
//!     let peer = SocketAddr::from(([192, 0, 2, 1], 0));
//!     let request = Request::builder().method(method).uri(path).extension(peer);
//!     app.clone().oneshot(request.body(Body::empty()).unwrap())
//! };
//!
//! let response = send("POST", "/bulk").await?;
//! assert_eq!(
//!     response.headers()["ratelimit"],
//!     "\"burst\";r=1;t=1, \"uploads\";r=40;t=3600",
//! );
//!
//! // Denied by `uploads`, so it is charged to neither policy.
//! let response = send("POST", "/bulk").await?;
//! assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
//! assert_eq!(response.headers()["retry-after"], "3600");
//! assert_eq!(send("GET", "/").await?.headers()["ratelimit"], "\"burst\";r=0;t=1");
//!
//! clock.advance(Duration::from_secs(3600));
//! assert_eq!(send("POST", "/bulk").await?.status(), StatusCode::OK);
//! # Ok(())
//! # }
//! ```
//!
//! # What else it does
//!
//! - It leaves out [paths](RateLimitLayerBuilder::exempt_paths) such as health checks, and has an
//!   [allow list](RateLimitLayerBuilder::allow) and a [deny list](RateLimitLayerBuilder::deny).
//! - A [soft](crate::Policy::soft) policy refuses no request: a request over its limit goes on with
//!   an [`OverLimit`], so that the handler can give it less.
//! - [`Policy::on_missing_key`](crate::Policy::on_missing_key) decides about requests without a key.
//! - [`expose_decision`](RateLimitLayerBuilder::expose_decision) passes the numbers to handlers.
//! - A layer that is applied to a route twice, or is built for each request, is [reported in the
//!   log](crate::diagnostics).
//!
//! # Waiting for a turn
//!
//! With a [`LeakyQueue`](crate::LeakyQueue) an early request is held instead of refused. Each key
//! has one turn in each interval. Requests go on in order, and none before its turn. A request that
//! finds all places taken is refused at once, with the time until a place is free.
//!
//! ```
//! use std::time::{Duration, Instant};
//!
//! use axum::{Router, body::Body, routing::get};
//! use http::{Request, StatusCode};
//! use tower::ServiceExt;
//! use tower_ratelimit::{LeakyQueue, RateLimitLayer, key};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let queue = LeakyQueue::per_second(20).places(1);
//! let app = Router::new()
//!     .route("/", get(|| async {}))
//!     .layer(RateLimitLayer::new(key::global(), queue));
//! let send = || app.clone().oneshot(Request::new(Body::empty()));
//!
//! let start = Instant::now();
//! let (first, second, third) = tokio::join!(send(), send(), send());
//! assert_eq!(first.unwrap().status(), StatusCode::OK);
//! assert_eq!(second.unwrap().status(), StatusCode::OK);
//! assert!(start.elapsed() >= Duration::from_millis(50));
//! assert_eq!(third.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
//! # }
//! ```
//!
//! - When a client goes away while its request waits, or a timeout outside the layer ends it, the requests
//!   behind it move up, and the last place of the queue is free again: no turn passes unused. If that happens
//!   to one request in ten, the log says so ([`TRL014`](crate::diagnostics)).
//! - A line belongs to one process. Over a shared store the requests of several processes take turns, and a
//!   request moves up along the turns of its own process alone. The last of these is given back, or is kept
//!   for the next request of the process if another process has a turn behind it.
//! - A waiting request takes nothing of the inner service, not even a permit of a `ConcurrencyLimit`. It is
//!   held in memory, and the places bound how many of a key wait. Its time counts towards a timeout outside
//!   this layer.
//! - Requests wait by tokio's timers, which fire a millisecond or so late, never early: a late request and
//!   the next one may be closer than the interval by that. A request that is due and is not polled delays the
//!   requests behind it by one second at most.
//! - In a test, a request waits by the [`ManualClock`](crate::ManualClock) of its store, if it has one, and
//!   goes on when that is moved.
//! - A request that would leave after its caller's [`Deadline`], or after the `grpc-timeout` of a gRPC call,
//!   is refused at once. Its place, and its charges by other policies, are given back.
//! - While the store is away, a policy that is kept in this process begins a new queue. Its requests stand
//!   behind those that wait already and go on after them, and so do the next ones when the store is back.
//! - A layer may have one queue, beside any number of policies that only count: a request that one of these
//!   denies takes no turn. Building a layer with a second queue, or a soft one, fails.
//! - A [`Limiter`](crate::Limiter) holds no requests: its decision has the [`delay`](crate::Decision::delay),
//!   and its caller waits.
//!
//! # Waiting under any algorithm
//!
//! A policy of any algorithm may let a denied request wait instead of refusing it, if its turn
//! comes soon enough: [`Policy::wait_up_to`](crate::Policy::wait_up_to). The algorithm admits no
//! more than before. Unlike a queue it does not spread requests: all that a window admits goes on
//! when the window begins.
//!
//! ```
//! use std::time::Duration;
//!
//! use tower_ratelimit::{Policy, RateLimitLayer, TokenBucket, key};
//!
//! // A request that is up to two seconds early waits; at most twenty requests of a client do.
//! let patient = Policy::new("address", TokenBucket::per_second(5).burst(10))
//!     .wait_up_to(Duration::from_secs(2))
//!     .wait_places(20)
//!     .key(key::client_ip());
//! let layer = RateLimitLayer::builder().policy(patient).build()?;
//! # Ok::<(), tower_ratelimit::ConfigError>(())
//! ```
//!
//! - Requests of one key go on in the order of their arrival. While one waits, a newcomer stands behind it, even if
//!   there is enough for the newcomer alone. A client that goes away leaves no gap. Under several such policies a
//!   request stands in the line of the policy with the longest wait.
//! - Requests of low priority that leave a [reserve](crate::Policy::reserve) stand behind all others, in places of their
//!   own.
//! - A waiting request is charged nothing by any policy. The request at the front asks all policies again when its
//!   wait is over. If another request was faster, it waits for the new wait.
//! - A request is refused at once, with `429` and a wait that counts the requests before it, if:
//!   - its turn would come later than all policies that deny it allow, or after its [`Deadline`] or `grpc-timeout`;
//!   - a policy without `wait_up_to` denies it, now or at its turn;
//!   - it costs more than the limit; or
//!   - the [places](crate::Policy::wait_places) of its key, or [of the layer](RateLimitLayerBuilder::wait_places), are
//!     taken.
//! - While the store is away, a policy that [allows everything](crate::OnStoreFailure::Allow) makes no
//!   newcomer wait: newcomers go on as far as the other policies allow. Requests that wait already ask when
//!   their wait is over.
//! - A request that waits and is refused in the end is refused at most 50 ms or so after the longest wait:
//!   timers are a little late, and a request does not lose its promised turn because of that.
//! - The response has the numbers of the moment when the request was admitted.
//! - A line belongs to one process. Other nodes that share a store, and callers of a
//!   [`Limiter`](crate::Limiter), which never waits, do not stand in it.
//! - A due request that is not polled delays those behind it for at most a second. Without a tokio
//!   runtime to wake it, a request is refused as if the policy did not wait, and the log says so
//!   ([`TRL009`](crate::diagnostics)).
//!
//! # In a tonic server
//!
//! With feature `tonic` the layer wraps a whole server, `Server::builder().layer(limit)`, or one
//! service, `.add_service(limit.layer(GreeterServer::new(greeter)))`, whose name passes through.
//! Each call is counted once, when it begins, whatever its kind; the messages of a stream are not
//! counted. [`response`](crate::response#grpc) describes a refusal. The first layer of a server is
//! the outermost: this layer before `GrpcWebLayer` answers gRPC-Web calls itself.
//!
//! A [`RateLimitInterceptor`] has the same policies for generated code that takes no layer.
//!
//! # Where the layer belongs
//!
//! - Outside everything that costs (parsing, authentication, compression), so that a refusal is
//!   cheap.
//! - Inside `CorsLayer`, or a browser reports a refusal as a network error.
//! - Inside the layer that provides the key.
//!
//! In a router the layer that is added last is the outermost. So a policy by user stands inside
//! authentication, and a second layer outside it counts by address.
//!
//! [`Router::layer`](axum::Router::layer) boxes a service for each route. A layer around the whole
//! router avoids that, but `axum::serve` then requires its own body type:
//!
//! ```
//! use std::net::SocketAddr;
//!
//! use axum::{Router, ServiceExt, body::Body, extract::Request, response::Response};
//! use tower::{Layer, util::MapResponse};
//! use tower_ratelimit::{RateLimitLayer, TokenBucket, key};
//!
//! # async fn serve(listener: tokio::net::TcpListener, router: Router) -> std::io::Result<()> {
//! let limit = RateLimitLayer::new(key::client_ip(), TokenBucket::per_second(5).burst(10));
//! let app = limit.layer(router);
//! let app = MapResponse::new(app, |response: Response<_>| response.map(Body::new));
//! let app = ServiceExt::<Request>::into_make_service_with_connect_info::<SocketAddr>(app);
//! axum::serve(listener, app).await
//! # }
//! ```
//!
//! A refusal waits until the inner service is ready: a `ConcurrencyLimit` or a `Buffer` inside this
//! layer delays it. Outside this layer they do not.
//!
//! # What is exact
//!
//! All clones of a layer, and all services that it wraps, share one state, and a decision is one
//! step: of a thousand requests at once, exactly as many pass as the limit says. The default store
//! keeps its state in this process. Each process counts for itself, and starts anew unless its
//! [snapshot](crate::MemoryStore::snapshot) is restored. A shared [store](crate::store) counts for
//! all processes together.

mod body;
mod builder;
mod client_charges;
mod current_enforcer;
mod deadline;
pub(crate) mod enforcer;
pub(crate) mod explanation;
#[cfg(all(test, feature = "calendar"))]
mod explanation_tests;
mod future;
mod grpc_timeout;
mod guard;
mod hooks;
#[cfg(feature = "tonic")]
mod interceptor;
mod layer;
mod lists;
mod marks;
mod plan_of;
#[cfg(feature = "usage")]
mod read_json;
mod service;
mod settlements;
pub(crate) mod shadow;
mod unbuilt;

pub use self::body::GuardedBody;
pub use self::builder::RateLimitLayerBuilder;
pub use self::deadline::Deadline;
pub use self::future::ResponseFuture;
pub use self::guard::ResponseBody;
#[cfg(feature = "tonic")]
pub use self::interceptor::RateLimitInterceptor;
pub use self::layer::RateLimitLayer;
pub use self::layer::Swap;
pub use self::marks::{OverLimit, WouldRefuse};
#[cfg(feature = "usage")]
pub use self::read_json::{
    ReadBody, ReadJson, ReadJsonBody, ReadJsonFuture, ReadJsonLayer, Unreadable,
};
pub use self::service::RateLimit;
pub use self::shadow::Difference;
// Public for a message of the compiler, and useless to programs.
#[doc(hidden)]
pub use self::unbuilt::{Built, Unbuilt};
