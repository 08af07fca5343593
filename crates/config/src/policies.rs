//! Policies: a table under each name.

use std::collections::HashMap;

use super::levels::{self, levels};
use super::policy::{ReadPolicy, policy};
use super::tree::{Value, quoted};
use super::walk::{At, Name};

/// Reads all policies. The walk reports a file without any.
///
/// A policy with a mistake is kept with its name alone, so that mistakes in plans that mention it are found
/// too.
pub(super) fn policies(at: &At<'_>) -> Option<Vec<(String, Option<ReadPolicy>)>> {
    if !at.is_table() {
        return at.expected("a table; write each policy under its name, [policies.NAME]");
    }
    let entries = at.entries()?;
    if entries.is_empty() {
        return at
            .refuse("a file without policies limits nothing; add one, such as [policies.minute]");
    }
    let mut names = Names::new();
    let mut policies = Vec::new();
    let mut tables = Vec::new();
    for (name, at) in &entries {
        let Some(levels) = levels(*name, at) else {
            check_name(*name, at, &mut names);
            policies.push((name.text.to_owned(), policy(*name, at)));
            tables.push((name.text.to_owned(), at.clone()));
            continue;
        };
        for level in &levels {
            let at = &level.table.at;
            check_name(name.called(&level.name), at, &mut names);
            tables.push((level.name.clone(), at.clone()));
        }
        let read = levels::policies(name.text, &levels);
        policies.extend(levels.into_iter().map(|level| level.name).zip(read));
    }
    for (name, at) in &tables {
        check_first_name(name, at, &mut names);
    }
    Some(policies)
}

/// The names of states in lower case, each as it is written and where it stands.
type Names = HashMap<String, (String, String)>;

/// Checks that the rate limit headers can contain the name, and that no other policy has it.
fn check_name(name: Name<'_>, at: &At<'_>, names: &mut Names) {
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
    let own = (name.text.to_owned(), at.place());
    if let Some((before, place)) = names.insert(name.text.to_ascii_lowercase(), own) {
        let message = if before == name.text {
            format!(
                "{} is the name of the policy of {place} too; rename one",
                quoted(&before)
            )
        } else {
            format!("it differs from the policy of {place} in case alone; rename one")
        };
        at.refuse_name::<()>(name, message);
    }
}

/// Checks that the state of a renamed policy does not belong to another policy.
fn check_first_name(name: &str, at: &At<'_>, taken: &mut Names) {
    let Some(was) = at.field("was") else {
        return;
    };
    let Value::Text(text) = &was.node.value else {
        return;
    };
    let own = (text.clone(), was.place());
    if text.eq_ignore_ascii_case(name) {
        was.warn("the policy has this name already; leave `was` out");
    } else if let Some((_, before)) = taken.insert(text.to_ascii_lowercase(), own) {
        was.refuse::<()>(format!(
            "{} is the name of a state already ({before}); name a policy that is there no more, and in one place",
            quoted(text)
        ));
    }
}
