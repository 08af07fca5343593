//! The conformance suite accepts correct stores, and names the law that a store breaks.

mod broken;
mod right;
mod scratch;
