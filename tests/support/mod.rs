//! The foundation of several tests: drivers for the code under test, and a model to compare its answers with.

#![allow(
    dead_code,
    unused_imports,
    reason = "each test is a crate of its own and uses a part of this"
)]

pub(crate) mod buckets;
#[cfg(feature = "redis")]
pub(crate) mod cluster;
pub(crate) mod debt;
pub(crate) mod driver;
pub(crate) mod items;
#[cfg(feature = "tracing")]
pub(crate) mod log;
pub(crate) mod model;
#[cfg(feature = "redis")]
pub(crate) mod process;
#[cfg(feature = "redis")]
pub(crate) mod proxy;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "redis-sentinel")]
pub(crate) mod sentinel;
pub(crate) mod servers;
pub(crate) mod taken;
#[cfg(feature = "redis")]
pub(crate) mod tasks;
pub(crate) mod tokio_clock;
pub(crate) mod windows;
