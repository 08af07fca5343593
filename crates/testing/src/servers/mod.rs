//! Servers that belong to one test: each listens on a free port of 127.0.0.1, and ends with the test. A proxy before them
//! causes the faults of networks.
//!
//! ```
//! use tower_ratelimit_testing::servers::proxy::Proxy;
//! use tower_ratelimit_testing::servers::redis::{Server, text};
//!
//! let server = Server::start(&["--maxmemory", "64mb"]);
//! let proxy = Proxy::start(&server);
//! let client = redis::Client::open(proxy.url()).unwrap();
//! let answer: String = redis::cmd("PING").query(&mut client.get_connection().unwrap()).unwrap();
//! assert_eq!(answer, "PONG");
//! assert!(text(&server.ask(&["INFO", "memory"])).contains("maxmemory:67108864"));
//! ```
//!
//! The programs have to be installed, on a system with `sh` and `kill`. What fails, panics: it fails the test.

#![allow(
    clippy::missing_panics_doc,
    reason = "the documentation of the module says it"
)]

pub mod cluster;
pub mod process;
pub mod program;
pub mod proxy;
pub mod redis;
pub mod sentinel;
