//! `X-RateLimit-*`, `X-Rate-Limit-*` and, before they became one header, `RateLimit-*`. No specification says
//! whether a reset is a length or a moment, and so its size decides.

use std::time::{Duration, SystemTime};

use http::HeaderMap;

use super::{Quota, number};

/// The names of one family: remaining, the seconds to the reset, and the reset.
const FAMILIES: [[&str; 3]; 3] = [
    [
        "x-ratelimit-remaining",
        "x-ratelimit-reset-after",
        "x-ratelimit-reset",
    ],
    [
        "x-rate-limit-remaining",
        "x-rate-limit-reset-after",
        "x-rate-limit-reset",
    ],
    [
        "ratelimit-remaining",
        "ratelimit-reset-after",
        "ratelimit-reset",
    ],
];

/// A reset from here on is a moment in seconds since the epoch, in 2001 or later: as a length it would be 31
/// years.
const MOMENT: u64 = 1_000_000_000;

/// From here on a moment is in milliseconds: in seconds it would be in the year 33658.
const MOMENT_IN_MILLIS: u64 = 1_000_000_000_000;

/// Returns the numbers of the first family that says how many calls remain, if the server's clock shows `now`.
pub(super) fn quota(headers: &HeaderMap, now: SystemTime) -> Option<Quota> {
    FAMILIES.iter().find_map(|[remaining, after, reset]| {
        let remaining = values(headers, remaining)
            .filter_map(number::seconds)
            .min()?;
        let after = values(headers, after).filter_map(number::seconds).max();
        let reset = || values(headers, reset).filter_map(number::seconds).max();
        Some(Quota {
            remaining: remaining.as_secs(),
            window: after.or_else(|| Some(until(reset()?, now))),
        })
    })
}

fn until(reset: Duration, now: SystemTime) -> Duration {
    let moment = match reset.as_secs() {
        ..MOMENT => return reset,
        MOMENT..MOMENT_IN_MILLIS => reset,
        MOMENT_IN_MILLIS.. => Duration::from_millis(reset.as_secs()),
    };
    let now = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    moment.saturating_sub(now)
}

fn values<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    let fields = headers.get_all(name).iter();
    fields.filter_map(|field| Some(field.to_str().ok()?.trim()))
}
