//! The judge names broken limiters within ten seconds at 25 requests a second, and accuses no honest limiter.
//!
//! Servers and clients run in virtual time, without sockets: the judge is pure. Each case runs with many seeds, which
//! choose the arrivals, the network and the time of day.

mod honest;
mod memory;
mod named;
mod server;
mod simulation;
