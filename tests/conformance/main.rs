//! The conformance suite passes stores that are right, and names the law that one breaks.

#[path = "../support/mod.rs"]
mod support;

mod broken;
mod right;
mod scratch;
