//! The errors of an outgoing call.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// A call was not sent, since it would have to wait for longer, or behind more calls, than the layer allows. The
/// server has not seen it.
#[derive(Clone, Debug)]
pub struct Throttled {
    retry_after: Duration,
    reason: Reason,
}

/// Why a call did not wait until it could be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The wait is, or has become, longer than [`wait_up_to`](super::ClientThrottleLayer::wait_up_to).
    TooLong,
    /// As many calls of its key wait as [`wait_places`](super::ClientThrottleLayer::wait_places) allows.
    TooMany,
    /// There is no tokio runtime with time enabled.
    NoTimer,
}

impl Throttled {
    pub(super) fn new(retry_after: Duration, reason: Reason) -> Self {
        Self {
            retry_after,
            reason,
        }
    }

    /// Returns how much longer the server wants no calls; the calls that wait go first after that. Zero if the
    /// server has announced no time, and the layer waits for responses.
    pub fn retry_after(&self) -> Duration {
        self.retry_after
    }

    /// Why the call did not wait.
    pub fn reason(&self) -> Reason {
        self.reason
    }
}

impl fmt::Display for Throttled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = match self.reason {
            Reason::TooLong => "that is longer than the call may wait",
            Reason::TooMany => "too many calls wait already",
            Reason::NoTimer => "there is no tokio runtime with time enabled",
        };
        let wait = self.retry_after;
        write!(
            f,
            "not sent: the rate limit of the server requires a wait of {wait:?}, and {reason}"
        )
    }
}

impl Error for Throttled {}

/// The error of a call of a [`ClientThrottle`](super::ClientThrottle) service.
///
/// It implements [`Error`] if the error of the inner service does. If the inner error is boxed already,
/// [`into_boxed`](Self::into_boxed) boxes both cases.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ClientThrottleError<E> {
    /// The call was not sent.
    Throttled(Throttled),
    /// The inner service failed.
    Inner(E),
}

impl<E> ClientThrottleError<E> {
    /// Why the call was not sent; `None` if it was.
    pub fn throttled(&self) -> Option<&Throttled> {
        match self {
            Self::Throttled(call) => Some(call),
            Self::Inner(_) => None,
        }
    }

    /// Returns the error of either case, boxed.
    pub fn into_boxed(self) -> Box<dyn Error + Send + Sync>
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        match self {
            Self::Throttled(call) => call.into(),
            Self::Inner(error) => error.into(),
        }
    }
}

impl<E> fmt::Display for ClientThrottleError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Throttled(_) => f.write_str("the call was not sent"),
            Self::Inner(_) => f.write_str("the call failed"),
        }
    }
}

impl<E: Error + 'static> Error for ClientThrottleError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Throttled(call) => Some(call),
            Self::Inner(error) => Some(error),
        }
    }
}
