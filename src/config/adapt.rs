//! Limits that follow the load: the tables `adapt` and `concurrency`, and what a policy says of its requests.

use std::sync::Arc;

use super::conditions;
use super::fields::CLASS;
use super::functions::Condition;
use super::keys::Common;
use super::walk::{At, Table};
use crate::factor::Class;
use crate::key::Head;
use crate::policy::{Http, Policy};

#[cfg(feature = "adapt")]
pub(super) use super::load::{adapt, concurrency};

/// Lets a policy follow the factor of the file, if it says so.
pub(super) fn with_factor(common: &Common, policy: Policy, table: &Table<'_>) -> Policy {
    let Some(at) = table.get("adapt") else {
        if let Some(at) = table.get("class") {
            at.refuse::<()>("`adapt` is missing; a class matters to policies that follow the load");
        }
        return policy;
    };
    if at.flag() != Some(true) {
        return policy;
    }
    for other in ["key_limits", "operations", "hours", "reserve"] {
        table.either("adapt", other);
    }
    if let Some(factor) = &common.factor {
        return policy.factor(factor);
    }
    at.refuse::<()>("the file has no table [adapt], which says what the limit follows; add one");
    policy
}

/// Adds how much a request matters.
pub(super) fn with_class(
    common: &Common,
    policy: Policy<Http>,
    table: &Table<'_>,
) -> Option<Policy<Http>> {
    let Some(at) = table.get("class") else {
        return Some(policy);
    };
    let rules = at.one_or_list();
    let rules: Vec<_> = rules.iter().map(|at| rule(common, at)).collect();
    let rules: Vec<_> = rules.into_iter().collect::<Option<_>>()?;
    Some(policy.class(move |head: &Head<'_>| {
        let holds = |(_, when): &&(Class, Option<Arc<Condition>>)| {
            when.as_ref().is_none_or(|when| when(head))
        };
        rules
            .iter()
            .find(holds)
            .map_or(Class::Critical, |(class, _)| *class)
    }))
}

/// A class, and when a request has it.
fn rule(common: &Common, at: &At<'_>) -> Option<(Class, Option<Arc<Condition>>)> {
    if at.is_text() {
        return Some((word(at)?, None));
    }
    let table = at.table(&CLASS)?;
    let class = table.need("class", "say which class, such as class = \"sheddable\"");
    let class = class.and_then(word);
    let when = match table.get("when") {
        Some(at) => Some(conditions::any(common, at)?),
        None => None,
    };
    Some((class?, when))
}

fn word(at: &At<'_>) -> Option<Class> {
    at.one_of(&[
        ("critical_plus", Class::CriticalPlus),
        ("critical", Class::Critical),
        ("sheddable_plus", Class::SheddablePlus),
        ("sheddable", Class::Sheddable),
    ])
}
