use tower_ratelimit::error::ConfigError;
use tower_ratelimit::limiter::{Limiter, LimiterBuilder};
use tower_ratelimit::middleware::{RateLimitLayer, RateLimitLayerBuilder};
use tower_ratelimit::store::{MemoryStore, Payers, Store as _};

use super::redis::ReadRedis;
use super::words::STORE;
use crate::own_store::OwnStore;
use crate::walk::At;

/// The store of a file.
#[derive(Clone, Debug)]
pub(crate) enum ReadStore {
    Memory(MemoryStore),
    Own(OwnStore),
    Redis(ReadRedis),
}

impl Default for ReadStore {
    fn default() -> Self {
        Self::Memory(MemoryStore::new())
    }
}

impl ReadStore {
    /// Returns between which policies it chooses the one that pays.
    pub(crate) fn chooses_payers(&self) -> Payers {
        match self {
            Self::Memory(store) => store.chooses_payers(),
            Self::Own(store) => store.payers,
            Self::Redis(store) => store.chooses_payers(),
        }
    }

    /// Returns whether it divides limits among tenants.
    pub(crate) fn divides_limits(&self) -> bool {
        match self {
            Self::Memory(_) | Self::Redis(_) => true,
            Self::Own(store) => store.divides_limits,
        }
    }

    /// Returns whether it keeps what levels of a tree are guaranteed.
    pub(crate) fn keeps_guarantees(&self) -> bool {
        match self {
            Self::Memory(_) | Self::Redis(_) => true,
            Self::Own(store) => store.keeps_guarantees,
        }
    }

    /// Returns whether nodes share it.
    pub(crate) fn is_shared(&self) -> bool {
        match self {
            Self::Memory(_) => false,
            Self::Own(store) => store.is_shared,
            Self::Redis(_) => true,
        }
    }

    /// Logs in as a newer store does, and returns whether it could: only where both are in Redis, on the same servers.
    pub(crate) fn renew_login(&self, newer: &Self) -> bool {
        match (self, newer) {
            (Self::Redis(store), Self::Redis(newer)) => store.renew_login(newer),
            _ => false,
        }
    }

    /// Builds a limiter over it.
    pub(crate) fn limiter(&self, builder: LimiterBuilder) -> Result<Limiter, ConfigError> {
        match self {
            Self::Memory(store) => builder.store(store.clone()).build(),
            Self::Own(store) => store.limiter(builder),
            Self::Redis(store) => store.limiter(builder),
        }
    }

    /// Builds a layer over it.
    pub(crate) fn layer(
        &self,
        builder: RateLimitLayerBuilder,
    ) -> Result<RateLimitLayer, ConfigError> {
        match self {
            Self::Memory(store) => builder.store(store.clone()).build(),
            Self::Own(store) => store.layer(builder),
            Self::Redis(store) => store.layer(builder),
        }
    }
}

const OF_REDIS: &[&str] = &[
    "prefix",
    "deadline",
    "remember_denials_for",
    "slot_ttl",
    "lease",
    "nodes",
    "nodes_at_least",
];
const PLACES: &[&str] = &["redis", "cluster", "sentinel"];

/// Reads the store.
pub(crate) fn store(at: &At<'_>) -> Option<ReadStore> {
    if at.walk.functions().store.is_some() {
        return at.refuse("code has registered the store; leave it out");
    }
    let table = at.table(&STORE)?;
    for (index, place) in PLACES.iter().enumerate() {
        table.either("max_keys", place);
        for other in &PLACES[index + 1..] {
            table.either(place, other);
        }
    }
    let place = PLACES.iter().find_map(|place| table.get(place));
    if place.is_some() {
        return ReadRedis::read(&table).map(ReadStore::Redis);
    }
    for field in OF_REDIS {
        if let Some(at) = table.get(field).filter(|_| !table.has_unknown()) {
            at.refuse::<()>(format!(
                "`{field}` is for Redis; add `redis`, `cluster` or `sentinel`, or leave it out"
            ));
        }
    }
    let store = MemoryStore::new();
    Some(ReadStore::Memory(match table.get("max_keys") {
        Some(at) => store.max_keys(at.integer()?),
        None => store,
    }))
}
