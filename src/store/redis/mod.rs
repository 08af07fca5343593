//! State in Redis or Valkey, shared by many nodes.

mod answer;
mod builder;
#[cfg(feature = "redis-cluster")]
mod cluster;
mod denials;
mod failure;
#[cfg(test)]
mod functions;
mod greeting;
mod ledger;
mod line;
mod link;
mod script;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::denials::{Changes, Denials};
use self::ledger::{Counted, Opened};
use self::link::Link;
use self::script::Script;
use super::Store;
use crate::algorithm::Lua;
#[cfg(feature = "testing")]
use crate::clock::Clock;
use crate::error::ConfigError;
use crate::key::{IntoKey, KeyName};
use crate::policy::{Policy, check_names};

pub use self::builder::RedisStoreBuilder;
pub use self::ledger::RedisLedger;

/// Keeps state in Redis or Valkey, where many nodes share it.
#[derive(Clone)]
pub struct RedisStore {
    link: Arc<Link>,
    prefix: Arc<str>,
    remember_denials_for: Duration,
    changes: Arc<Changes>,
    #[cfg(feature = "testing")]
    clock: Option<Arc<dyn Clock>>,
}

/// The version of the layout of keys and states. Nodes that do not agree on it do not see each other's.
const LAYOUT: u32 = 1;

impl RedisStore {
    /// The key under which Redis has the state of this key under this policy.
    pub fn store_key<R>(&self, policy: &Policy<R>, key: impl IntoKey) -> String {
        let name = key.into_key().name();
        state_key(&self.prefix, &name, &suffix(policy))
    }
}

impl Store for RedisStore {
    type Ledger = RedisLedger;

    fn open(&self, policies: &[Policy]) -> Result<RedisLedger, ConfigError> {
        check_names(&policies.iter().map(Policy::name))?;
        let counted = policies.iter().map(|policy| Counted {
            algorithm: *policy.algorithm(),
            lua: policy.algorithm().lua(),
            suffix: suffix(policy),
        });
        let policies: Box<[Counted]> = counted.collect();
        let rules: Vec<Lua> = policies.iter().filter_map(|policy| policy.lua).collect();
        let remembers = !self.remember_denials_for.is_zero();
        #[cfg(feature = "testing")]
        let remembers = remembers && self.clock.is_none();
        Ok(RedisLedger::new(Opened {
            charge: Script::of(&rules, include_str!("charge.lua")),
            amend: Script::of(&rules, include_str!("amend.lua")),
            denials: remembers
                .then(|| Denials::new(self.remember_denials_for, Arc::clone(&self.changes))),
            changes: Arc::clone(&self.changes),
            link: Arc::clone(&self.link),
            prefix: Arc::clone(&self.prefix),
            policies,
            #[cfg(feature = "testing")]
            clock: self.clock.clone(),
        }))
    }
}

/// What the client is called stands in braces, so that all its states are on one node of a cluster.
fn state_key(prefix: &str, key: &KeyName, suffix: &str) -> String {
    format!("{prefix}:{LAYOUT}:{{{key}}}:{suffix}")
}

/// The policy, and what its states say something only under.
fn suffix<R>(policy: &Policy<R>) -> String {
    format!("{}:{}", policy.name(), policy.algorithm().frame_text())
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("link", &self.link)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}
