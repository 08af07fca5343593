//! The outgoing side, against servers in this process, under a clock that stands still; the last of
//! them over real connections.

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
#[path = "../support/tokio_clock.rs"]
mod tokio_clock;
mod waiting;
