use std::time::Duration;

use tower_ratelimit::error::ConfigError;
use tower_ratelimit::limiter::{Limiter, LimiterBuilder};
use tower_ratelimit::middleware::{RateLimitLayer, RateLimitLayerBuilder};
use tower_ratelimit::store::Payers;
use tower_ratelimit_adapt::Signal;

use crate::walk::TableAt;

/// A store in Redis, of which there is none.
#[derive(Clone, Debug)]
pub(crate) enum ReadRedis {}

impl ReadRedis {
    /// Refuses the table.
    pub(super) fn read(table: &TableAt<'_>) -> Option<Self> {
        table
            .at
            .refuse("a store in Redis needs feature `redis` of tower-ratelimit-config")
    }

    pub(super) fn chooses_payers(&self) -> Payers {
        match *self {}
    }

    pub(super) fn limiter(&self, _: LimiterBuilder) -> Result<Limiter, ConfigError> {
        match *self {}
    }

    pub(super) fn layer(&self, _: RateLimitLayerBuilder) -> Result<RateLimitLayer, ConfigError> {
        match *self {}
    }

    pub(super) fn renew_login(&self, _: &Self) -> bool {
        match *self {}
    }

    pub(crate) fn answer_time(&self, _: Duration) -> Box<dyn Signal> {
        match *self {}
    }

    pub(crate) async fn give_leases_back(&self) {
        match *self {}
    }
}
