//! Limits from a file: what it means, how its mistakes are told, and its schema.

#[cfg(feature = "adapt")]
mod adapt;
mod endings;
mod folder;
mod fuzzed;
#[cfg(feature = "calendar")]
mod hours;
mod meaning;
mod memory;
mod mistakes;
mod modes;
mod paths;
mod registered;
mod reload;
mod replay;
mod scene;
mod schema;
mod shadow;
mod tables;
mod terms;
#[path = "../support/tokio_clock.rs"]
mod tokio_clock;
#[cfg(feature = "calendar")]
mod zone_data;
