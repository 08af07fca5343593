//! The server over loopback connections, between a client and an upstream of the test.

mod accounts;
mod bodies;
mod counted;
mod deploy;
mod descriptors;
mod envoy;
mod failing;
mod floods;
mod forwarding;
mod from_nginx;
mod grpc;
mod hostile;
mod limits;
mod listeners;
mod nginx;
#[cfg(feature = "otlp")]
mod otlp;
mod process;
mod program;
mod question;
mod readings;
mod refusals;
mod scene;
mod switching;
mod tls;
mod tokens;
