//! The real costs of requests, and their settlement.

#[cfg(feature = "redis")]
mod agreement;
mod answers;
mod away;
mod endings;
mod late;
#[cfg(feature = "redis")]
mod over_redis;
mod races;
mod reservations;
mod script;
mod services;
mod storm;
#[cfg(feature = "redis")]
mod storm_of_nodes;
mod weather;
#[cfg(feature = "axum")]
mod wire;
