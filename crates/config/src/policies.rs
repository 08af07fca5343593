//! Policies: a table under each name.

use std::collections::HashMap;

use super::policy::{ReadPolicy, policy};
use super::tree::{Value, quoted};
use super::walk::{At, Name};

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
