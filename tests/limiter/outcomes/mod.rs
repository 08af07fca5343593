//! The real costs of requests, and their settlement.

#[cfg(all(feature = "redis", feature = "testing"))]
mod agreement;
#[cfg(feature = "http")]
mod answers;
mod away;
#[cfg(feature = "http")]
mod endings;
mod late;
#[cfg(feature = "redis")]
mod over_redis;
mod races;
mod reservations;
#[cfg(feature = "http")]
mod script;
mod services;
#[cfg(feature = "http")]
mod storm;
#[cfg(all(feature = "http", feature = "redis"))]
mod storm_of_nodes;
#[cfg(feature = "http")]
mod weather;
#[cfg(feature = "axum")]
mod wire;
