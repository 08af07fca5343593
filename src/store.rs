//! Where state lives.
//!
//! [`MemoryStore`] keeps it in this process and always answers at once. `RedisStore` (feature `redis`) keeps it in Redis or Valkey,
//! for many nodes. [`SharedStore`] keeps it in any place that several processes share and that implements [`Items`]: one atomic
//! read-modify-write.
//!
//! A [`Store`] is opened once for a list of policies. It returns a [`Backend`], which decides each request, now or later.

#[doc(inline)]
pub use tower_ratelimit_core::store::*;
#[cfg(feature = "redis")]
#[doc(inline)]
pub use tower_ratelimit_redis::{Lease, RedisBackend, RedisStore, RedisStoreBuilder};
