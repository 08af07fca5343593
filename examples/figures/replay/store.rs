//! The store that keeps the state: this process, or the server of `REDIS_URL`.

use std::error::Error;
#[cfg(all(feature = "redis", feature = "testing"))]
use std::time::Duration;

use tower_ratelimit::{Limiter, ManualClock, MemoryStore, Policy};

/// The store that keeps the state.
pub(crate) enum ChosenStore {
    Here(MemoryStore),
    #[cfg(all(feature = "redis", feature = "testing"))]
    InRedis(tower_ratelimit::RedisStore),
}

impl ChosenStore {
    pub(crate) fn chosen(clock: &ManualClock) -> Result<Self, Box<dyn Error>> {
        match std::env::var("REDIS_URL") {
            Ok(url) if !url.is_empty() => Self::in_redis(&url, clock),
            _ => Ok(Self::Here(MemoryStore::new().clock(clock.clone()))),
        }
    }

    #[cfg(all(feature = "redis", feature = "testing"))]
    fn in_redis(url: &str, clock: &ManualClock) -> Result<Self, Box<dyn Error>> {
        // States of an earlier run lie in the future of this one.
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed()?;
        let prefix = format!("replay-{}-{}", std::process::id(), now.as_micros());
        let store = tower_ratelimit::RedisStore::builder()
            .prefix(prefix)
            .deadline(Duration::from_secs(5))
            .open(url)?;
        Ok(Self::InRedis(store.clock(clock.clone())))
    }

    #[cfg(not(all(feature = "redis", feature = "testing")))]
    fn in_redis(_: &str, _: &ManualClock) -> Result<Self, Box<dyn Error>> {
        Err(
            "REDIS_URL is set: run this with `--features redis,testing`, or without REDIS_URL"
                .into(),
        )
    }

    pub(crate) fn limiter(&self, policy: Policy) -> Result<Limiter, Box<dyn Error>> {
        let builder = Limiter::builder().policy(policy);
        Ok(match self {
            Self::Here(store) => builder.store(store.clone()).build()?,
            #[cfg(all(feature = "redis", feature = "testing"))]
            Self::InRedis(store) => builder.store(store.clone()).build()?,
        })
    }
}
