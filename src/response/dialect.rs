//! The header fields in which a client is told its limits, by dialect.

use http::HeaderName;

use super::names::{COMBINED, SEPARATE, X_RATE_LIMIT, X_RATELIMIT};
use crate::clock::Micros;
use crate::error::ConfigError;

/// The names and the syntax of rate limit headers; the [module](super) compares them.
///
/// `Draft11` lists all policies. The other dialects have room for one and tell the policy that
/// [binds](crate::Decision::binding): the one with the least remaining if the request is allowed,
/// the one with the longest wait if it is refused. Their reset is the end of the time that draft 11
/// calls `t`. If no wait helps, there is no reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// draft-ietf-httpapi-ratelimit-headers-11, and -08 to -10 with the same syntax: the lists
    /// `RateLimit` and `RateLimit-Policy`.
    Draft11,
    /// draft-ietf-httpapi-ratelimit-headers-07: the dictionary `RateLimit`, and
    /// `RateLimit-Policy`.
    ///
    /// In drafts 04 to 07 a policy is identified by its quota, which must be unique, and its window
    /// is required. So if several policies have one limit, `RateLimit-Policy` lists the binding
    /// one, or else the first declared. A limit of 0 has no window and is not listed. `reset` is
    /// required too: if no wait helps, there is no `RateLimit`.
    Draft07,
    /// draft-ietf-httpapi-ratelimit-headers-06, and -04 and -05: `RateLimit-Limit`,
    /// `RateLimit-Remaining`, `RateLimit-Reset` and `RateLimit-Policy`.
    ///
    /// The rules of [`Draft07`](Self::Draft07) hold here too: without a reset, no limit is sent.
    Draft06,
    /// draft-ietf-httpapi-ratelimit-headers-03, and -00 to -02: `RateLimit-Limit`, in which the
    /// policies follow the limit, `RateLimit-Remaining` and `RateLimit-Reset`.
    ///
    /// The rules of [`Draft07`](Self::Draft07) hold here too: without a reset, nothing is sent.
    Draft03,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, which no
    /// specification defines.
    XRateLimit(Reset),
    /// `X-Rate-Limit-Limit`, `X-Rate-Limit-Remaining` and `X-Rate-Limit-Reset`, as X (Twitter)
    /// sends them with [`Reset::EpochSeconds`].
    XRateLimitDashed(Reset),
    /// `X-RateLimit-*` as the GitHub API sends them: the reset in epoch seconds, with `-Used` (the
    /// limit minus what remains) and `-Resource` (the name of the policy).
    GitHub,
}

/// The meaning of the number in `X-RateLimit-Reset`. All times are rounded up.
///
/// The drafts have no such choice: their times are seconds from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reset {
    /// Seconds from now, at least 1.
    DeltaSeconds,
    /// Milliseconds from now, at least 1.
    DeltaMillis,
    /// A moment in seconds since the Unix epoch, by the clock of the store.
    EpochSeconds,
}

/// The largest integer in a structured field (RFC 9651, section 3.3.1).
pub(super) const LARGEST_INTEGER: u64 = 999_999_999_999_999;

pub(super) fn whole_seconds(time: Micros) -> u64 {
    time.ceil_secs().clamp(1, LARGEST_INTEGER)
}

impl Reset {
    /// Returns the number for a duration that begins `at` this moment.
    pub(super) fn number(self, at: Micros, time: Micros) -> u64 {
        match self {
            Self::DeltaSeconds => whole_seconds(time),
            Self::DeltaMillis => time.get().div_ceil(1_000).clamp(1, LARGEST_INTEGER),
            Self::EpochSeconds => whole_seconds(at.saturating_add(time)),
        }
    }
}

impl Dialect {
    /// Returns the headers that this dialect can write.
    pub(super) fn names(self) -> &'static [HeaderName] {
        match self {
            Self::XRateLimit(_) => &X_RATELIMIT[..3],
            Self::Draft03 => &SEPARATE[..3],
            _ => self.family(),
        }
    }

    /// Returns the headers that one server sends together. They are replaced together.
    pub(super) fn family(self) -> &'static [HeaderName] {
        match self {
            Self::Draft11 | Self::Draft07 => &COMBINED,
            Self::Draft06 => &SEPARATE,
            // `RateLimit-Policy` is left out, because it may be a list of draft 11.
            Self::Draft03 => &SEPARATE[..3],
            Self::XRateLimit(_) | Self::GitHub => &X_RATELIMIT,
            Self::XRateLimitDashed(_) => &X_RATE_LIMIT,
        }
    }
}

impl Dialect {
    /// Returns a header that both write.
    // For `tower-ratelimit-config`.
    #[doc(hidden)]
    pub fn common_header(self, other: Self) -> Option<&'static HeaderName> {
        let mut names = self.names().iter();
        names.find(|name| other.names().contains(name))
    }
}

/// Rejects two dialects that write the same header.
pub(super) fn check(dialects: &[Dialect]) -> Result<(), ConfigError> {
    for (index, second) in dialects.iter().enumerate() {
        for first in dialects.iter().take(index) {
            if let Some(name) = first.common_header(*second) {
                let value = format_args!("{first:?} beside {second:?}");
                let remedy = format!("keep one of the two, since both write `{name}`");
                return Err(ConfigError::new("dialects", value, remedy));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_is_rounded_down_and_none_has_more_digits_than_a_structured_field() {
        let at = Micros::new(1_800_000_000_800_000);
        for (wait, numbers) in [
            (1, [1, 1, 1_800_000_001]),
            (200_000, [1, 200, 1_800_000_001]),
            (200_001, [1, 201, 1_800_000_002]),
            (49_200_000, [50, 49_200, 1_800_000_050]),
        ] {
            let wait = Micros::new(wait);
            let kinds = [Reset::DeltaSeconds, Reset::DeltaMillis, Reset::EpochSeconds];
            assert_eq!(kinds.map(|kind| kind.number(at, wait)), numbers);
        }
        let longest = Micros::new(u64::MAX);
        assert_eq!(
            Reset::DeltaMillis.number(at, longest),
            LARGEST_INTEGER,
            "H20"
        );
        assert!(Reset::EpochSeconds.number(longest, longest) <= LARGEST_INTEGER);
    }
}
