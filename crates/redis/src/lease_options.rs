use std::time::Duration;

use tower_ratelimit_core::clock::Micros;
use tower_ratelimit_core::error::ConfigError;

/// Lets a node take several units of a key at once and spend them itself: see
/// [`RedisStoreBuilder::lease`](crate::RedisStoreBuilder::lease).
///
/// ```
/// use std::time::Duration;
/// use tower_ratelimit_redis::{Lease, RedisStore};
///
/// let store = RedisStore::builder()
///     .lease(Lease::up_to(Duration::from_secs(1)))
///     .open("redis://127.0.0.1:6379/")?;
/// # Ok::<(), tower_ratelimit_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    longest: Duration,
}

impl Lease {
    /// Sets the longest life of a leased unit, from 10 ms to a minute. A second is right for most services.
    ///
    /// A longer life means fewer calls for keys that a node asks for seldom. The units of a node that is
    /// killed are lost for this long, and a block, an override or a reset by another node takes effect after
    /// this long at the latest.
    pub fn up_to(longest: Duration) -> Self {
        Self { longest }
    }

    /// Returns the longest life of a unit.
    pub(super) fn life(self) -> Result<Micros, ConfigError> {
        if (Duration::from_millis(10)..=Duration::from_secs(60)).contains(&self.longest) {
            return Ok(self.longest.into());
        }
        let remedy = "give a length from 10 ms to a minute";
        Err(ConfigError::new(
            "lease",
            format_args!("{:?}", self.longest),
            remedy,
        ))
    }
}
