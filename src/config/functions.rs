use std::fmt;
use std::sync::Arc;

use super::walk::At;
#[cfg(feature = "adapt")]
use crate::adapt::{Adapt, Signal, Traffic, from_fn};
use crate::key::{AnyKey, Extract, Head};

/// What code has registered by name, for files to refer to.
#[derive(Clone, Default)]
pub(super) struct Functions {
    keys: Vec<(String, AnyKey)>,
    costs: Vec<(String, Arc<Cost>)>,
    conditions: Vec<(String, Arc<Condition>)>,
    plans: Vec<(String, Arc<PlanOf>)>,
    #[cfg(feature = "adapt")]
    signals: Vec<(String, Arc<ReadSignal>)>,
    #[cfg(feature = "adapt")]
    traffic: Option<Traffic>,
    /// What samples already, if the file is read anew.
    #[cfg(feature = "adapt")]
    running: Option<Adapt>,
}

#[cfg(feature = "adapt")]
pub(super) type ReadSignal = dyn Fn() -> Option<f64> + Send + Sync;

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

    #[cfg(feature = "adapt")]
    pub(super) fn add_signal(&mut self, name: String, read: Arc<ReadSignal>) {
        put(&mut self.signals, name, read);
    }

    #[cfg(feature = "adapt")]
    pub(super) fn add_traffic(&mut self, traffic: &Traffic) {
        self.traffic = Some(traffic.clone());
    }

    #[cfg(feature = "adapt")]
    pub(super) fn run(&mut self, running: Option<&Adapt>) {
        self.running = running.cloned();
    }

    #[cfg(feature = "adapt")]
    pub(super) fn running(&self) -> Option<&Adapt> {
        self.running.as_ref()
    }

    /// The signal of this name. The others that the file knows are named in a mistake.
    #[cfg(feature = "adapt")]
    pub(super) fn signal(&self, at: &At<'_>, others: &[&str]) -> Option<impl Signal + use<>> {
        let name = at.text()?;
        let found = self.signals.iter().find(|(known, _)| known == name);
        let Some((name, read)) = found else {
            let own = self.signals.iter().map(|(name, _)| name.as_str());
            let known: Vec<&str> = others
                .iter()
                .copied()
                .chain(["failures"])
                .chain(own)
                .collect();
            return at.unknown("signal", name, &known);
        };
        let read = Arc::clone(read);
        Some(from_fn(name.clone(), move || read()))
    }

    #[cfg(feature = "adapt")]
    pub(super) fn traffic(&self, at: &At<'_>) -> Option<&Traffic> {
        self.traffic.as_ref().or_else(|| {
            at.refuse(
                "code has registered no traffic to look at; register it with `.traffic(&traffic)`",
            )
        })
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
