//! Limits by key and by operation, which replace that of a policy.

use std::collections::HashMap;
use std::net::IpAddr;

use super::conditions;
use super::limits::{Own, limit};
use super::shape::Shape;
use super::vocabulary::{Vocabulary, setting};
use super::walk::{At, Name};
use tower_ratelimit::decision::LimitRule;
use tower_ratelimit::key::{IntoKey, Key};
use tower_ratelimit::plan::{KeyLimits, Operations};

/// Reads the limits by operation.
pub(super) fn operations(at: &At<'_>, policy: &str, own: Own<'_>) -> Option<Operations> {
    let mut operations = Operations::new();
    let mut is_empty = true;
    for (name, at) in at.entries()? {
        let Some(limit) = limit(&at, policy, own) else {
            is_empty = false;
            continue;
        };
        operations = if name.text == "other" {
            at.gives(policy, LimitRule::OtherOperation);
            operations.other(limit)
        } else {
            is_empty = false;
            at.gives(policy, LimitRule::Operation(name.text.into()));
            operations.limit(name.text, limit)
        };
    }
    if is_empty {
        return at
            .refuse("no operation is named; name one beside `other`, or leave `operations` out");
    }
    Some(operations)
}

/// Rejects operations that no path has.
pub(super) fn check_paths(at: &At<'_>) {
    let entries = at.entries().unwrap_or_default();
    for (name, at) in entries.iter().filter(|(name, _)| name.text != "other") {
        conditions::is_in_normal_form(at, name.text);
    }
}

pub(super) static KEY_LIMITS: Vocabulary<()> = Vocabulary(&[
    setting("keys")
        .says("The limits of single keys.")
        .together(Shape::Secret(&Shape::Map(&Shape::Named("limit")))),
    setting("prefixes")
        .says("The limits of keys that begin so. The longest counts.")
        .together(Shape::Secret(&Shape::Map(&Shape::Named("limit")))),
    setting("other")
        .says("The limit of all other keys.")
        .together(Shape::Named("limit")),
    setting("key_type")
        .says(
            "The kind of the keys in the table; the default is addresses for an address key, and \
             text otherwise.",
        )
        .together(Shape::Word(&KINDS)),
]);

static KINDS: [(&str, KeyType); 3] = [
    ("text", KeyType::Text),
    ("number", KeyType::Number),
    ("address", KeyType::Address),
];

/// The meaning of the keys of a table.
#[derive(Clone, Copy, Debug)]
enum KeyType {
    Text,
    Number,
    Address,
}

impl KeyType {
    /// Reads a key, and returns it with its text in messages.
    fn read(self, name: Name<'_>, at: &At<'_>) -> Option<(Key, String)> {
        match self {
            Self::Text => Some((name.text.into_key(), name.text.to_owned())),
            Self::Number => match name.text.parse::<u64>() {
                Ok(number) => Some((number.into_key(), number.to_string())),
                Err(_) => at.refuse_name(name, format!("{} is not a whole number", name.shown())),
            },
            Self::Address => match name.text.parse::<IpAddr>() {
                Ok(address) => Some((address.into_key(), address.to_string())),
                Err(_) => at.refuse_name(
                    name,
                    format!(
                        "{} is not an address; write one such as 192.0.2.1",
                        name.shown()
                    ),
                ),
            },
        }
    }
}

/// Reads the limits by key.
pub(super) fn key_limits(
    at: &At<'_>,
    policy: &str,
    own: Own<'_>,
    is_address: bool,
) -> Option<KeyLimits> {
    let table = at.table(&KEY_LIMITS)?;
    let key_type = match table.get("key_type") {
        Some(at) => at.one_of(&KINDS)?,
        None if is_address => KeyType::Address,
        None => KeyType::Text,
    };
    let mut limits = KeyLimits::new();
    if let Some(keys) = table.get("keys") {
        limits = exact_keys(keys, policy, own, key_type)?;
    }
    if let Some(prefixes) = table.get("prefixes") {
        for (name, at) in prefixes.entries()? {
            if name.text.is_empty() {
                at.refuse_name::<()>(name, "an empty prefix is every key; use `other`");
            } else if !matches!(key_type, KeyType::Text) {
                at.refuse_name::<()>(name, "only keys of text have prefixes");
            } else if let Some(limit) = limit(&at, policy, own) {
                at.gives(policy, LimitRule::Prefix(name.text.into()));
                limits = limits.prefix(name.text, limit);
            }
        }
    }
    if let Some(at) = table.get("other")
        && let Some(limit) = limit(at, policy, own)
    {
        at.gives(policy, LimitRule::Other);
        limits = limits.other(limit);
    }
    Some(limits)
}

/// Reads the limits of exact keys. Two spellings of one key, such as of an address, are a mistake.
fn exact_keys(keys: &At<'_>, policy: &str, own: Own<'_>, are: KeyType) -> Option<KeyLimits> {
    let mut limits = KeyLimits::new();
    let mut seen: HashMap<Key, String> = HashMap::new();
    for (name, at) in keys.entries()? {
        let Some(limit) = limit(&at, policy, own) else {
            continue;
        };
        let Some((key, shown)) = are.read(name, &at) else {
            continue;
        };
        limits = limits.key_of_text(key, shown.clone(), limit);
        at.gives(policy, LimitRule::Key(shown.into()));
        if let Some(before) = seen.insert(key, at.place()) {
            let message = format!("it is the same key as that of {before}; leave one of them");
            at.refuse_name::<()>(name, message);
        }
    }
    Some(limits)
}
