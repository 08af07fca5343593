//! Limits from a file: what it means, how its mistakes are told, and its schema.

mod fuzzed;
#[cfg(feature = "calendar")]
mod hours;
mod meaning;
mod mistakes;
mod reload;
mod scene;
mod schema;
