//! Decisions of a node while its store is away.
//!
//! A remote store can be away: it refuses connections, takes too long, or cannot write. Then requests do not
//! wait for it. After five failures in a row the [`Watch`] treats the store as away, probes it until it is
//! back, and reports both to operators. Meanwhile each policy does what its
//! [`OnStoreFailure`](crate::OnStoreFailure) says: the [`Standby`] decides in this process.
//!
//! `watch.rs` and `breaker.rs` detect an outage and its end. Who decides meanwhile is said once:
//! `Watch::decide_without` while a server is known to be away, and `Standby::unless_answered` when it has failed.
//!
//! [`Guarded`] wraps any backend in this way. `RedisBackend` asks the same two by itself, since a guard reports requests, and
//! Redis has to report calls and servers:
//!
//! - Many requests share a call. One call that fails is one failure, and five in a row open the breaker. A wrapper would
//!   count a failure for each request of the call, and measure the deadline of each from its own start.
//! - A request may need several servers of a cluster. If one of them fails, the charges on the others are taken back, and
//!   that server alone is taken to be away. A wrapper has one error, which names no server.
//! - Leased units and remembered denials decide while the server is away too, so the backend looks at them before the standby.
//!
//! A slot is given back where it was taken: the standby knows those that this process has, and the backend those in its store.

mod availability;
pub(crate) mod breaker;
mod guard;
pub(crate) mod guarded;
mod node_count;
pub(super) mod remote_backend;
mod report;
pub(crate) mod standby;
pub(crate) mod watch;

pub use self::availability::Availability;
pub(crate) use self::guarded::Guarded;
pub use self::node_count::NodeCount;
