use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;

use super::counters::Counters;
use super::queue::Queue;
use super::snapshot::Count;
use crate::clock::Timers;

/// A request that waits under a policy, until it is dropped.
pub(crate) struct Wait {
    counters: Arc<Counters>,
    policy: usize,
    timers: Timers,
    since: Instant,
}

impl Wait {
    /// Counts a request that begins to wait.
    pub(crate) fn begin(counters: &Arc<Counters>, policy: usize, timers: &Timers) -> Self {
        let wait = Self {
            counters: Arc::clone(counters),
            policy,
            timers: timers.clone(),
            since: timers.now(),
        };
        if let Some(queue) = wait.queue() {
            queue.enter();
        }
        wait
    }

    /// Counts the request under this policy from now on.
    pub(crate) fn move_to(&mut self, policy: usize) {
        if self.policy != policy {
            if let Some(queue) = self.queue() {
                queue.leave();
            }
            self.policy = policy;
            if let Some(queue) = self.queue() {
                queue.enter();
            }
        }
    }

    fn queue(&self) -> Option<&Queue> {
        let policy = self.counters.policies().get(self.policy)?;
        policy.queue.as_ref()
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let now = self.timers.now();
        let waited = now.saturating_duration_since(self.since);
        if let Some(queue) = self.queue() {
            queue.leave();
            queue.note(waited, now);
        }
        let micros = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.counters.policy(self.policy, Count::Waited, 1);
        self.counters.policy(self.policy, Count::TimeWaited, micros);
    }
}

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").finish_non_exhaustive()
    }
}
