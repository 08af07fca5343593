use http::HeaderName;

use super::names::{COMBINED, SEPARATE, X_RATE_LIMIT, X_RATELIMIT};
use crate::clock::Micros;
use crate::error::ConfigError;

/// The names and the syntax in which limits are told; the [module](super) compares them.
///
/// `Draft11` lists all policies. The others have room for one, and tell the one that
/// [binds](crate::Decision::binding): the least remaining of a request that goes on, the longest
/// wait of one that is refused. Their reset ends the time that draft 11 calls `t`; where no wait
/// can help there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// draft-ietf-httpapi-ratelimit-headers-11, and -08 to -10, which have the same syntax: the
    /// lists `RateLimit` and `RateLimit-Policy`.
    Draft11,
    /// draft-ietf-httpapi-ratelimit-headers-07: the dictionary `RateLimit`, and
    /// `RateLimit-Policy`.
    ///
    /// A quota is the identifier of its policy in drafts 04 to 07, and no two policies may have the
    /// same; its window is required. So of several policies with one limit, `RateLimit-Policy`
    /// lists the binding one, or else the first declared, and a limit of 0, which has no window,
    /// is not listed. `reset` is required as well: where no wait can help there is no `RateLimit`.
    Draft07,
    /// draft-ietf-httpapi-ratelimit-headers-06, and -04 and -05: `RateLimit-Limit`,
    /// `RateLimit-Remaining`, `RateLimit-Reset` and `RateLimit-Policy`.
    ///
    /// The rules of [`Draft07`](Self::Draft07) hold here too: without a reset there is no limit.
    Draft06,
    /// draft-ietf-httpapi-ratelimit-headers-03, and -00 to -02: `RateLimit-Limit`, in which the
    /// policies follow the limit, `RateLimit-Remaining` and `RateLimit-Reset`.
    ///
    /// The rules of [`Draft07`](Self::Draft07) hold here too: without a reset there is nothing.
    Draft03,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, which no
    /// specification defines.
    XRateLimit(Reset),
    /// `X-Rate-Limit-Limit`, `X-Rate-Limit-Remaining` and `X-Rate-Limit-Reset`, as X (Twitter)
    /// has them with [`Reset::EpochSeconds`].
    XRateLimitDashed(Reset),
    /// `X-RateLimit-*` as GitHub's API has them: the reset in epoch seconds, with `-Used` (the limit
    /// less what remains) and `-Resource` (the policy's name).
    GitHub,
}

/// What the number in an `X-RateLimit-Reset` means. It is rounded up, as every time is.
///
/// The fields of the drafts have no such choice: theirs are seconds from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reset {
    /// Seconds from now, at least 1.
    DeltaSeconds,
    /// Milliseconds from now, at least 1.
    DeltaMillis,
    /// A moment, in seconds since the Unix epoch, by the store's clock.
    EpochSeconds,
}

/// The largest integer of a structured field (RFC 9651, section 3.3.1).
pub(super) const LARGEST_INTEGER: u64 = 999_999_999_999_999;

pub(super) fn whole_seconds(time: Micros) -> u64 {
    time.ceil_secs().clamp(1, LARGEST_INTEGER)
}

impl Reset {
    /// The number for a time that begins `at` this moment.
    pub(super) fn number(self, at: Micros, time: Micros) -> u64 {
        match self {
            Self::DeltaSeconds => whole_seconds(time),
            Self::DeltaMillis => time.get().div_ceil(1_000).clamp(1, LARGEST_INTEGER),
            Self::EpochSeconds => whole_seconds(at.saturating_add(time)),
        }
    }
}

impl Dialect {
    /// The fields it can write.
    pub(super) fn names(self) -> &'static [HeaderName] {
        match self {
            Self::XRateLimit(_) => &X_RATELIMIT[..3],
            Self::Draft03 => &SEPARATE[..3],
            _ => self.family(),
        }
    }

    /// The fields that are told by one server together: whoever replaces one replaces all.
    pub(super) fn family(self) -> &'static [HeaderName] {
        match self {
            Self::Draft11 | Self::Draft07 => &COMBINED,
            Self::Draft06 => &SEPARATE,
            // Without the policies, which may be a list of draft 11.
            Self::Draft03 => &SEPARATE[..3],
            Self::XRateLimit(_) | Self::GitHub => &X_RATELIMIT,
            Self::XRateLimitDashed(_) => &X_RATE_LIMIT,
        }
    }
}

/// Refuses dialects of which two write a field of the same name.
pub(super) fn check(dialects: &[Dialect]) -> Result<(), ConfigError> {
    for (index, second) in dialects.iter().enumerate() {
        for first in dialects.iter().take(index) {
            let mut names = first.names().iter();
            if let Some(name) = names.find(|name| second.names().contains(name)) {
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
