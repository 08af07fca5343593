//! `Retry-After` (RFC 9110, section 10.2.3): seconds, or a date in any of the three forms.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::RETRY_AFTER;

use super::number;

/// Returns how long to wait, if the server's clock shows `now`: zero for a date in the past. If there are several headers
/// against the specification, the longest wait counts.
pub(super) fn wait(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let fields = headers.get_all(RETRY_AFTER).iter();
    let fields = fields.filter_map(|field| field.to_str().ok());
    fields.filter_map(|field| read(field.trim(), now)).max()
}

fn read(field: &str, now: SystemTime) -> Option<Duration> {
    if let Some(seconds) = number::whole(field) {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(field).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}
