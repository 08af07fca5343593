//! Policies: a table under each name.

use std::collections::HashMap;

use super::levels::{Declared, levels};
use super::policy::POLICY;
use super::tree::{Value, quoted};
use super::walk::{At, Name};

/// Reads all policies. The walk reports a file without any.
pub(super) fn policies<'w>(at: &At<'w>) -> Option<Vec<Declared<'w>>> {
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
    for (name, at) in &entries {
        for declared in under(name.text, at) {
            check_name(name.called(&declared.name), &declared.table.at, &mut names);
            policies.push(declared);
        }
    }
    for declared in &policies {
        check_first_name(declared, &mut names);
    }
    Some(policies)
}

/// Reads what stands under a name: a policy, or the levels of a tree.
fn under<'w>(name: &str, at: &At<'w>) -> Vec<Declared<'w>> {
    let Some(table) = at.table(&POLICY) else {
        return vec![Declared {
            name: name.to_owned(),
            table: at.some_of(&[]),
            share_of: None,
            policy: None,
        }];
    };
    levels(name, &table).unwrap_or_else(|| vec![Declared::read(name.to_owned(), table)])
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
fn check_first_name(declared: &Declared<'_>, taken: &mut Names) {
    let Some(was) = declared.table.get("renamed_from") else {
        return;
    };
    let Value::Text(text) = &was.node.value else {
        return;
    };
    let own = (text.clone(), was.place());
    if text.eq_ignore_ascii_case(&declared.name) {
        was.warn("the policy has this name already; leave `renamed_from` out");
    } else if let Some((_, before)) = taken.insert(text.to_ascii_lowercase(), own) {
        was.refuse::<()>(format!(
            "{} is the name of a state already ({before}); name a policy that is there no more, and in one place",
            quoted(text)
        ));
    }
}
