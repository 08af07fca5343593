use super::RateLimitLayer;
use super::gate::Gate;
use super::lists::Lists;
use crate::error::ConfigError;
use crate::key::Head;
use crate::limiter::check_policies;
use crate::policy::{Http, Policy, warn_of_those_that_never_bind};
use crate::store::{MemoryStore, Store};

/// Puts a [`RateLimitLayer`] together; see [`RateLimitLayer::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct RateLimitLayerBuilder<S = MemoryStore> {
    policies: Vec<Policy<Http>>,
    store: S,
    lists: Lists,
    has_fields: bool,
    exposes_decision: bool,
}

impl RateLimitLayerBuilder {
    pub(super) fn new() -> Self {
        Self {
            policies: Vec::new(),
            store: MemoryStore::new(),
            lists: Lists::default(),
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
            lists: self.lists,
            has_fields: self.has_fields,
            exposes_decision: self.exposes_decision,
        }
    }

    /// Lets requests of these paths go on, without a limit and without fields: the probes of a load
    /// balancer, say, which must not find the service gone because they ask often.
    ///
    /// A path is compared as it is sent, whole and without its query. Within a router that is
    /// nested in another, axum has cut the outer part off.
    pub fn exempt_paths<P: Into<String>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        for path in paths {
            self.lists.exempt_path(path.into());
        }
        self
    }

    /// Lets requests for which this holds go on, without a limit and without fields. May be said
    /// several times.
    ///
    /// The extractors of [`key`](crate::key) make conditions of lists, and any closure is one:
    ///
    /// ```
    /// use tower_ratelimit::{Policy, RateLimitLayer, TokenBucket, key};
    ///
    /// let layer = RateLimitLayer::builder()
    ///     .policy(Policy::new("address", TokenBucket::per_second(5)).key(key::client_ip()))
    ///     .exempt_paths(["/health", "/ready"])
    ///     .allow(|head| head.method() == "OPTIONS")
    ///     .deny(|head| head.header("user-agent").is_some_and(|agent| agent.contains("scraper")))
    ///     .build()?;
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn allow(mut self, condition: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.lists.allow(condition);
        self
    }

    /// Refuses requests for which this holds with `403 Forbidden`, before any policy is asked and
    /// whatever else allows them. May be said several times.
    pub fn deny(mut self, condition: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.lists.deny(condition);
        self
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
    /// when an exempt path cannot be one, when a policy refuses requests without a key with a
    /// status that is no refusal, and when the store cannot hold a policy exactly.
    pub fn build(self) -> Result<RateLimitLayer, ConfigError> {
        self.lists.check()?;
        self.policies.iter().try_for_each(Policy::check)?;
        let scopes: Vec<_> = self.policies.iter().map(Policy::<Http>::scope).collect();
        warn_of_those_that_never_bind(&scopes);
        let (policies, readers): (Vec<_>, Vec<_>) =
            self.policies.into_iter().map(Policy::split).unzip();
        check_policies(&policies)?;
        let ledger = self.store.open(&policies)?;
        let mut gate = Gate::new(&policies, readers, ledger);
        gate.look_up_in(self.lists);
        if !self.has_fields {
            gate.leave_out_fields();
        }
        if self.exposes_decision {
            gate.expose_decision();
        }
        Ok(RateLimitLayer::of(gate))
    }
}
