//! The messages, in modules that are named as their packages. `build.rs` makes them of `proto`.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    reason = "a program has written them"
)]

include!(concat!(env!("OUT_DIR"), "/messages.rs"));

/// The files of `proto`, for reflection and for JSON.
pub(crate) const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
