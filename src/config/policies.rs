//! Policies: a table under each name.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use http::StatusCode;

use super::adapt;
use super::conditions;
use super::costs;
use super::endings;
use super::fields::{KEY_LIMITS, POLICY};
use super::functions::LimitBy;
use super::hours::by_hours;
use super::keys::ReadKey;
use super::limits::{algorithm, limit};
use super::terms;
use super::tree::{Value, quoted};
use super::walk::{At, Name, Table};
use crate::algorithm::Algorithm;
use crate::decision::LimitRule;
use crate::key::{self, AnyKey, Head, IntoKey, Key};
use crate::plan::{KeyLimits, Operations};
use crate::policy::{Http, Mode, NoKey, OnStoreFailure, Policy};

/// A policy for a layer, and the same for a limiter, whose caller passes the key.
#[derive(Debug)]
pub(super) struct ReadPolicy {
    pub(super) keyed: Policy<Http>,
    pub(super) unkeyed: Policy,
}

/// Reads all policies. The walk reports a file without any.
///
/// A policy with a mistake is kept with its name alone, so that mistakes in plans that mention it are found
/// too.
pub(super) fn policies<'w>(at: &At<'w>) -> Option<Vec<(&'w str, Option<ReadPolicy>)>> {
    if !at.is_table() {
        return at.expected("a table; write each policy under its name, [policies.NAME]");
    }
    let entries = at.entries()?;
    if entries.is_empty() {
        return at
            .refuse("a file without policies limits nothing; add one, such as [policies.minute]");
    }
    let mut names: HashMap<String, String> = HashMap::new();
    let mut policies = Vec::new();
    for (name, at) in &entries {
        check_name(*name, at);
        if let Some(before) = names.insert(name.text.to_ascii_lowercase(), at.place()) {
            at.refuse_name::<()>(
                *name,
                format!("it differs from the policy of {before} in case alone; rename one"),
            );
        }
        policies.push((name.text, policy(*name, at)));
    }
    for (name, at) in &entries {
        check_first_name(*name, at, &mut names);
    }
    Some(policies)
}

/// Checks that the rate limit headers can contain the name.
fn check_name(name: Name<'_>, at: &At<'_>) {
    let is_good = (1..=64).contains(&name.text.len())
        && name.text.bytes().all(|byte| (0x20..=0x7e).contains(&byte));
    if !is_good {
        let shown = quoted(name.text);
        at.refuse_name::<()>(
            name,
            format!(
                "{shown} is not the name of a policy; give 1 to 64 printable characters of ASCII"
            ),
        );
    }
}

/// Checks that the state of a renamed policy does not belong to another policy.
fn check_first_name(name: Name<'_>, at: &At<'_>, taken: &mut HashMap<String, String>) {
    let Some(was) = at.field("was") else {
        return;
    };
    let Value::Text(text) = &was.node.value else {
        return;
    };
    if text.eq_ignore_ascii_case(name.text) {
        was.warn("the policy has this name already; leave `was` out");
    } else if let Some(before) = taken.insert(text.to_ascii_lowercase(), was.place()) {
        was.refuse::<()>(format!(
            "{} is the name of a state already ({before}); name a policy that is there no more, and in one place",
            quoted(text)
        ));
    }
}

fn policy(name: Name<'_>, at: &At<'_>) -> Option<ReadPolicy> {
    let table = at.table(&POLICY)?;
    let other = other_operation(&table);
    let own = algorithm(&table, other.as_ref());
    let key = table
        .need("key", "say what is counted apart, such as key = \"client_ip\", or key = \"global\" for all requests together")
        .and_then(|at| at.common().key(at));
    let mut policy = Policy::new(name.text, own.unwrap_or(Algorithm::Unlimited));
    let stands = limit_of(at);
    stands
        .as_ref()
        .unwrap_or(at)
        .gives(name.text, LimitRule::Policy);
    policy = with_tables(policy, &table, own.as_ref(), key.as_ref());
    let by_hours = by_hours(&table, name.text, own);
    if let Some(by_hours) = by_hours {
        policy = policy.limited_by(by_hours);
    }
    policy = with_options(policy, &table);
    policy = adapt::with_factor(policy, &table);
    policy = endings::with_unsettled(policy, &table);
    policy = terms::with_terms(policy, &table, own.as_ref());
    let keyed = with_reads(policy.clone(), &table, key);
    by_hours?;
    Some(ReadPolicy {
        keyed: keyed?,
        unkeyed: policy,
    })
}

/// Where the limit of a policy stands; `None` if it has that of all `other` operations.
pub(super) fn limit_of<'w>(policy: &At<'w>) -> Option<At<'w>> {
    let fields = ["quota", "limit", "algorithm", "concurrency"];
    fields.iter().find_map(|field| policy.field(field))
}

/// Reads the limit of all other operations, which a policy without a quota of its own has.
fn other_operation<'w>(table: &Table<'w>) -> Option<At<'w>> {
    table.get("operations")?.field("other")
}

fn with_options(mut policy: Policy, table: &Table<'_>) -> Policy {
    if table.get("soft").and_then(At::flag) == Some(true) {
        policy = policy.soft();
    }
    if let Some(mode) = table.get("mode").and_then(mode) {
        policy = policy.mode(mode);
    }
    if let Some(was) = table.get("was").and_then(At::text) {
        policy = policy.was(was);
    }
    if table.get("for_all_plans").and_then(At::flag) == Some(true) {
        policy = policy.for_all_plans();
    }
    if table.get("unleased").and_then(At::flag) == Some(true) {
        policy = policy.unleased();
    }
    let words = [
        ("local", OnStoreFailure::Local),
        ("allow", OnStoreFailure::Allow),
        ("refuse", OnStoreFailure::Refuse),
    ];
    if let Some(what) = table
        .get("on_store_failure")
        .and_then(|at| at.one_of(&words))
    {
        policy = policy.on_store_failure(what);
    }
    if let Some(longest) = table.get("wait_up_to").and_then(At::duration) {
        policy = policy.wait_up_to(longest);
        if policy.is_soft() {
            table.either("soft", "wait_up_to");
        }
    }
    if let Some(places) = table.get("wait_places").and_then(At::whole) {
        policy = policy.wait_places(places);
    }
    policy
}

/// Reads the mode of a policy or of all policies.
pub(super) fn mode(at: &At<'_>) -> Option<Mode> {
    at.one_of(&[
        ("enforce", Mode::Enforce),
        ("shadow", Mode::Shadow),
        ("off", Mode::Off),
    ])
}

/// Adds what a policy reads from a request.
fn with_reads(policy: Policy, table: &Table<'_>, key: Option<ReadKey>) -> Option<Policy<Http>> {
    let cost = table.get("cost").map(costs::cost);
    let when = table.get("when").map(|at| conditions::any(at));
    let no_key = table.get("no_key").map(no_key);
    let limit_by = table.get("limit_by").map(|at| limit_by(at, policy.name()));
    let operation = match table.get("operation") {
        Some(_) if is_by_path(table) => Some(Some(None)),
        Some(at) => Some(at.common().key(at).map(Some)),
        None => None,
    };
    match (table.get("operation"), table.get("operations")) {
        (None, Some(at)) if table.lacks("operation") => {
            at.refuse::<()>("`operation` is missing; say which operation a request is, such as operation = \"method\"");
        }
        (Some(at), None) if table.lacks("operations") => {
            at.refuse::<()>(
                "`operations` is missing; give limits by operation, or leave `operation` out",
            );
        }
        _ => {}
    }
    // Without a key, what follows is read for its mistakes.
    let has_key = key.is_some();
    let key = key.map_or_else(|| AnyKey::new(key::global()), |read| read.key);
    let mut policy = policy.key(key);
    let mut are_good = true;
    let steps: [Step; 3] = [
        terms::with_priority,
        adapt::with_class,
        endings::with_endings,
    ];
    for step in steps {
        match step(policy.clone(), table) {
            Some(next) => policy = next,
            None => are_good = false,
        }
    }
    if !(has_key && are_good) {
        return None;
    }
    if let Some(cost) = cost {
        let cost = cost?;
        policy = policy.cost(move |head: &Head<'_>| cost(head));
    }
    if let Some(limit_by) = limit_by {
        let limit_by = limit_by?;
        policy = policy.limit_by(move |head: &Head<'_>| limit_by(head));
    }
    if let Some(when) = when {
        let when = when?;
        policy = policy.when(move |head: &Head<'_>| when(head));
    }
    if let Some(no_key) = no_key {
        policy = policy.no_key(no_key?);
    }
    Some(match operation {
        None => policy,
        Some(operation) => match operation? {
            None => policy.operation_by_path(),
            Some(read) => policy.operation(read.key),
        },
    })
}

/// Adds what some of the fields say of single requests.
type Step = fn(Policy<Http>, &Table<'_>) -> Option<Policy<Http>>;

/// Reads the function that sets the limit of a request.
fn limit_by(at: &At<'_>, policy: &str) -> Option<Arc<LimitBy>> {
    at.gives(policy, LimitRule::Closure);
    at.function()
}

fn no_key(at: &At<'_>) -> Option<NoKey> {
    if at.is_text() {
        return at.one_of(&[("shared", NoKey::Shared), ("skip", NoKey::Skip)]);
    }
    status(at).map(NoKey::Refuse)
}

/// Reads the status of a refusal.
pub(super) fn status(at: &At<'_>) -> Option<StatusCode> {
    let number: u16 = at.whole()?;
    match StatusCode::from_u16(number) {
        Ok(status) if status.is_client_error() || status.is_server_error() => Some(status),
        _ => at.refuse(format!(
            "{number} is not the status of an error; give 400 to 599"
        )),
    }
}

/// Adds the limits by key and by operation.
fn with_tables(
    mut policy: Policy,
    table: &Table<'_>,
    own: Option<&Algorithm>,
    key: Option<&ReadKey>,
) -> Policy {
    let name = policy.name().to_owned();
    if let Some(at) = table.get("operations")
        && let Some(operations) = operations(at, &name, own)
    {
        if is_by_path(table) {
            check_paths(at);
        }
        policy = policy.operations(operations);
    }
    if let Some(at) = table.get("key_limits")
        && let Some(limits) = key_limits(at, &name, own, key.is_some_and(|key| key.is_address))
    {
        policy = policy.key_limits(limits);
    }
    policy
}

/// Returns whether the names of the operations are prefixes of paths.
fn is_by_path(table: &Table<'_>) -> bool {
    let at = table.get("operation");
    at.is_some_and(|at| matches!(&at.node.value, Value::Text(text) if text == "path"))
}

/// Rejects operations that no path has.
fn check_paths(at: &At<'_>) {
    let entries = at.entries().unwrap_or_default();
    for (name, at) in entries.iter().filter(|(name, _)| name.text != "other") {
        conditions::is_in_normal_form(at, name.text);
    }
}

fn operations(at: &At<'_>, policy: &str, own: Option<&Algorithm>) -> Option<Operations> {
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

/// The meaning of the keys of a table.
#[derive(Clone, Copy, Debug)]
enum KeysAre {
    Text,
    Number,
    Address,
}

impl KeysAre {
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

fn key_limits(
    at: &At<'_>,
    policy: &str,
    own: Option<&Algorithm>,
    is_address: bool,
) -> Option<KeyLimits> {
    let table = at.table(&KEY_LIMITS)?;
    let words = [
        ("text", KeysAre::Text),
        ("number", KeysAre::Number),
        ("address", KeysAre::Address),
    ];
    let keys_are = match table.get("keys_are") {
        Some(at) => at.one_of(&words)?,
        None if is_address => KeysAre::Address,
        None => KeysAre::Text,
    };
    let mut limits = KeyLimits::new();
    if let Some(keys) = table.get("keys") {
        limits = exact_keys(keys, policy, own, keys_are)?;
    }
    if let Some(prefixes) = table.get("prefixes") {
        for (name, at) in prefixes.entries()? {
            if name.text.is_empty() {
                at.refuse_name::<()>(name, "an empty prefix is every key; use `other`");
            } else if !matches!(keys_are, KeysAre::Text) {
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
fn exact_keys(
    keys: &At<'_>,
    policy: &str,
    own: Option<&Algorithm>,
    are: KeysAre,
) -> Option<KeyLimits> {
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
