//! Decisions of a node while its store is away.
//!
//! A remote store can be away: it refuses connections, takes too long, or cannot write. Then requests do not
//! wait for it. After five failures in a row the [`Watch`] treats the store as away, probes it until it is
//! back, and reports both to operators. Meanwhile each policy does what its
//! [`OnStoreFailure`](crate::OnStoreFailure) says: the [`Standby`] decides in this process.
//!
//! [`Guarded`] wraps any ledger in this way. `RedisLedger` uses the same parts by itself: many requests share
//! a call there, and a call that fails is one failure.

mod availability;
pub(crate) mod breaker;
mod guard;
pub(crate) mod guarded;
mod node_count;
mod remote_ledger;
mod report;
pub(crate) mod standby;
pub(crate) mod watch;

pub use self::availability::Availability;
pub(crate) use self::guarded::Guarded;
pub use self::node_count::NodeCount;
