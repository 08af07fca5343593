//! The foundation of several tests: drivers for the code under test, and a model to compare its answers with.

#![allow(
    dead_code,
    unused_imports,
    reason = "each test is a crate of its own and uses a part of this"
)]

pub(crate) mod buckets;
pub(crate) mod debt;
pub(crate) mod driver;
pub(crate) mod items;
#[cfg(feature = "tracing")]
pub(crate) mod log;
pub(crate) mod model;
pub(crate) mod taken;
#[cfg(feature = "redis")]
pub(crate) mod tasks;
pub(crate) mod tokio_clock;
pub(crate) mod windows;

#[cfg(feature = "redis")]
pub(crate) use tower_ratelimit_testing::servers::{cluster, process, proxy, redis, sentinel};
