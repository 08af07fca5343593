//! What the log tells people.
//!
//! In a process of its own, because each diagnostic is logged once per process, and `tracing` may remember that a call site logs
//! nothing if it is met before the first test listens. Every test here listens.
#![cfg(feature = "tracing")]

#[path = "../support/mod.rs"]
mod support;

#[cfg(feature = "ops")]
mod admin_log;
mod away_memcached;
#[cfg(feature = "axum")]
mod diagnostics;
#[cfg(all(feature = "config", feature = "redis"))]
mod eyes_log;
#[cfg(feature = "redis")]
mod outage_log;
