//! Limiters and layers of this crate.

use tower_ratelimit::clock::QuantaClock;
use tower_ratelimit::{
    Algorithm, Gcra, Limiter, LocalLimiter, MemoryStore, Policy, RateLimitLayer, key,
};

use crate::PLENTY;

/// The default bound on the keys of a policy in a store.
pub const DEFAULT_BOUND: u32 = 100_000;

/// Returns a store that keeps this many keys of each policy.
pub fn store(keys: u32) -> MemoryStore {
    MemoryStore::new().max_keys(keys as usize)
}

/// Returns a limiter of one policy, under the default clock of peers.
pub fn by_quanta(algorithm: impl Into<Algorithm>) -> LocalLimiter {
    limiter(algorithm, MemoryStore::new().clock(QuantaClock::new()))
}

/// Returns the same with room for this many keys.
pub fn bounded(algorithm: impl Into<Algorithm>, keys: u32) -> LocalLimiter {
    limiter(algorithm, store(keys).clock(QuantaClock::new()))
}

/// Returns a limiter of one policy under std's clock.
pub fn by_std(algorithm: impl Into<Algorithm>) -> LocalLimiter {
    limiter(algorithm, MemoryStore::new())
}

/// Returns a limiter of one policy over this store.
pub fn limiter(algorithm: impl Into<Algorithm>, store: MemoryStore) -> LocalLimiter {
    limiter_of([Policy::new("bench", algorithm)], store)
}

/// Returns a limiter of several policies over this store.
pub fn limiter_of(policies: impl IntoIterator<Item = Policy>, store: MemoryStore) -> LocalLimiter {
    Limiter::builder()
        .policies(policies)
        .store(store)
        .build_local()
        .expect("policies with good names")
}

/// Returns policies that allow everything, each of which has to be charged.
pub fn policies(count: usize) -> impl Iterator<Item = Policy> {
    (0..count).map(|n| Policy::new(format!("bench {n}"), Gcra::per_hour(PLENTY)))
}

/// Returns a layer with one policy by address, as most users have it, with all headers or without any.
pub fn layer(algorithm: impl Into<Algorithm>, store: MemoryStore, fields: bool) -> RateLimitLayer {
    let builder = RateLimitLayer::builder()
        .policy(Policy::new("bench", algorithm).key(key::client_ip()))
        .store(store);
    let builder = if fields {
        builder
    } else {
        builder.without_headers()
    };
    builder.build().expect("one policy with a good name")
}
