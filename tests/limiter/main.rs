//! Limits without HTTP: the verbs of a limiter, and its stores in this process and elsewhere.

#[path = "../support/mod.rs"]
mod support;

#[cfg(not(feature = "calendar"))]
mod absent_calendar;
mod away;
mod bounds;
mod conformance;
mod custom_store;
mod factors;
mod hostile_states;
#[cfg(all(feature = "axum", feature = "redis"))]
mod limiters;
mod migrating;
mod outcomes;
mod packing;
mod restart;
mod scenarios;
mod services;
mod shared_stores;
mod snapshots;
mod stores;
mod verbs;
