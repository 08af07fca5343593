//! `Retry-After` (RFC 9110, section 10.2.3): seconds, or a date.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::{DATE, RETRY_AFTER};

use super::{RateLimitInfo, Wait};

pub(super) fn read(headers: &HeaderMap, info: &mut RateLimitInfo) {
    for field in headers.get_all(RETRY_AFTER) {
        let text = String::from_utf8_lossy(field.as_bytes()).trim().to_owned();
        match wait(&text, headers) {
            // The longest of several counts, against the specification.
            Ok(Some(wait)) => {
                let longer = info
                    .retry_after
                    .is_none_or(|other| other.length < wait.length);
                if longer {
                    info.retry_after = Some(wait);
                }
            }
            Ok(None) => {}
            Err(()) => info.malformed.push(("Retry-After", text)),
        }
    }
}

/// Returns nothing for a date that cannot be compared with the clock that wrote it.
fn wait(text: &str, headers: &HeaderMap) -> Result<Option<Wait>, ()> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(Some(Wait::seconds(text.parse().unwrap_or(u64::MAX))));
    }
    let date = httpdate::parse_http_date(text).map_err(|_| ())?;
    Ok(server_time(headers).map(|now| Wait {
        length: date.duration_since(now).unwrap_or_default(),
        // The date is rounded up, `Date` is rounded down, and a server may renew it once a second.
        coarse: Duration::from_secs(3),
    }))
}

fn server_time(headers: &HeaderMap) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(DATE)?.to_str().ok()?).ok()
}
