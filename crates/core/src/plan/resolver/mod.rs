//! The plans of keys that a database or another service knows.
//!
//! `known.rs` has the cached answers, `flights.rs` the lookups, and `look.rs` the answers to requests.

mod builder;
mod flights;
mod health;
mod known;
mod lock;
pub(crate) mod look;
mod options;
mod own_limits;
mod resolved;
mod usage;

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use tokio::time::Instant;

pub use self::builder::ResolverBuilder;
pub use self::resolved::Resolved;
pub use self::usage::ResolverUsage;

pub(crate) use self::look::PendingLookup;
pub use self::look::{Finding, PlanLookup};
pub(super) use self::own_limits::{OwnLimits, ResolvedPolicies};

use self::flights::{BoxError, Lookups};

/// An asynchronous source of plans or limits: it calls a closure once for each key, and keeps the answers.
///
/// `K` is the type by which the database finds a customer: an identifier, or a text. Clones share the
/// answers.
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use std::collections::HashMap;
/// use std::convert::Infallible;
///
/// use tower_ratelimit::plan::{Plan, Plans, Resolved, Resolver};
/// use tower_ratelimit::{FixedWindow, Limiter, Policy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let plans = Plans::new([
///     Plan::new("free").limit("minute", FixedWindow::per_minute(10)),
///     Plan::new("pro").limit("minute", FixedWindow::per_minute(100)),
/// ]);
/// // In place of a database.
/// let customers = HashMap::from([("ann".to_owned(), "pro")]);
/// let resolver = Resolver::new(move |customer: String| {
///     let plan = customers.get(&customer).copied();
///     async move { Ok::<_, Infallible>(plan.map_or(Resolved::NotFound, Resolved::plan)) }
/// });
///
/// let limiter = Limiter::builder()
///     .policy(Policy::new("minute", FixedWindow::per_minute(10)))
///     .plans_by_name(plans)
///     .resolver(resolver.clone(), |key| key.to_text())
///     .build()?;
/// let decision = limiter.check("ann", 1).await?;
/// assert_eq!(decision.rule().unwrap().to_string(), "plan pro");
/// let decision = limiter.check("bob", 1).await?;
/// assert_eq!(decision.rule().unwrap().to_string(), "plan free");
/// assert_eq!(decision.resolution().unwrap().to_string(), "default: not found");
///
/// // Ann's plan has changed: the next decision asks anew.
/// resolver.invalidate(&"ann".to_owned());
/// # Ok(())
/// # }
/// ```
///
/// # How long an answer holds
///
/// | answer | a request gets |
/// | --- | --- |
/// | fresh | this answer |
/// | stale | this answer, while one lookup refreshes it |
/// | absent, older than that, or invalidated | what a lookup answers, after `timeout` at most |
///
/// A request whose lookup fails, does not answer in time, or finds no place among those in flight, gets the
/// last known answer, marked as stale. If there is none, it gets the default plan or, by choice, is refused.
/// The [`Decision`](crate::Decision::resolution) says how its plan was found.
///
/// One lookup is in flight for each key, in a task of its own, so a request that goes away cancels nothing. A
/// lookup that panics has failed, and affects nothing else. Time is that of tokio's clock.
pub struct Resolver<K> {
    shared: Arc<Lookups<K>>,
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Resolver<K> {
    /// Creates a resolver over this closure, with the defaults of [`builder`](Self::builder).
    ///
    /// The error of a lookup is logged, so it must not contain secrets.
    pub fn new<F, E>(lookup: impl Fn(K) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Resolved, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        ResolverBuilder::new(lookup).made()
    }

    /// Starts to build a resolver over this closure.
    ///
    /// # Defaults
    ///
    /// - the plans of 10,000 keys are kept, and for 1,000 more keys that they have none
    /// - a plan is fresh for a minute, and used for ten minutes more while it is refreshed
    /// - a missing plan is fresh for ten seconds
    /// - a request waits 50 ms for a lookup, and a lookup may take ten seconds
    /// - after a failure no lookup of the key begins for a second
    /// - 64 lookups are in flight at most
    /// - a request without an answer has the default plan
    pub fn builder<F, E>(lookup: impl Fn(K) -> F + Send + Sync + 'static) -> ResolverBuilder<K>
    where
        F: Future<Output = Result<Resolved, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        ResolverBuilder::new(lookup)
    }

    /// Marks the answer for this key as no longer fresh: the next decision looks it up again. The answer is
    /// kept for failures alone.
    ///
    /// The answer of a lookup in flight is not fresh either: when it lands, the key is looked up again.
    pub fn invalidate(&self, key: &K) {
        self.shared.invalidate(key);
    }

    /// Does for all keys what [`invalidate`](Self::invalidate) does for one.
    pub fn invalidate_all(&self) {
        self.shared.invalidate_all();
    }

    /// Returns how many keys are kept: those with a plan, those without one, and the lookups in flight.
    pub fn usage(&self) -> ResolverUsage {
        ResolverUsage {
            found: self.shared.found.len(),
            not_found: self.shared.absent.len(),
            in_flight: self.shared.in_flight(),
        }
    }

    /// Starts to build a resolver with the same closure and options, and a cache of its own.
    // For `tower-ratelimit-config`.
    #[doc(hidden)]
    pub fn rebuilt(&self) -> ResolverBuilder<K> {
        ResolverBuilder::like(&self.shared)
    }

    /// Invalidates the answers of `follower` together with its own.
    // For `tower-ratelimit-config`.
    #[doc(hidden)]
    pub fn invalidates(&self, follower: &Self) {
        self.shared.invalidates(&follower.shared);
    }

    /// Looks up this key for a request.
    #[inline]
    pub(crate) fn look(&self, key: &K) -> PlanLookup {
        let now = Instant::now();
        if let Some(known) = self.shared.found.get(key)
            && let Some(finding) = known.fresh(now, self.shared.epoch())
        {
            return PlanLookup::Known(finding);
        }
        self.shared.look_further(key, now)
    }
}

impl<K> Clone for Resolver<K> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K> fmt::Debug for Resolver<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}
