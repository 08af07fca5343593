//! Broken limiters are named within ten seconds at 25 requests a second, and honest ones never are.
//!
//! Servers and clients run in virtual time, without sockets: the judge is pure. Each case runs over many seeds, which
//! choose the arrivals, the network and the moment of the day.

mod honest;
mod memory;
mod named;
mod server;
mod simulation;
