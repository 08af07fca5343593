//! The functions that code registers by name, for files to refer to.
//!
//! A file cannot hold a closure, so it names one.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::digest::Sha;
use super::names::unknown;
use super::own_store::OwnStore;
use super::resolver_options::ResolverOptions;
use tower_ratelimit::__internal::AnyKey;
use tower_ratelimit::__internal::ResolverOf;
use tower_ratelimit::algorithm::Algorithm;
use tower_ratelimit::decision::Decision;
use tower_ratelimit::error::ConfigError;
use tower_ratelimit::factor::Class;
use tower_ratelimit::key::{Head, Key, Secret};
use tower_ratelimit::policy::Ending;
use tower_ratelimit::response::RefusalBody;
use tower_ratelimit_adapt::{Adapt, Traffic};

/// What code has registered for files.
#[derive(Clone, Default)]
pub(super) struct Functions {
    /// Each is of a [`Kind`].
    named: Vec<(String, Arc<dyn Any + Send + Sync>)>,
    pub(super) on_decision: Option<Arc<OnDecision>>,
    pub(super) store: Option<OwnStore>,
    /// Replaces a table `adapt`.
    pub(super) own_adapt: Option<Adapt>,
    pub(super) traffic: Option<Traffic>,
    /// The sampler that is running, if the file is read again.
    pub(super) running: Option<Adapt>,
    /// The secret that hashes keys, with its table as it is written, if the file is read again.
    pub(super) secret: Option<(Sha, Secret)>,
}

/// What code registers under a name. Functions of two kinds may have the same name.
pub(super) trait Kind: Clone + Send + Sync + 'static {
    /// What it is for, in a message.
    const FOR: &'static str;
    /// The method of the builder that registers it.
    const METHOD: &'static str;
}

pub(super) type Cost = dyn Fn(&Head<'_>) -> u32 + Send + Sync;
pub(super) type Condition = dyn Fn(&Head<'_>) -> bool + Send + Sync;
pub(super) type LimitBy = dyn Fn(&Head<'_>) -> Option<Algorithm> + Send + Sync;
pub(super) type PlanOf = dyn Fn(&Head<'_>) -> Option<String> + Send + Sync;
pub(super) type ClassOf = dyn Fn(&Head<'_>) -> Class + Send + Sync;
pub(super) type CostAtEnd = dyn Fn(&Ending<'_>) -> Option<u32> + Send + Sync;
pub(super) type EndsSo = dyn Fn(&Ending<'_>) -> bool + Send + Sync;
pub(super) type OnDecision = dyn Fn(&Head<'_>, Key, &Decision) + Send + Sync;
pub(super) type ReadSignal = dyn Fn() -> Option<f64> + Send + Sync;
/// Creates a resolver with the options of a file.
pub(super) type MakeResolver =
    dyn Fn(&ResolverOptions) -> Result<ResolverOf<Head<'static>>, ConfigError> + Send + Sync;

impl Kind for AnyKey {
    const FOR: &'static str = "key";
    const METHOD: &'static str = "key";
}

impl Kind for Arc<Cost> {
    const FOR: &'static str = "cost";
    const METHOD: &'static str = "cost";
}

impl Kind for Arc<Condition> {
    const FOR: &'static str = "condition";
    const METHOD: &'static str = "condition";
}

impl Kind for Arc<LimitBy> {
    const FOR: &'static str = "limit";
    const METHOD: &'static str = "limit_by";
}

impl Kind for Arc<PlanOf> {
    const FOR: &'static str = "plan";
    const METHOD: &'static str = "plan_of";
}

impl Kind for Arc<ClassOf> {
    const FOR: &'static str = "class";
    const METHOD: &'static str = "class";
}

impl Kind for Arc<CostAtEnd> {
    const FOR: &'static str = "real cost";
    const METHOD: &'static str = "settle";
}

impl Kind for Arc<EndsSo> {
    const FOR: &'static str = "condition on the end";
    const METHOD: &'static str = "ending";
}

impl Kind for RefusalBody {
    const FOR: &'static str = "refusal body";
    const METHOD: &'static str = "refusal_body";
}

impl Kind for Arc<ReadSignal> {
    const FOR: &'static str = "signal";
    const METHOD: &'static str = "signal";
}

impl Kind for Arc<MakeResolver> {
    const FOR: &'static str = "resolver";
    const METHOD: &'static str = "resolver";
}

impl Functions {
    /// Adds a function. It replaces another one of its kind with the same name.
    pub(super) fn add<K: Kind>(&mut self, name: String, function: K) {
        self.named
            .retain(|(known, other)| *known != name || !other.is::<K>());
        self.named.push((name, Arc::new(function)));
    }

    /// Returns the functions of a kind, in the order in which code has registered them.
    pub(super) fn all<K: Kind>(&self) -> impl Iterator<Item = (&str, &K)> {
        let named = self.named.iter();
        named.filter_map(|(name, function)| Some((name.as_str(), function.downcast_ref()?)))
    }

    /// Returns the function with this name, or the message that there is none.
    pub(super) fn find<K: Kind>(&self, name: &str) -> Result<K, String> {
        if let Some((_, function)) = self.all::<K>().find(|(known, _)| *known == name) {
            return Ok(function.clone());
        }
        let (what, method) = (K::FOR, K::METHOD);
        let known: Vec<&str> = self.all::<K>().map(|(name, _)| name).collect();
        if known.is_empty() {
            return Err(format!(
                "code has registered no function {name:?} for a {what}, and no other; register it with `.{method}({name:?}, …)`"
            ));
        }
        Err(unknown(&format!("function for a {what}"), name, &known))
    }
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Functions").finish_non_exhaustive()
    }
}
