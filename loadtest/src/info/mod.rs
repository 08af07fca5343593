//! Reads what a response says about a limit, in the dialects of servers.
//!
//! | headers | read as |
//! | --- | --- |
//! | `Retry-After` | seconds or a date (RFC 9110, section 10.2.3) |
//! | `RateLimit`, `RateLimit-Policy` | lists of draft-ietf-httpapi-ratelimit-headers-08 to -11, names as strings or tokens; draft 07 |
//! | `RateLimit-Limit`, `-Remaining`, `RateLimit-Policy` | drafts 00 to 06 |
//! | `X-RateLimit-*`, `X-Rate-Limit-*` | as GitHub, X and others write them |
//!
//! The client layer of the crate (`tower_ratelimit::client`) reads the same headers to obey them, and needs one wait
//! and one number. The tester needs every policy by name, and the malformed headers.

mod lists;
mod number;
mod problem;
mod retry_after;
mod separate;

use std::fmt;
use std::time::Duration;

use http::HeaderMap;

pub use self::problem::Problem;
pub(crate) use self::problem::is_problem;

/// The rate limit information of one response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateLimitInfo {
    /// The wait in `Retry-After`.
    pub retry_after: Option<Wait>,
    /// The limits in force.
    pub policies: Vec<Policy>,
    /// The remaining requests of each limit.
    pub service_limits: Vec<ServiceLimit>,
    /// Headers that no specification can read, with their text.
    pub malformed: Vec<(&'static str, String)>,
    /// The families of headers that were sent.
    pub families: Vec<Family>,
    /// The body of a refusal.
    pub problem: Problem,
}

/// An announced wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The wait after the receipt.
    pub length: Duration,
    /// The allowed excess over the shortest wait: a time in whole seconds is rounded up.
    pub coarse: Duration,
}

/// A limit in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Its family and its name.
    pub name: Name,
    /// The number of requests.
    pub quota: u64,
    /// The window in whole seconds.
    pub window: Option<u64>,
}

/// The remaining requests of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceLimit {
    /// Its family and its name.
    pub name: Name,
    /// The number of remaining requests. A faulty server may send a negative number.
    pub remaining: i64,
}

/// The name of a limit: the family of the headers, and the name in them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// The family of the headers.
    pub family: Family,
    /// The name in them; empty where the family has none.
    pub text: String,
}

/// A family of headers that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// `RateLimit` and `RateLimit-Policy` of drafts 08 to 11.
    Lists,
    /// `RateLimit` of draft 07.
    Draft07,
    /// `RateLimit-Limit` and `RateLimit-Remaining`.
    Separate,
    /// `X-RateLimit-*`.
    XRateLimit,
    /// `X-Rate-Limit-*`.
    XRateLimitDashed,
}

impl RateLimitInfo {
    /// Reads the headers of a response.
    pub fn by(headers: &HeaderMap) -> Self {
        let mut info = Self::default();
        retry_after::read(headers, &mut info);
        lists::read(headers, &mut info);
        separate::read(headers, &mut info);
        info
    }

    /// Returns the remaining requests under this name.
    pub fn remaining(&self, name: &Name) -> Option<i64> {
        let service_limit = self
            .service_limits
            .iter()
            .find(|limit| limit.name == *name)?;
        Some(service_limit.remaining)
    }

    /// Returns the policy of this name.
    pub fn policy(&self, name: &Name) -> Option<&Policy> {
        self.policies.iter().find(|policy| policy.name == *name)
    }
}

impl Wait {
    fn seconds(seconds: u64) -> Self {
        Self {
            length: Duration::from_secs(seconds),
            coarse: Duration::from_secs(1),
        }
    }
}

impl Family {
    fn unnamed(self) -> Name {
        Name {
            family: self,
            text: String::new(),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lists => "RateLimit of drafts 08 to 11",
            Self::Draft07 => "RateLimit of draft 07",
            Self::Separate => "RateLimit-* of drafts 00 to 06",
            Self::XRateLimit => "X-RateLimit-*",
            Self::XRateLimitDashed => "X-Rate-Limit-*",
        })
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.family {
            Family::Lists => write!(f, "\"{}\"", self.text),
            family => family.fmt(f),
        }
    }
}

impl fmt::Display for RateLimitInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(wait) = self.retry_after {
            write!(f, ", Retry-After {} s", wait.length.as_secs())?;
        }
        for service_limit in &self.service_limits {
            write!(f, ", {}", service_limit.name)?;
            if let Some(policy) = self.policy(&service_limit.name) {
                write!(f, " limit {}", policy.quota)?;
            }
            write!(f, " remaining {}", service_limit.remaining)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
