//! The functions that code registers by name, for files to refer to.
//!
//! A file cannot hold a closure, so it names one.

use std::fmt;
use std::sync::Arc;

use super::names::unknown;
use super::own_store::OwnStore;
#[cfg(feature = "resolver")]
use super::resolver_options::ResolverOptions;
#[cfg(feature = "adapt")]
use crate::adapt::{Adapt, Signal, Traffic, from_fn};
use crate::algorithm::Algorithm;
use crate::decision::Decision;
#[cfg(feature = "resolver")]
use crate::error::ConfigError;
use crate::factor::Class;
use crate::key::{AnyKey, Extract, Head, Key};
#[cfg(feature = "resolver")]
use crate::plan::ResolverOf;
use crate::policy::Ending;
use crate::response::RefusalBody;

/// The functions that code has registered by name, for files to refer to.
#[derive(Clone, Default)]
pub(super) struct Functions {
    keys: Vec<(String, AnyKey)>,
    costs: Vec<(String, Arc<Cost>)>,
    conditions: Vec<(String, Arc<Condition>)>,
    limits: Vec<(String, Arc<LimitBy>)>,
    plans: Vec<(String, Arc<PlanOf>)>,
    classes: Vec<(String, Arc<ClassOf>)>,
    costs_at_end: Vec<(String, Arc<CostAtEnd>)>,
    endings: Vec<(String, Arc<EndsSo>)>,
    bodies: Vec<(String, RefusalBody)>,
    on_decision: Option<Arc<OnDecision>>,
    store: Option<OwnStore>,
    /// Replaces a table `adapt`.
    #[cfg(feature = "adapt")]
    own_adapt: Option<Adapt>,
    #[cfg(feature = "adapt")]
    signals: Vec<(String, Arc<ReadSignal>)>,
    #[cfg(feature = "adapt")]
    traffic: Option<Traffic>,
    /// The sampler that is running, if the file is read again.
    #[cfg(feature = "adapt")]
    running: Option<Adapt>,
    #[cfg(feature = "resolver")]
    resolvers: Vec<(String, Arc<MakeResolver>)>,
}

#[cfg(feature = "adapt")]
pub(super) type ReadSignal = dyn Fn() -> Option<f64> + Send + Sync;

pub(super) type Cost = dyn Fn(&Head<'_>) -> u32 + Send + Sync;
pub(super) type Condition = dyn Fn(&Head<'_>) -> bool + Send + Sync;
pub(super) type LimitBy = dyn Fn(&Head<'_>) -> Option<Algorithm> + Send + Sync;
pub(super) type PlanOf = dyn Fn(&Head<'_>) -> Option<String> + Send + Sync;
pub(super) type ClassOf = dyn Fn(&Head<'_>) -> Class + Send + Sync;
pub(super) type CostAtEnd = dyn Fn(&Ending<'_>) -> Option<u32> + Send + Sync;
pub(super) type EndsSo = dyn Fn(&Ending<'_>) -> bool + Send + Sync;
pub(super) type OnDecision = dyn Fn(&Head<'_>, Key, &Decision) + Send + Sync;

/// Creates a resolver with the options of a file.
#[cfg(feature = "resolver")]
pub(super) type MakeResolver =
    dyn Fn(&ResolverOptions) -> Result<ResolverOf<Head<'static>>, ConfigError> + Send + Sync;

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

    pub(super) fn add_limit_by(&mut self, name: String, limit: Arc<LimitBy>) {
        put(&mut self.limits, name, limit);
    }

    pub(super) fn add_plan_of(&mut self, name: String, plan_of: Arc<PlanOf>) {
        put(&mut self.plans, name, plan_of);
    }

    pub(super) fn add_class(&mut self, name: String, class: Arc<ClassOf>) {
        put(&mut self.classes, name, class);
    }

    pub(super) fn add_cost_at_end(&mut self, name: String, cost: Arc<CostAtEnd>) {
        put(&mut self.costs_at_end, name, cost);
    }

    pub(super) fn add_ending(&mut self, name: String, ending: Arc<EndsSo>) {
        put(&mut self.endings, name, ending);
    }

    pub(super) fn add_body(&mut self, name: String, body: RefusalBody) {
        put(&mut self.bodies, name, body);
    }

    pub(super) fn add_decision_hook(&mut self, hook: Arc<OnDecision>) {
        self.on_decision = Some(hook);
    }

    pub(super) fn keep_state_in(&mut self, store: OwnStore) {
        self.store = Some(store);
    }

    #[cfg(feature = "adapt")]
    pub(super) fn follow(&mut self, adapt: &Adapt) {
        self.own_adapt = Some(adapt.clone());
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

    /// Returns the signal with this name. The message for an unknown name lists the signals of the file.
    #[cfg(feature = "adapt")]
    pub(super) fn signal(
        &self,
        name: &str,
        others: &[&str],
    ) -> Result<impl Signal + use<>, String> {
        let found = self.signals.iter().find(|(known, _)| known == name);
        let Some((name, read)) = found else {
            let own = self.signals.iter().map(|(name, _)| name.as_str());
            let known: Vec<&str> = others
                .iter()
                .copied()
                .chain(["failures"])
                .chain(own)
                .collect();
            return Err(unknown("signal", name, &known));
        };
        let read = Arc::clone(read);
        Ok(from_fn(name.clone(), move || read()))
    }

    #[cfg(feature = "adapt")]
    pub(super) fn traffic(&self) -> Result<&Traffic, String> {
        let remedy =
            "code has registered no traffic to look at; register it with `.traffic(&traffic)`";
        self.traffic.as_ref().ok_or_else(|| remedy.to_owned())
    }

    pub(super) fn key(&self, name: &str) -> Result<AnyKey, String> {
        find(&self.keys, "key", "key", name)
    }

    pub(super) fn cost(&self, name: &str) -> Result<Arc<Cost>, String> {
        find(&self.costs, "cost", "cost", name)
    }

    pub(super) fn condition(&self, name: &str) -> Result<Arc<Condition>, String> {
        find(&self.conditions, "condition", "condition", name)
    }

    pub(super) fn limit_by(&self, name: &str) -> Result<Arc<LimitBy>, String> {
        find(&self.limits, "limit", "limit_by", name)
    }

    pub(super) fn plan_of(&self, name: &str) -> Result<Arc<PlanOf>, String> {
        find(&self.plans, "plan", "plan_of", name)
    }

    pub(super) fn class(&self, name: &str) -> Result<Arc<ClassOf>, String> {
        find(&self.classes, "class", "class", name)
    }

    pub(super) fn cost_at_end(&self, name: &str) -> Result<Arc<CostAtEnd>, String> {
        find(&self.costs_at_end, "real cost", "settle", name)
    }

    pub(super) fn ending(&self, name: &str) -> Result<Arc<EndsSo>, String> {
        find(&self.endings, "condition on the end", "ending", name)
    }

    pub(super) fn body(&self, name: &str) -> Result<RefusalBody, String> {
        find(&self.bodies, "refusal body", "refusal_body", name)
    }

    pub(super) fn on_decision(&self) -> Option<Arc<OnDecision>> {
        self.on_decision.clone()
    }

    pub(super) fn store(&self) -> Option<&OwnStore> {
        self.store.as_ref()
    }

    #[cfg(feature = "adapt")]
    pub(super) fn own_adapt(&self) -> Option<&Adapt> {
        self.own_adapt.as_ref()
    }
}

#[cfg(feature = "resolver")]
impl Functions {
    pub(super) fn add_resolver(&mut self, name: String, make: Arc<MakeResolver>) {
        put(&mut self.resolvers, name, make);
    }

    pub(super) fn resolver(&self, name: &str) -> Result<Arc<MakeResolver>, String> {
        find(&self.resolvers, "resolver", "resolver", name)
    }
}

/// Adds a function. It replaces another one with the same name.
fn put<T>(list: &mut Vec<(String, T)>, name: String, function: T) {
    list.retain(|(other, _)| *other != name);
    list.push((name, function));
}

/// Returns the function with this name, or the message that there is none.
fn find<T: Clone>(list: &[(String, T)], what: &str, method: &str, name: &str) -> Result<T, String> {
    if let Some((_, function)) = list.iter().find(|(known, _)| known == name) {
        return Ok(function.clone());
    }
    if list.is_empty() {
        return Err(format!(
            "code has registered no function {name:?} for a {what}, and no other; register it with `.{method}({name:?}, …)`"
        ));
    }
    let known: Vec<&str> = list.iter().map(|(name, _)| name.as_str()).collect();
    Err(unknown(&format!("function for a {what}"), name, &known))
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Functions").finish_non_exhaustive()
    }
}
