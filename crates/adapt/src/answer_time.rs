use std::time::Duration;

use super::new_times::NewTimes;
use super::{Load, Signal};
use tower_ratelimit::store::RedisStore;

/// The signal `store`: the 90th percentile of the time that Redis takes to answer, as a share of a target.
///
/// A call that fails counts with the time that it took, so a server that does not answer is as slow as the
/// deadline of the store. The signal is absent until 20 calls have ended since the last reading.
///
/// ```
/// use std::time::Duration;
/// use tower_ratelimit_adapt::{Adapt, Aimd, AnswerTime, Load};
/// use tower_ratelimit::{Limiter, Policy, RedisStore, TokenBucket};
///
/// let store = RedisStore::new("redis://127.0.0.1:6379/")?;
/// let adapt = Adapt::builder(Aimd::on("store", Load::FULL))
///     .signal(AnswerTime::of(&store, Duration::from_millis(20)))
///     .build()?;
/// let policy = Policy::new("api", TokenBucket::per_second(50)).factor(adapt.factor());
/// let limiter = Limiter::builder().policy(policy).store(store).build()?;
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
pub struct AnswerTime {
    store: RedisStore,
    target: Duration,
    times: NewTimes,
}

const ENOUGH: u64 = 20;

impl AnswerTime {
    /// Creates the signal of this store, with this target.
    pub fn of(store: &RedisStore, target: Duration) -> Self {
        Self {
            store: store.clone(),
            target,
            times: NewTimes::since(store.times_of_calls(), ENOUGH),
        }
    }
}

impl Signal for AnswerTime {
    fn name(&self) -> &'static str {
        "store"
    }

    fn read(&mut self, _: Duration) -> Option<Load> {
        self.times.load(self.store.times_of_calls(), self.target)
    }

    fn may_be_absent(&self) -> bool {
        true
    }
}

impl std::fmt::Debug for AnswerTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AnswerTime")
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}
