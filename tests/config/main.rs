//! Limits from a file: what it means, how its mistakes are told, and its schema.

#[cfg(feature = "adapt")]
mod adapt;
mod endings;
mod fuzzed;
#[cfg(feature = "calendar")]
mod hours;
mod meaning;
mod mistakes;
mod modes;
mod reload;
mod scene;
mod schema;
mod terms;
