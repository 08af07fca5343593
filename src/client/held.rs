use std::error::Error;
use std::fmt;
use std::time::Duration;

/// Why a call was not sent: it would have had to wait for longer, or behind more others, than was
/// allowed. Its server has not seen it.
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
            "held, to keep to a limit that its server has told: {reason} ({wait:?})"
        )
    }
}

impl Error for Held {}

/// What can be wrong with a call of a [`Heed`](super::Heed) service.
///
/// It is an error if the inner one is. Where that is boxed already, [`into_boxed`](Self::into_boxed)
/// makes a boxed one of both.
#[derive(Clone, Debug)]
pub enum HeedError<E> {
    /// It was not sent.
    Held(Held),
    /// The inner service has failed.
    Inner(E),
}

impl<E> HeedError<E> {
    /// Why it was not sent, if it was not.
    pub fn held(&self) -> Option<&Held> {
        match self {
            Self::Held(held) => Some(held),
            Self::Inner(_) => None,
        }
    }

    /// The one that there is, boxed.
    pub fn into_boxed(self) -> Box<dyn Error + Send + Sync>
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        match self {
            Self::Held(held) => held.into(),
            Self::Inner(error) => error.into(),
        }
    }
}

impl<E> fmt::Display for HeedError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(_) => f.write_str("the call was not sent"),
            Self::Inner(_) => f.write_str("the call has failed"),
        }
    }
}

impl<E: Error + 'static> Error for HeedError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Held(held) => Some(held),
            Self::Inner(error) => Some(error),
        }
    }
}
