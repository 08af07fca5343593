//! `RateLimit` of draft-ietf-httpapi-ratelimit-headers-11: a list of strings, each with the integers
//! `r` and perhaps `t`. A malformed header is ignored as a whole, and a parameter of another name is ignored by itself.
//!
//! The editors' copy of the next draft calls the two `a` and `w`, and lets the name of a policy be a token. That is read too.

use std::time::Duration;

use http::HeaderMap;
use sfv::{BareItem, Item, List, ListEntry, Parser};

use super::Quota;

/// The longest header that is read.
const LONGEST: usize = 8 * 1024;

/// Returns the policy with the fewest remaining requests; of several, the policy with the longest window.
pub(super) fn quota(headers: &HeaderMap) -> Option<Quota> {
    let limits = list(headers, "ratelimit")?;
    let others = counted_otherwise(headers);
    let mut fewest: Option<Quota> = None;
    for member in limits {
        let (name, quota) = limit(member)?;
        // The next draft compares names without case.
        if others.iter().any(|other| other.eq_ignore_ascii_case(&name)) {
            continue;
        }
        fewest = Some(match fewest {
            Some(fewest) if fewest.remaining < quota.remaining => fewest,
            Some(fewest) if fewest.remaining == quota.remaining => Quota {
                window: fewest.window.max(quota.window),
                ..quota
            },
            _ => quota,
        });
    }
    fewest
}

/// The names of policies that count something other than requests.
fn counted_otherwise(headers: &HeaderMap) -> Vec<String> {
    let policies = list(headers, "ratelimit-policy").unwrap_or_default();
    let policies = policies.into_iter().filter_map(named);
    let otherwise = policies.filter(|(_, item)| {
        let unit = item.params.get("qu").and_then(BareItem::as_string);
        // The registry of units says `request`, and the text of the draft `requests`.
        unit.is_some_and(|unit| !["request", "requests"].contains(&unit.as_str()))
    });
    otherwise.map(|(name, _)| name).collect()
}

fn limit(member: ListEntry) -> Option<(String, Quota)> {
    let (name, item) = named(member)?;
    let [remaining, window] = match item.params.get("r") {
        Some(remaining) if item.bare_item.as_string().is_some() => {
            [Some(remaining), item.params.get("t")]
        }
        _ => [item.params.get("a"), item.params.get("w")],
    };
    let remaining = non_negative(remaining?)?;
    let window = match window {
        Some(window) => Some(Duration::from_secs(non_negative(window)?)),
        None => None,
    };
    Some((name, Quota { remaining, window }))
}

fn named(member: ListEntry) -> Option<(String, Item)> {
    let ListEntry::Item(item) = member else {
        return None;
    };
    let name = match &item.bare_item {
        BareItem::String(name) => name.as_str().to_owned(),
        BareItem::Token(name) => name.as_str().to_owned(),
        _ => return None,
    };
    Some((name, item))
}

fn non_negative(item: &BareItem) -> Option<u64> {
    u64::try_from(i64::from(item.as_integer()?)).ok()
}

/// All lines of a header, as one list.
fn list(headers: &HeaderMap, name: &str) -> Option<List> {
    let mut lines = headers.get_all(name).iter();
    let mut field = lines.next()?.as_bytes().to_vec();
    for line in lines {
        field.extend_from_slice(b", ");
        field.extend_from_slice(line.as_bytes());
    }
    if field.len() > LONGEST {
        return None;
    }
    Parser::new(&field).parse().ok()
}
