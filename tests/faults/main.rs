//! Redis in trouble: a few nodes under load, a fault, and its effect on their clients. `make faults` makes a
//! table of the rows that these tests print.

#[path = "../support/mod.rs"]
mod support;

mod breaker;
mod cluster;
mod crowd;
mod failover;
mod network;
mod run;
mod scene;
mod server;
