//! Counters, and where they are shown.

#[path = "../support/mod.rs"]
mod support;

mod counts;
mod day;
mod hooks;
mod layers;
mod metrics;
mod penalties;
mod reloads;
mod shape;
mod stores;
