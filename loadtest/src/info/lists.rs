//! `RateLimit` and `RateLimit-Policy`: lists with names since draft 08, a dictionary and a list of numbers in draft 07.

use http::HeaderMap;
use sfv::{BareItem, Dictionary, Item, List, ListEntry, Parser};

use super::number::joined;
use super::{Family, Name, Policy, RateLimitInfo, ServiceLimit};

pub(super) fn read(headers: &HeaderMap, info: &mut RateLimitInfo) {
    if let Some(text) = joined(headers, "ratelimit")
        && service_limits(&text, info).is_none()
        && draft07(&text, info).is_none()
    {
        info.malformed.push(("RateLimit", text));
    }
    if let Some(text) = joined(headers, "ratelimit-policy")
        && policies(&text, info).is_none()
    {
        info.malformed.push(("RateLimit-Policy", text));
    }
}

/// `"default";r=9;t=2`. The editors' drafts of 2026 call `r` `a`, and allow tokens as names.
fn service_limits(text: &str, info: &mut RateLimitInfo) -> Option<()> {
    let mut service_limits = Vec::new();
    for entry in list(text)? {
        let item = item(entry)?;
        let remaining = integer(&item, "r").or_else(|| integer(&item, "a"))?;
        let name = name(&item)?;
        service_limits.push(ServiceLimit { name, remaining });
    }
    info.service_limits.extend(service_limits);
    info.families.push(Family::Lists);
    Some(())
}

/// `limit=100, remaining=50, reset=30`.
fn draft07(text: &str, info: &mut RateLimitInfo) -> Option<()> {
    let dictionary: Dictionary = Parser::new(text).parse().ok()?;
    let number = |key: &str| match dictionary.get(key)? {
        ListEntry::Item(item) => Some(i64::from(item.bare_item.as_integer()?)),
        ListEntry::InnerList(_) => None,
    };
    let name = Family::Draft07.unnamed();
    let quota = u64::try_from(number("limit")?).ok()?;
    if let Some(remaining) = number("remaining") {
        let name = name.clone();
        info.service_limits.push(ServiceLimit { name, remaining });
    }
    info.policies.push(Policy {
        name,
        quota,
        window: None,
    });
    info.families.push(Family::Draft07);
    Some(())
}

/// `"default";q=10;w=2`, and `10;w=2` in drafts 04 to 07.
fn policies(text: &str, info: &mut RateLimitInfo) -> Option<()> {
    let mut policies = Vec::new();
    for entry in list(text)? {
        let item = item(entry)?;
        let (name, quota) = match &item.bare_item {
            BareItem::Integer(quota) => (Family::Separate.unnamed(), i64::from(*quota)),
            _ => (name(&item)?, integer(&item, "q")?),
        };
        if counts_otherwise(&item) {
            continue;
        }
        policies.push(Policy {
            name,
            quota: u64::try_from(quota).ok()?,
            window: integer(&item, "w").and_then(|window| u64::try_from(window).ok()),
        });
    }
    info.policies.extend(policies);
    Some(())
}

/// Returns whether a policy counts something other than requests.
fn counts_otherwise(item: &Item) -> bool {
    let unit = item.params.get("qu").and_then(BareItem::as_string);
    unit.is_some_and(|unit| !["request", "requests"].contains(&unit.as_str()))
}

fn list(text: &str) -> Option<List> {
    let list: List = Parser::new(text).parse().ok()?;
    (!list.is_empty()).then_some(list)
}

fn item(entry: ListEntry) -> Option<Item> {
    match entry {
        ListEntry::Item(item) => Some(item),
        ListEntry::InnerList(_) => None,
    }
}

fn name(item: &Item) -> Option<Name> {
    let text = match &item.bare_item {
        BareItem::String(name) => name.as_str().to_owned(),
        BareItem::Token(name) => name.as_str().to_owned(),
        _ => return None,
    };
    let family = Family::Lists;
    Some(Name { family, text })
}

fn integer(item: &Item, key: &str) -> Option<i64> {
    Some(i64::from(item.params.get(key)?.as_integer()?))
}
