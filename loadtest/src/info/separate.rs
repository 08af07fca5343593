//! Headers with one number each: `RateLimit-*` of drafts 00 to 06, `X-RateLimit-*` and `X-Rate-Limit-*`.
//!
//! A reset is not read: no specification says whether it is a length or a moment, nor which one.

use http::HeaderMap;

use super::number::{joined, whole};
use super::{Family, Policy, RateLimitInfo, ServiceLimit};

const FAMILIES: [(Family, &str, &str); 3] = [
    (Family::Separate, "ratelimit-limit", "ratelimit-remaining"),
    (
        Family::XRateLimit,
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
    ),
    (
        Family::XRateLimitDashed,
        "x-rate-limit-limit",
        "x-rate-limit-remaining",
    ),
];

pub(super) fn read(headers: &HeaderMap, info: &mut RateLimitInfo) {
    for (family, limit, remaining) in FAMILIES {
        // Drafts 00 to 03 list the policies behind the limit: `10, 10;w=2`.
        let limit = joined(headers, limit).and_then(|text| {
            let first = text.split([',', ';']).next()?;
            u64::try_from(whole(first)?).ok()
        });
        let remaining = joined(headers, remaining).and_then(|text| whole(&text));
        if limit.is_none() && remaining.is_none() {
            continue;
        }
        info.families.push(family);
        // `RateLimit-Policy` of drafts 04 to 06 has given the same limit with its window.
        let known = info
            .policies
            .iter()
            .any(|policy| policy.name.family == family);
        if let Some(quota) = limit
            && !known
        {
            info.policies.push(Policy {
                name: family.unnamed(),
                quota,
                window: None,
            });
        }
        if let Some(remaining) = remaining {
            let name = family.unnamed();
            info.service_limits.push(ServiceLimit { name, remaining });
        }
    }
}
