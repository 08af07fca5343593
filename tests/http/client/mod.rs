//! The client layer against servers in this process, by a clock that stands still; the last tests use real
//! connections.

mod bounds;
mod channel;
mod connections;
mod fuzzed;
mod grpc;
mod holds;
mod load;
mod server;
mod stepped;
mod waiting;
