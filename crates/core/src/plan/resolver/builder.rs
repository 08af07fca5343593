//! The builder of a resolver, with its defaults.

use std::fmt;
use std::future::poll_fn;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use super::flights::{BoxError, Lookup, Lookups};
use super::options::Options;
use super::{Resolved, Resolver};
use crate::error::ConfigError;

/// Builds a [`Resolver`]; see [`Resolver::builder`].
#[must_use = "a builder does nothing until it is built"]
pub struct ResolverBuilder<K> {
    lookup: Arc<Lookup<K>>,
    options: Options,
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> ResolverBuilder<K> {
    pub(super) fn new<F, E>(lookup: impl Fn(K) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Resolved, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        let lookup = move |key| {
            let mut answer = Box::pin(lookup(key));
            let answer = poll_fn(move |cx| answer.as_mut().poll(cx).map_err(Into::into));
            Box::pin(answer) as std::pin::Pin<Box<dyn Future<Output = _> + Send>>
        };
        Self {
            lookup: Arc::new(lookup),
            options: Options::DEFAULT,
        }
    }

    /// Creates a builder with the closure and the options of another resolver.
    pub(super) fn like(shared: &Lookups<K>) -> Self {
        Self {
            lookup: Arc::clone(&shared.lookup),
            options: shared.options,
        }
    }

    fn with(self, change: impl FnOnce(&mut Options)) -> Self {
        let mut options = self.options;
        change(&mut options);
        Self { options, ..self }
    }

    /// Sets for how many keys the plan is kept; the default is 10,000.
    ///
    /// A further key takes the place of a key with few requests.
    pub fn capacity(self, keys: usize) -> Self {
        self.with(|options| options.capacity = keys)
    }

    /// Sets for how many keys a missing plan or a failed lookup is kept; the default is 1,000.
    ///
    /// They take no place of keys with a plan.
    pub fn not_found_capacity(self, keys: usize) -> Self {
        self.with(|options| options.not_found_capacity = keys)
    }

    /// Sets how long a plan is fresh, give or take a tenth at random; the default is a minute.
    pub fn fresh_for(self, time: Duration) -> Self {
        self.with(|options| options.fresh_for = time)
    }

    /// Sets how long a plan that is no longer fresh is used while a lookup refreshes it; the default is ten
    /// minutes.
    ///
    /// After that a request waits for the lookup, and the plan is used only if the lookup fails.
    pub fn stale_for(self, time: Duration) -> Self {
        self.with(|options| options.stale_for = time)
    }

    /// Sets how long a missing plan is fresh, give or take a tenth at random; the default is ten seconds.
    pub fn not_found_for(self, time: Duration) -> Self {
        self.with(|options| options.not_found_for = time)
    }

    /// Sets how long after a failed lookup no other lookup of the key begins; the default is a second.
    pub fn retry_after(self, time: Duration) -> Self {
        self.with(|options| options.retry_after = time)
    }

    /// Sets how long a request waits for a lookup of its key, at most; the default is 50 ms.
    pub fn timeout(self, time: Duration) -> Self {
        self.with(|options| options.timeout = time)
    }

    /// Sets how long a lookup may take before its future is dropped and it has failed; the default is ten seconds.
    ///
    /// A lookup that never ends would keep its place for ever.
    pub fn lookup_timeout(self, time: Duration) -> Self {
        self.with(|options| options.lookup_timeout = time)
    }

    /// Sets how many lookups may be in flight at the same time; the default is 64.
    ///
    /// A quarter of the places is for keys that have a plan already. Refreshes of plans that are used meanwhile begin only while
    /// half of the places are free, or in that quarter.
    pub fn in_flight(self, lookups: usize) -> Self {
        self.with(|options| options.in_flight = lookups)
    }

    /// Refuses a request with `503 Service Unavailable` if its plan is not known in time, and never was. By
    /// default, the request has the default plan.
    ///
    /// A key without a plan in the source still has the default plan. A limiter's future returns an error in
    /// place of the 503. Calls that cannot wait, such as `check(…).now()` and an interceptor, use the default
    /// plan.
    pub fn refuse_unresolved(self) -> Self {
        self.with(|options| options.refuses = true)
    }

    /// Builds the resolver.
    ///
    /// # Errors
    ///
    /// When a capacity or the number of lookups in flight is 0, and when `fresh_for`, `not_found_for` or
    /// `lookup_timeout` is zero.
    pub fn build(self) -> Result<Resolver<K>, ConfigError> {
        let options = &self.options;
        for (field, number) in [
            ("capacity", options.capacity),
            ("not_found_capacity", options.not_found_capacity),
            ("in_flight", options.in_flight),
        ] {
            if number == 0 {
                return Err(ConfigError::new(field, number, "give 1 or more"));
            }
        }
        for (field, time) in [
            ("fresh_for", options.fresh_for),
            ("not_found_for", options.not_found_for),
            ("lookup_timeout", options.lookup_timeout),
        ] {
            if time < Duration::from_millis(1) {
                let value = format_args!("{time:?}");
                return Err(ConfigError::new(field, value, "give a millisecond or more"));
            }
        }
        Ok(self.made())
    }

    pub(super) fn made(self) -> Resolver<K> {
        Resolver {
            shared: Arc::new(Lookups::new(self.lookup, self.options)),
        }
    }
}

impl<K> fmt::Debug for ResolverBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResolverBuilder")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
