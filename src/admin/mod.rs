//! A page for operators: which clients are refused, by which limit, since when, and why.
//!
//! [`router`] returns the routes of the page, to nest in a service. The page is one file, which loads nothing
//! else. It shows the [counters](crate::observe), once a second.
//!
//! ```
//! use std::net::SocketAddr;
//!
//! use axum::{Router, body::Body, extract::connect_info::MockConnectInfo, http::Request, routing::get};
//! use tower::ServiceExt;
//! use tower_ratelimit::admin::{self, Access};
//! use tower_ratelimit::{RateLimitLayer, TokenBucket, key};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limit = RateLimitLayer::new(key::client_ip(), TokenBucket::per_second(5).burst(10));
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(limit.clone())
//!     // After the layer, so that an operator is not limited.
//!     .nest("/limits", admin::router(&limit, Access::loopback()))
//!     // In place of `into_make_service_with_connect_info::<SocketAddr>()`.
//!     .layer(MockConnectInfo(SocketAddr::from(([127, 0, 0, 1], 0))));
//!
//! let page = |host| Request::get("/limits").header("host", host).body(Body::empty()).unwrap();
//! let response = app.clone().oneshot(page("localhost:3000")).await?;
//! assert_eq!(response.status(), 200);
//! // Another name that resolves to this machine.
//! let response = app.oneshot(page("evil.example:3000")).await?;
//! assert_eq!(response.status(), 403);
//! # Ok(())
//! # }
//! ```
//!
//! # Access
//!
//! [`Access`] limits access to the page. There is no access for everyone: it is limited to [this
//! machine](Access::loopback), or to [operators](Access::check) that a closure names. The page is read-only
//! until [`Access::writable`].
//!
//! Every route checks `Host` against a [list](Access::hosts), and refuses pages of other origins. A question
//! is JSON in the body of a POST, so a key never appears in a URL, or in the log of a proxy. A change is
//! logged with the operator, and with the previous and the new value.
//!
//! # Routes
//!
//! | route | answer |
//! | --- | --- |
//! | `GET /` | the page |
//! | `GET /events` | server-sent events: the snapshot, once a second; at most 16 viewers, and `503` for others |
//! | `GET /snapshot` | the [snapshot](crate::observe::Snapshot) as JSON, with `limits` and `writable` |
//! | `GET /history` | what was admitted and refused in the last ten minutes, by second |
//! | `POST /inspect` | what a client has used, and why it is refused: `{"key": "k3y"}`; `remedy` is `"unblock"` or `"reset"` if that lets it pass |
//! | `POST /block` | blocks a client: `{"key": "k3y", "seconds": 3600}` |
//! | `POST /unblock` | ends the block: `{"key": "k3y"}`; `was_blocked` in the answer says whether there was one |
//! | `POST /reset` | makes the client as good as new: nothing of its limits is used any more; a block stays: `{"key": "k3y"}` |
//! | `POST /limits` | changes a limit: `{"policy": "minute", "plan": "free", "limit": 20}`, without `plan` where no plan speaks of the policy |
//! | | gives a client a limit of its own for a time: `{"policy": "minute", "key": "k3y", "limit": 20, "seconds": 3600}`; `null` ends it |
//!
//! A block, its end and a reset concern the client under every policy, and so all clients where a policy counts them by one key.
//! `limit` is the number of units in a period. A burst or a capacity changes in proportion, and a queue keeps
//! its places. A limit of a policy or of a plan can be changed if the layer was built
//! [adjustable](crate::middleware::RateLimitLayerBuilder::adjustable); see
//! [`Limiter::adjust_limit`](crate::Limiter::adjust_limit) for the effect. An error is `{"error": "…"}`:
//! `400` for an invalid question, `503` if the store cannot answer.
//!
//! # Shutdown
//!
//! A graceful shutdown waits until all responses have ended. [`Handle::until`] ends the streams of events by the signal that ends
//! the server:
//!
//! ```
//! use std::net::SocketAddr;
//!
//! use axum::Router;
//! use tokio::net::TcpListener;
//! use tokio::sync::watch;
//! use tower_ratelimit::RateLimitLayer;
//! use tower_ratelimit::admin::{self, Access, Handle};
//!
//! async fn serve(
//!     listener: TcpListener,
//!     app: Router,
//!     limit: RateLimitLayer,
//!     stop: watch::Receiver<bool>,
//! ) -> std::io::Result<()> {
//!     let stopped = |mut stop: watch::Receiver<bool>| async move {
//!         // An error says that the sender is gone, which stops the service too.
//!         let _ = stop.wait_for(|stop| *stop).await;
//!     };
//!     let handle = Handle::from(&limit).until(stopped(stop.clone()));
//!     let app = app.layer(limit).nest("/limits", admin::router(handle, Access::loopback()));
//!     let service = app.into_make_service_with_connect_info::<SocketAddr>();
//!     axum::serve(listener, service).with_graceful_shutdown(stopped(stop)).await
//! }
//! ```
//!
//! A viewer that does not read loses its place ten seconds after the buffers of its connection are full, which
//! takes some 80 seconds more. Its connection stays open until the client or
//! the system ends it: bound a graceful shutdown by a timeout, as with any response.

mod access;
mod handle;
mod history;
mod operator;
mod page;
mod routes;
mod state;
mod viewers;

pub use self::access::Access;
pub use self::handle::Handle;
pub use self::routes::router;
