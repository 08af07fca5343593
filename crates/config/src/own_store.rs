//! A store that code has registered, in place of that of the file.

use std::fmt;
use std::sync::Arc;

use tower_ratelimit::error::ConfigError;
use tower_ratelimit::limiter::{Limiter, LimiterBuilder};
use tower_ratelimit::middleware::{RateLimitLayer, RateLimitLayerBuilder};
use tower_ratelimit::store::{Payers, Store};

/// Builds over a store, and hides its type.
#[derive(Clone)]
pub(super) struct OwnStore {
    layer: Arc<Build<RateLimitLayerBuilder, RateLimitLayer>>,
    limiter: Arc<Build<LimiterBuilder, Limiter>>,
    pub(super) is_shared: bool,
    pub(super) payers: Payers,
    pub(super) divides_limits: bool,
    pub(super) keeps_guarantees: bool,
}

type Build<B, T> = dyn Fn(B) -> Result<T, ConfigError> + Send + Sync;

impl OwnStore {
    pub(super) fn new<S: Store + Clone + Send + Sync + 'static>(store: S) -> Self {
        let (is_shared, payers) = (store.is_shared(), store.chooses_payers());
        let (divides_limits, keeps_guarantees) = (store.divides_limits(), store.keeps_guarantees());
        let of_limiter = store.clone();
        Self {
            layer: Arc::new(move |layer| layer.store(store.clone()).build()),
            limiter: Arc::new(move |limiter| limiter.store(of_limiter.clone()).build()),
            is_shared,
            payers,
            divides_limits,
            keeps_guarantees,
        }
    }

    pub(super) fn layer(
        &self,
        builder: RateLimitLayerBuilder,
    ) -> Result<RateLimitLayer, ConfigError> {
        (self.layer)(builder)
    }

    pub(super) fn limiter(&self, builder: LimiterBuilder) -> Result<Limiter, ConfigError> {
        (self.limiter)(builder)
    }
}

impl fmt::Debug for OwnStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnStore").finish_non_exhaustive()
    }
}
