//! The client layer against servers in this process, by a clock that stands still; the last tests use real
//! connections.

#![cfg(feature = "client")]

mod bounds;
#[cfg(feature = "tonic")]
mod channel;
mod connections;
mod fuzzed;
#[cfg(feature = "tonic")]
mod grpc;
mod holds;
mod load;
mod server;
mod stepped;
mod waiting;
