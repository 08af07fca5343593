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
    has_fields: bool,
    exposes_decision: bool,
}

impl RateLimitLayerBuilder {
    pub(super) fn new() -> Self {
        Self {
            policies: Vec::new(),
            store: MemoryStore::new(),
            has_fields: true,
            exposes_decision: false,
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

    /// Adds policies, as [`policy`](Self::policy) does.
    pub fn policies(mut self, policies: impl IntoIterator<Item = Policy<Http>>) -> Self {
        self.policies.extend(policies);
        self
    }

    /// Keeps state in this store.
    pub fn store<T: Store>(self, store: T) -> RateLimitLayerBuilder<T> {
        RateLimitLayerBuilder {
            policies: self.policies,
            store,
            has_fields: self.has_fields,
            exposes_decision: self.exposes_decision,
        }
    }

    /// Leaves the fields `RateLimit` and `RateLimit-Policy` out of all responses, as where clients
    /// are not to learn their limits. A refusal still has its `Retry-After` and its problem.
    ///
    /// A request that is allowed then costs less: the store is asked for no numbers of it
    /// ([`Ledger::admit`](crate::store::Ledger::admit)), unless
    /// [`expose_decision`](Self::expose_decision) wants them.
    pub fn without_fields(mut self) -> Self {
        self.has_fields = false;
        self
    }

    /// Puts the [`Decision`](crate::Decision) into the extensions of each request that goes on,
    /// for handlers to read; off unless said, since it allocates.
    ///
    /// A request to which no policy applied gets none; where layers are stacked, what is there is
    /// the decision of the innermost layer that was asked.
    pub fn expose_decision(mut self) -> Self {
        self.exposes_decision = true;
        self
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
        let mut gate = Gate::new(&policies, readers, ledger);
        if !self.has_fields {
            gate.leave_out_fields();
        }
        if self.exposes_decision {
            gate.expose_decision();
        }
        Ok(RateLimitLayer::of(gate))
    }
}
