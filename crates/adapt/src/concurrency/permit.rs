use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::shared::{Ended, SharedCounts};

/// A slot of an [`AdaptiveConcurrency`](super::AdaptiveConcurrency). Dropping it frees the slot.
///
/// A request that is neither [answered](Self::answered) nor [overloaded](Self::overloaded) is not a sample:
/// its client has gone away, or it has failed for a reason of its own.
#[must_use = "the slot is free again when the permit is dropped"]
pub struct Permit {
    shared: Arc<SharedCounts>,
    partition: Option<usize>,
    made: Instant,
    /// Counted from the creation of the limit.
    began: Duration,
    epoch: u32,
    is_noted: bool,
}

/// The error of a request that finds all slots taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saturated {
    limit: u32,
}

impl Saturated {
    /// Returns how many requests may be in flight at once.
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
        shared: &Arc<SharedCounts>,
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

    /// Records that the request has succeeded. The limit learns from the time until now. The slot stays taken
    /// until the permit is dropped, at the end of the response's body.
    pub fn answered(&mut self) {
        let now = self.made.elapsed();
        self.note(Ended::Answered(now.saturating_sub(self.began)), now);
    }

    /// Records that the request has failed because the service is overloaded, such as by a timeout. The limit
    /// falls if a tenth of the requests or more do so.
    pub fn overloaded(&mut self) {
        let now = self.made.elapsed();
        self.note(Ended::Overloaded, now);
    }

    /// The first record counts.
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
