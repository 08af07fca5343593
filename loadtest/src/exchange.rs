//! A request and its answer, with the times on which the judge relies.

use std::fmt;
use std::time::Duration;

use crate::info::RateLimitInfo;

/// One request and its answer.
///
/// The server decided on it between [`sent`](Self::sent) and [`received`](Self::received). Both are counted
/// from the beginning of the run.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The number of the request in the run, in the order of sending.
    pub number: u64,
    /// The client whose key was sent; 0 without `--clients`.
    pub client: u32,
    /// The number of the URL, from 0.
    pub node: u16,
    /// The time before the first byte of the request left.
    pub sent: Duration,
    /// The time after the head of the response arrived. [`Duration::MAX`] if the server may still decide on
    /// the request.
    pub received: Duration,
    /// The decision of the server.
    pub verdict: Verdict,
    /// The headers of the response about the limit.
    pub info: RateLimitInfo,
}

/// The decision of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Any status 2xx.
    Allowed,
    /// Status 429.
    Limited,
    /// Everything else: whether the limit was charged is unknown.
    Failed(Failure),
}

/// The reason why a request is neither allowed nor limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    /// A status that is neither 2xx nor 429.
    Status(u16),
    /// No connection to the server.
    Connect,
    /// The connection broke before the answer was complete.
    Broken,
    /// No answer within the timeout.
    Timeout,
}

impl Verdict {
    /// Returns the verdict for a status.
    pub fn of(status: u16) -> Self {
        match status {
            200..=299 => Self::Allowed,
            429 => Self::Limited,
            _ => Self::Failed(Failure::Status(status)),
        }
    }
}

impl Failure {
    /// Returns whether the server answered at all.
    pub fn is_answered(self) -> bool {
        matches!(self, Self::Status(_))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "status {status}"),
            Self::Connect => f.write_str("no connection"),
            Self::Broken => f.write_str("connection lost"),
            Self::Timeout => f.write_str("timeout"),
        }
    }
}

impl fmt::Display for Exchange {
    /// Returns a line of evidence: a request, its time, and the headers of its answer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {}", self.number)?;
        write!(f, ", client {}, node {}", self.client, self.node)?;
        write!(f, ", sent {:.6} s, ", self.sent.as_secs_f64())?;
        if self.received == Duration::MAX {
            f.write_str("no receipt")?;
        } else {
            write!(f, "received {:.6} s", self.received.as_secs_f64())?;
        }
        match self.verdict {
            Verdict::Allowed => f.write_str(": allowed")?,
            Verdict::Limited => f.write_str(": limited")?,
            Verdict::Failed(failure) => write!(f, ": {failure}")?,
        }
        write!(f, "{}", self.info)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_a_verdict() {
        assert_eq!(Verdict::of(200), Verdict::Allowed);
        assert_eq!(Verdict::of(204), Verdict::Allowed);
        assert_eq!(Verdict::of(429), Verdict::Limited);
        for other in [101, 302, 404, 403, 500, 503] {
            assert_eq!(Verdict::of(other), Verdict::Failed(Failure::Status(other)));
        }
    }
}
