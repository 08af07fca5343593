use std::fmt;
use std::sync::Arc;

use super::walk::At;
use crate::key::{AnyKey, Extract, Head};

/// What code has registered by name, for files to refer to.
#[derive(Clone, Default)]
pub(super) struct Functions {
    keys: Vec<(String, AnyKey)>,
    costs: Vec<(String, Arc<Cost>)>,
    conditions: Vec<(String, Arc<Condition>)>,
    plans: Vec<(String, Arc<PlanOf>)>,
}

pub(super) type Cost = dyn Fn(&Head<'_>) -> u32 + Send + Sync;
pub(super) type Condition = dyn Fn(&Head<'_>) -> bool + Send + Sync;
pub(super) type PlanOf = dyn Fn(&Head<'_>) -> Option<String> + Send + Sync;

impl Functions {
    pub(super) fn add_key(&mut self, name: String, key: impl Extract) {
        put(&mut self.keys, name, AnyKey::new(key));
    }

    pub(super) fn add_cost(&mut self, name: String, cost: Arc<Cost>) {
        put(&mut self.costs, name, cost);
    }

    pub(super) fn add_condition(&mut self, name: String, condition: Arc<Condition>) {
        put(&mut self.conditions, name, condition);
    }

    pub(super) fn add_plan_of(&mut self, name: String, plan_of: Arc<PlanOf>) {
        put(&mut self.plans, name, plan_of);
    }

    pub(super) fn key(&self, at: &At<'_>) -> Option<AnyKey> {
        find(&self.keys, "key", "key", at)
    }

    pub(super) fn cost(&self, at: &At<'_>) -> Option<Arc<Cost>> {
        find(&self.costs, "cost", "cost", at)
    }

    pub(super) fn condition(&self, at: &At<'_>) -> Option<Arc<Condition>> {
        find(&self.conditions, "condition", "condition", at)
    }

    pub(super) fn plan_of(&self, at: &At<'_>) -> Option<Arc<PlanOf>> {
        find(&self.plans, "plan", "plan_of", at)
    }
}

/// A second function with the same name replaces the first.
fn put<T>(list: &mut Vec<(String, T)>, name: String, function: T) {
    list.retain(|(other, _)| *other != name);
    list.push((name, function));
}

fn find<T: Clone>(list: &[(String, T)], what: &str, method: &str, at: &At<'_>) -> Option<T> {
    let name = at.text()?;
    if let Some((_, function)) = list.iter().find(|(known, _)| known == name) {
        return Some(function.clone());
    }
    if list.is_empty() {
        return at.refuse(format!(
            "code has registered no function {name:?} for a {what}, and no other; register it with `.{method}({name:?}, …)`"
        ));
    }
    let known: Vec<&str> = list.iter().map(|(name, _)| name.as_str()).collect();
    at.unknown(&format!("function for a {what}"), name, &known)
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Functions").finish_non_exhaustive()
    }
}
