//! What a node does while a store is away.
//!
//! A store in another place can be away: it refuses connections, takes too long, or cannot write. Then
//! requests do not wait for it. After five failures in a row the [`Watch`] takes the place for away, asks it now
//! and then whether it is back, and tells operators of both. Meanwhile each policy does what its
//! [`OnStoreFailure`](crate::OnStoreFailure) says: the [`Standby`] decides in this process.
//!
//! [`Guarded`] is a wrapper of any ledger that does so. `RedisLedger` uses the same parts by itself: many requests
//! share a call there, and a call that fails has failed once.

mod availability;
mod breaker;
mod elsewhere;
mod guard;
mod guarded;
mod report;
mod standby;
mod watch;

pub use self::availability::Availability;
#[cfg(feature = "redis")]
pub(super) use self::breaker::KeyPart;
pub(crate) use self::guarded::Guarded;
#[cfg(feature = "redis")]
pub(super) use self::standby::Standby;
#[cfg(feature = "redis")]
pub(super) use self::watch::{Probe, Remote, Watch, away, late};
