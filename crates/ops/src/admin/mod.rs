#![doc = include_str!("../../docs/dashboard.md")]
//!
//! # Routes
//!
//! | route | answer |
//! | --- | --- |
//! | `GET /` | the page |
//! | `GET /events` | server-sent events: the snapshot, once a second; see [viewers](#viewers) |
//! | `GET /snapshot` | the [snapshot](tower_ratelimit::observe::Snapshot) as JSON, with `limits`, `levels` (each level of a tree with the policy above it) and `writable` |
//! | `GET /history` | what was admitted and refused in the last ten minutes, by second |
//! | `POST /inspect` | what a client has used, and why it is refused: `{"key": "k3y"}`; `remedy` is `"unblock"` or `"reset"` if that lets it pass; `below` of a level of a [tree](tower_ratelimit::guide::trees) is the policy above it |
//! | `POST /block` | blocks a client: `{"key": "k3y", "seconds": 3600}`; with `policy` under that policy alone, as the end of a block and a reset |
//! | `POST /unblock` | ends the block: `{"key": "k3y"}`; `was_blocked` in the answer says whether there was one |
//! | `POST /reset` | makes the client as good as new: nothing of its limits is used any more; a block stays: `{"key": "k3y"}` |
//! | `POST /limits` | changes a limit: `{"policy": "minute", "plan": "free", "limit": 20}`, without `plan` where no plan speaks of the policy |
//! | | gives a client a limit of its own for a time: `{"policy": "minute", "key": "k3y", "limit": 20, "seconds": 3600}`; `null` ends it |
//!
//! A block, its end and a reset concern the client under every policy, and so all clients where a policy counts them by one key. Of the
//! levels of a [tree](tower_ratelimit::guide::trees) they concern the lowest of which the client has a key: the user, and not its
//! organisation. With `"policy": "spend.org"` it is that level.
//! `limit` is the number of units in a period. A burst or a capacity changes in proportion, and a queue keeps
//! its places. A limit of a policy or of a plan can be changed if the layer was built
//! [adjustable](tower_ratelimit::middleware::RateLimitLayerBuilder::adjustable); see
//! [`Limiter::adjust_limit`](tower_ratelimit::Limiter::adjust_limit) for the effect. An error is `{"error": "…"}`:
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
//! use tower_ratelimit_ops::admin::{self, Access, Handle};
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
//! The connection of a viewer that does not read stays open until the client or the system ends it: bound a graceful shutdown by
//! a timeout, as with any response.
//!
//! # Viewers
//!
//! At most 16 viewers follow the events at the same time. If all places are taken, a new viewer takes the place of the viewer
//! that has had its place for longest, and gets a `503` if that is less than ten seconds. So viewers that do not read
//! keep the places no longer than that. The stream of the previous viewer ends, and its browser opens another.

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
