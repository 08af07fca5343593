//! The options of a resolver in a file.

use std::hash::Hash;
use std::time::Duration;

use tower_ratelimit::error::ConfigError;
use tower_ratelimit::plan::Resolver;

/// The options of the resolver in the file; the others are those of the code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ResolverOptions {
    pub(super) capacity: Option<usize>,
    pub(super) not_found_capacity: Option<usize>,
    pub(super) fresh_for: Option<Duration>,
    pub(super) stale_for: Option<Duration>,
    pub(super) not_found_for: Option<Duration>,
    pub(super) retry_after: Option<Duration>,
    pub(super) timeout: Option<Duration>,
    pub(super) lookup_timeout: Option<Duration>,
    pub(super) in_flight: Option<usize>,
    pub(super) refuses: bool,
}

impl ResolverOptions {
    /// Returns the resolver with these options.
    pub(super) fn of<K>(&self, resolver: &Resolver<K>) -> Result<Resolver<K>, ConfigError>
    where
        K: Clone + Eq + Hash + Send + Sync + 'static,
    {
        if *self == Self::default() {
            return Ok(resolver.clone());
        }
        let mut builder = resolver.rebuilt();
        if let Some(keys) = self.capacity {
            builder = builder.capacity(keys);
        }
        if let Some(keys) = self.not_found_capacity {
            builder = builder.not_found_capacity(keys);
        }
        if let Some(time) = self.fresh_for {
            builder = builder.fresh_for(time);
        }
        if let Some(time) = self.stale_for {
            builder = builder.stale_for(time);
        }
        if let Some(time) = self.not_found_for {
            builder = builder.not_found_for(time);
        }
        if let Some(time) = self.retry_after {
            builder = builder.retry_after(time);
        }
        if let Some(time) = self.timeout {
            builder = builder.timeout(time);
        }
        if let Some(time) = self.lookup_timeout {
            builder = builder.lookup_timeout(time);
        }
        if let Some(lookups) = self.in_flight {
            builder = builder.in_flight(lookups);
        }
        if self.refuses {
            builder = builder.refuse_unresolved();
        }
        let rebuilt = builder.build()?;
        resolver.invalidates(&rebuilt);
        Ok(rebuilt)
    }
}
