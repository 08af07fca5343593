//! Stands in for what is being written: goes when it has come.

use tower_ratelimit::store::RedisStoreBuilder;
use tower_ratelimit::{Decision, Policy};

/// Whether a store that fails is stood in for: until then its failures are errors.
pub(crate) const LANDED: bool = false;

#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "as it will be")]
pub(crate) enum OnStoreFailure {
    Local,
    Allow,
    Refuse,
}

pub(crate) trait Nodes {
    fn nodes(self, nodes: u32) -> Self;
}

impl Nodes for RedisStoreBuilder {
    fn nodes(self, _: u32) -> Self {
        self
    }
}

pub(crate) trait OnFailure {
    fn on_store_failure(self, on: OnStoreFailure) -> Self;
}

impl OnFailure for Policy {
    fn on_store_failure(self, _: OnStoreFailure) -> Self {
        self
    }
}

pub(crate) trait Degraded {
    fn is_degraded(&self) -> bool;
}

impl Degraded for Decision {
    fn is_degraded(&self) -> bool {
        false
    }
}
