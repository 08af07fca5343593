use std::fmt;
use std::time::Duration;

use crate::decision::Decision;
use crate::error::StoreError;

/// Why a request was refused.
///
/// It is an error, so a service with a boxed error needs no other type:
/// `|refused| Err(refused.into())`.
#[derive(Debug)]
#[non_exhaustive]
pub enum Refused {
    /// The request is over the limit of a policy, or its key is blocked.
    OverLimit(Decision),
    /// The store could not decide. The client has done nothing wrong.
    Store(StoreError),
    /// The request has to wait for its turn in a [`LeakyQueue`](crate::LeakyQueue), and there is no
    /// tokio runtime with timers to wake it.
    NoTimer,
}

impl Refused {
    /// Returns the decision, if there is one.
    pub fn decision(&self) -> Option<&Decision> {
        match self {
            Self::OverLimit(decision) => Some(decision),
            Self::Store(_) | Self::NoTimer => None,
        }
    }

    /// Returns the wait after which the same request passes if no other request arrives.
    ///
    /// `None` if no wait helps, and if there is no decision.
    pub fn retry_after(&self) -> Option<Duration> {
        self.decision()?.retry_after()
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OverLimit(decision) => {
                let name = decision.binding().map_or("", |(name, _)| name);
                write!(f, "over the limit of {name:?}")?;
                match decision.retry_after() {
                    Some(wait) => write!(f, "; it passes in {wait:?}"),
                    None => f.write_str("; no wait can help"),
                }
            }
            Self::Store(_) => f.write_str("the rate limiter's store could not decide"),
            Self::NoTimer => f.write_str("there is no timer of tokio's to wait by"),
        }
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            Self::OverLimit(_) | Self::NoTimer => None,
        }
    }
}
