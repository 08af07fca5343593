//! The layer in a tonic server, and its answers to gRPC clients: real servers and clients over loopback.

mod codes;
mod deadlines;
mod details;
mod echo;
mod hostile;
mod interceptor;
mod keys;
mod kinds;
mod load_shed;
mod one_port;
mod options;
mod resets;
mod settling;
mod tls;
#[cfg(unix)]
mod unix_socket;
mod wire;
