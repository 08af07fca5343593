//! Limits that follow the load: the tables `adapt` and `concurrency`, and the classes of requests.

use std::sync::Arc;

use super::conditions;
use super::fields::CLASS;
use super::functions::ClassOf;
use super::walk::{At, Table};
use crate::factor::Class;
use crate::key::Head;
use crate::policy::{Http, Policy};

#[cfg(feature = "adapt")]
pub(super) use super::load::{Followed, adapt, concurrency, followed};

/// Lets a policy follow the factor of the file, if its table says so.
pub(super) fn with_factor(policy: Policy, table: &Table<'_>) -> Policy {
    let Some(at) = table.get("adapt") else {
        if let Some(at) = table.get("class").filter(|_| table.lacks("adapt")) {
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
    if let Some(factor) = &at.common().factor {
        return policy.factor(factor);
    }
    at.refuse::<()>("the file has no table [adapt], which says what the limit follows; add one");
    policy
}

/// Adds how important a request is.
pub(super) fn with_class(policy: Policy<Http>, table: &Table<'_>) -> Option<Policy<Http>> {
    let Some(at) = table.get("class") else {
        return Some(policy);
    };
    let rules = at.one_or_list();
    let rules: Vec<_> = rules.iter().map(|at| rule(at)).collect();
    let rules: Vec<Box<Rule>> = rules.into_iter().collect::<Option<_>>()?;
    Some(policy.class(move |head: &Head<'_>| {
        let mut classes = rules.iter().filter_map(|rule| rule(head));
        classes.next().unwrap_or(Class::Critical)
    }))
}

/// Returns the class of a request, if the rule applies to it.
type Rule = dyn Fn(&Head<'_>) -> Option<Class> + Send + Sync;

fn rule(at: &At<'_>) -> Option<Box<Rule>> {
    if at.is_text() {
        let class = word(at)?;
        return Some(Box::new(move |_| Some(class)));
    }
    let table = at.table(&CLASS)?;
    if let Some(function) = table.get("function") {
        table.either("function", "class");
        table.either("function", "when");
        let class: Arc<ClassOf> = function.registered()?;
        return Some(Box::new(move |head| Some(class(head))));
    }
    let class = table.need("class", "say which class, such as class = \"sheddable\"");
    let class = class.and_then(word);
    let when = match table.get("when") {
        Some(at) if class == Some(Class::CriticalPlus) => Some(conditions::exemption(at)?),
        Some(at) => Some(conditions::any(at)?),
        None => None,
    };
    let class = class?;
    Some(Box::new(move |head| {
        let holds = when.as_ref().is_none_or(|when| when(head));
        holds.then_some(class)
    }))
}

fn word(at: &At<'_>) -> Option<Class> {
    at.one_of(&[
        ("critical_plus", Class::CriticalPlus),
        ("critical", Class::Critical),
        ("sheddable_plus", Class::SheddablePlus),
        ("sheddable", Class::Sheddable),
    ])
}
