//! One limit for many tenants, of which none may starve the others.

use std::sync::Arc;

use super::logged::OrLogged;
use super::{Fair, Http, Policy};
use crate::key::{Extract, Head, Key, Missing};

impl Policy {
    /// Divides the limit fairly among the tenants that ask for it.
    ///
    /// The key of a request says both: [`Key::branch`] of the key that all tenants share, and of the tenant. A policy of a layer says them
    /// by extractors: call [`fair`](Policy::fair) after [`key`](Policy::key). [The page on fair shares](crate::guide::fair) has the rule,
    /// and what goes with it.
    ///
    /// # Errors
    ///
    /// Building a limiter or a layer fails if the algorithm is a window or a log, if a burst is below 5 units or a queue has fewer than 4
    /// places, or if the store or an option of the policy does not go with it.
    ///
    /// ```
    /// use tower_ratelimit::key::{IntoKey, Key};
    /// use tower_ratelimit::policy::Fair;
    /// use tower_ratelimit::{ConfigError, Limiter, Policy, TokenBucket};
    ///
    /// fn main() -> Result<(), ConfigError> {
    ///     let limiter = Limiter::builder()
    ///         .policy(Policy::new("model", TokenBucket::per_minute(60).burst(10)).fair(Fair::new()))
    ///         .build_local()?;
    ///     let ask = |tenant: &str| {
    ///         let key = Key::branch(Key::GLOBAL, &[tenant.into_key()]);
    ///         limiter.check(key, 1).now().is_allowed()
    ///     };
    ///
    ///     // While nobody else asks, a tenant has all of it. From then on, each has a half.
    ///     assert!((0..8).all(|_| ask("hog")));
    ///     assert!(ask("ann"));
    ///     Ok(())
    /// }
    /// ```
    pub fn fair(mut self, fair: Fair) -> Self {
        self.rule = self.rule.fair(fair);
        self
    }
}

impl Policy<Http> {
    /// Divides the limit of the key fairly among tenants: [`key`](Policy::key) says what they share, such as
    /// [`key::global()`](crate::key::global), and `tenant` who asks.
    ///
    /// No tenant can starve the others, whatever it asks, and what one leaves goes to those that ask for more. [The page on fair
    /// shares](crate::guide::fair) has the rule, and what goes with it. [`fair_by`](Self::fair_by) has weights. Of two calls, the last one
    /// counts.
    ///
    /// Requests without a tenant are one tenant together, unless [`on_missing_key`](Self::on_missing_key) refuses them. A client that chooses its tenant
    /// freely, by a header that nothing has verified, can be as many tenants as it likes: take a key that it cannot invent. A layer warns of
    /// such tenants when it is built ([`TRL041`](crate::diagnostics)).
    ///
    /// # Errors
    ///
    /// Building a layer fails if the algorithm is a window or a log, if a burst is below 5 units or a queue has fewer than 4 places, or if
    /// the store or an option of the policy does not go with it.
    ///
    /// ```
    /// use tower_ratelimit::{Policy, RateLimitLayer, TokenBucket, key};
    ///
    /// /// The authentication layer, outside this one, puts it into the extensions of the request.
    /// #[derive(Clone)]
    /// struct Account {
    ///     id: u64,
    /// }
    ///
    /// let upstream = Policy::new("upstream", TokenBucket::per_second(1_000))
    ///     .key(key::global())
    ///     .fair(key::extension::<Account>().map(|account: &Account| account.id));
    /// let layer = RateLimitLayer::builder().policy(upstream).build()?;
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn fair(self, tenant: impl Extract) -> Self {
        self.fair_by(tenant, Fair::new())
    }

    /// Divides the limit as [`fair`](Policy::fair) does, with these weights and bounds.
    ///
    /// ```
    /// use tower_ratelimit::plan::{Plan, Plans};
    /// use tower_ratelimit::policy::Fair;
    /// use tower_ratelimit::{Policy, RateLimitLayer, TokenBucket, key};
    ///
    /// #[derive(Clone)]
    /// struct Account {
    ///     id: u64,
    ///     plan: &'static str,
    /// }
    ///
    /// // While all ask for more than they get, a tenant of plan `pro` has four times as much as one of plan `free`.
    /// let upstream = Policy::new("upstream", TokenBucket::per_second(1_000))
    ///     .key(key::global())
    ///     .fair_by(key::extension::<Account>().map(|account: &Account| account.id), Fair::new().weight("pro", 4));
    /// let layer = RateLimitLayer::builder()
    ///     .policy(upstream)
    ///     .plans(Plans::new([Plan::new("free"), Plan::new("pro")]), |head| {
    ///         Some(head.extension::<Account>()?.plan)
    ///     })
    ///     .build()?;
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn fair_by(self, tenant: impl Extract, fair: Fair) -> Self {
        self.divide(Arc::new(tenant), fair)
    }
}

/// The key of a tenant, under that which all tenants share.
#[derive(Clone)]
pub(super) struct TenantKey {
    pub(super) shared: Arc<dyn Extract>,
    pub(super) tenant: Arc<dyn Extract>,
}

impl TenantKey {
    /// Returns the key of a request of a log, whose lines name the tenant.
    pub(super) fn or_logged(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            tenant: OrLogged::of(&self.tenant),
        }
    }
}

impl Extract for TenantKey {
    fn extract(&self, head: &Head<'_>) -> Result<Key, Missing> {
        let shared = self.shared.extract(head)?;
        Ok(Key::branch(shared, &[self.tenant.extract(head)?]))
    }

    fn credential_in_the_clear(&self) -> Option<String> {
        let shared = self.shared.credential_in_the_clear();
        shared.or_else(|| self.tenant.credential_in_the_clear())
    }

    fn is_of_this_process(&self) -> bool {
        self.shared.is_of_this_process() || self.tenant.is_of_this_process()
    }

    fn plain(&self, head: &Head<'_>) -> Result<Key, Missing> {
        self.tenant.plain(head)
    }
}
