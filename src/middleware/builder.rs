use super::RateLimitLayer;
use super::gate::Gate;
use crate::error::ConfigError;
use crate::limiter::check_policies;
use crate::policy::{Http, Policy};
use crate::store::{MemoryStore, Store};

/// Puts a [`RateLimitLayer`] together; see [`RateLimitLayer::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct RateLimitLayerBuilder<S = MemoryStore> {
    policies: Vec<Policy<Http>>,
    store: S,
}

impl RateLimitLayerBuilder {
    pub(super) fn new() -> Self {
        Self {
            policies: Vec::new(),
            store: MemoryStore::new(),
        }
    }
}

impl<S> RateLimitLayerBuilder<S> {
    /// Adds a policy. All policies that apply are asked about a request, and it is charged to
    /// all of them or to none.
    pub fn policy(mut self, policy: Policy<Http>) -> Self {
        self.policies.push(policy);
        self
    }

    /// Keeps state in this store.
    pub fn store<T: Store>(self, store: T) -> RateLimitLayerBuilder<T> {
        RateLimitLayerBuilder {
            policies: self.policies,
            store,
        }
    }
}

impl<S: Store> RateLimitLayerBuilder<S> {
    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// When there is no policy, when a name cannot stand in a header field or is there twice,
    /// and when the store cannot hold a policy exactly.
    pub fn build(self) -> Result<RateLimitLayer, ConfigError> {
        let (policies, readers): (Vec<_>, Vec<_>) =
            self.policies.into_iter().map(Policy::split).unzip();
        check_policies(&policies)?;
        let ledger = self.store.open(&policies)?;
        Ok(RateLimitLayer::of(Gate::new(&policies, readers, ledger)))
    }
}
