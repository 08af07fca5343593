//! Counters, and where they are shown.

mod counts;
mod day;
mod hooks;
mod layers;
mod metrics;
mod penalties;
mod reloads;
mod shape;
mod stores;
