use std::fmt;
use std::time::Duration;

/// Why a call was not sent: it would have had to wait for longer, or behind more others, than was
/// allowed. Its server has not seen it.
///
/// It is the error of a [`Heed`](super::Heed) service, boxed: `error.downcast_ref::<Held>()`.
#[derive(Clone, Debug)]
pub struct Held {
    retry_after: Duration,
    reason: Reason,
}

/// Why a call was not held until it could be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The wait is longer than [`wait_up_to`](super::HeedLayer::wait_up_to), or has become so.
    TooLong,
    /// As many calls of its key wait as [may](super::HeedLayer::max_waiting).
    TooMany,
    /// There is no runtime of tokio's, with its timers enabled, to wake it.
    NoTimer,
}

impl Held {
    pub(super) fn new(retry_after: Duration, reason: Reason) -> Self {
        Self {
            retry_after,
            reason,
        }
    }

    /// How much longer the server has to be left alone, as far as it has told; those that wait go
    /// first then. Zero if nothing is told, and answers are waited for.
    pub fn retry_after(&self) -> Duration {
        self.retry_after
    }

    /// Why it was not held.
    pub fn reason(&self) -> Reason {
        self.reason
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = match self.reason {
            Reason::TooLong => "it may not wait for so long",
            Reason::TooMany => "too many wait already",
            Reason::NoTimer => "there is no timer of tokio's to wait by",
        };
        let wait = self.retry_after;
        write!(
            f,
            "not sent, to keep to a limit that its server has told: {reason} ({wait:?})"
        )
    }
}

impl std::error::Error for Held {}
