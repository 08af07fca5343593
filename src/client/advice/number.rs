//! The numbers in headers.

use std::time::Duration;

/// Digits only (`1*DIGIT`). A number that is too large for the type counts as the largest.
pub(super) fn whole(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Seconds with or without a fraction, which is read to the microsecond and rounded up.
pub(super) fn seconds(text: &str) -> Option<Duration> {
    const DIGITS: usize = 6;
    let Some((seconds, fraction)) = text.split_once('.') else {
        return whole(text).map(Duration::from_secs);
    };
    let seconds = whole(seconds)?;
    whole(fraction)?;
    let (read, rest) = fraction.split_at(fraction.len().min(DIGITS));
    let digits = read.bytes().chain([b'0'; DIGITS]).take(DIGITS);
    let micros = digits.fold(0, |micros, digit| 10 * micros + u64::from(digit - b'0'));
    let up = u64::from(rest.bytes().any(|digit| digit != b'0'));
    Some(Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros + up)))
}
