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
mod breaker;
mod guard;
pub(crate) mod guarded;
mod node_count;
mod remote_ledger;
mod report;
mod standby;
mod watch;

pub use self::availability::Availability;
#[cfg(feature = "redis")]
pub(super) use self::breaker::KeyPart;
pub(crate) use self::guarded::Guarded;
pub use self::node_count::NodeCount;
#[cfg(feature = "redis")]
pub(super) use self::standby::{Instead, Standby, away};
#[cfg(feature = "redis")]
pub(super) use self::watch::{Probe, Remote, Watch, late};
