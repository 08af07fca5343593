//! What the log tells people.
//!
//! In a process of its own, because each diagnostic is logged once per process, and `tracing` may remember that a call site logs
//! nothing if it is met before the first test listens. Every test here listens.
#[path = "../support/mod.rs"]
mod support;

mod admin_log;
mod away_memcached;
mod diagnostics;
mod eyes_log;
mod outage_log;
