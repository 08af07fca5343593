//! Diagnostics: mistakes in how a server is set up, each with a stable code and a remedy.
//!
//! Each is logged once, because a mistake of the setup concerns every request.
#![doc = ""]
#![doc = include_str!("../docs/diagnostics.md")]

pub use tower_ratelimit_core::diagnostics::Diagnostic;
