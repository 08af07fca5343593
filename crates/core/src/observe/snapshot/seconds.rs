//! Times as numbers of seconds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serializer;

/// Since the epoch of Unix; a time before it is 0.
pub(super) fn unix<S: Serializer>(time: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    length(&since, to)
}

#[expect(clippy::ref_option, reason = "serde passes the field")]
pub(super) fn unix_if_any<S: Serializer>(
    time: &Option<SystemTime>,
    to: S,
) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => unix(time, to),
        None => to.serialize_none(),
    }
}

pub(super) fn length<S: Serializer>(length: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(length.as_secs_f64())
}

#[expect(clippy::ref_option, reason = "serde passes the field")]
pub(super) fn length_if_any<S: Serializer>(
    time: &Option<Duration>,
    to: S,
) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => length(time, to),
        None => to.serialize_none(),
    }
}
