use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::shared::{Ended, Shared};

/// A slot of an [`AdaptiveConcurrency`](super::AdaptiveConcurrency), which is free again when this is dropped.
///
/// A request that is neither [answered](Self::answered) nor [overloaded](Self::overloaded) teaches nothing: its client is
/// gone, or it has failed for a reason of its own.
#[must_use = "the slot is free again when the permit is dropped"]
pub struct Permit {
    shared: Arc<Shared>,
    partition: Option<usize>,
    made: Instant,
    /// Since the limit was made.
    began: Duration,
    epoch: u32,
    is_noted: bool,
}

/// A request finds all slots taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saturated {
    limit: u32,
}

impl Saturated {
    /// How many requests may be in flight at once.
    pub fn limit(&self) -> u32 {
        self.limit
    }
}

impl fmt::Display for Saturated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} requests are in flight, and no more may be",
            self.limit
        )
    }
}

impl std::error::Error for Saturated {}

impl Permit {
    pub(super) fn enter(
        shared: &Arc<Shared>,
        partition: Option<&str>,
        made: Instant,
    ) -> Result<Self, Saturated> {
        let partition = shared.partitions.find(partition);
        if !shared.enter(partition) {
            let limit = shared.limit();
            return Err(Saturated { limit });
        }
        Ok(Self {
            shared: Arc::clone(shared),
            partition,
            made,
            began: made.elapsed(),
            epoch: shared.epoch(),
            is_noted: false,
        })
    }

    /// The request has succeeded. The time until now is what the limit learns from. The slot stays taken until the
    /// permit is dropped, at the end of the response's body.
    pub fn answered(&mut self) {
        let now = self.made.elapsed();
        self.note(Ended::Answered(now.saturating_sub(self.began)), now);
    }

    /// The request has failed because the service is overloaded, such as by a timeout. A tenth of such requests or more
    /// makes the limit fall.
    pub fn overloaded(&mut self) {
        let now = self.made.elapsed();
        self.note(Ended::Overloaded, now);
    }

    /// What is said first counts.
    fn note(&mut self, ended: Ended, now: Duration) {
        if !self.is_noted {
            self.is_noted = true;
            self.shared.note(ended, self.epoch, now);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.shared.leave(self.partition);
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("began", &self.began)
            .finish_non_exhaustive()
    }
}
