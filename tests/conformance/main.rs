//! The conformance suite accepts correct stores, and names the law that a store breaks.

#[path = "../support/mod.rs"]
mod support;

mod broken;
mod right;
mod scratch;
