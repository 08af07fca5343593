//! Limits from a file: the settings, the mistakes and the schema.

#[cfg(feature = "adapt")]
mod adapt;
mod all_at_once;
mod endings;
mod folder;
mod following;
mod formats;
mod fuzzed;
#[cfg(feature = "calendar")]
mod hours;
mod in_line;
mod known_bugs;
#[cfg(feature = "tracing")]
#[path = "../support/log.rs"]
mod log;
#[cfg(feature = "tracing")]
mod logged;
mod meaning;
mod memory;
mod mistakes;
mod modes;
mod paths;
mod reach;
mod registered;
mod reload;
mod replay;
mod scene;
mod schema;
#[cfg(feature = "tracing")]
mod secrets;
mod shadow;
mod tables;
mod terms;
#[path = "../support/tokio_clock.rs"]
mod tokio_clock;
mod warnings;
mod wrong_files;
#[cfg(feature = "calendar")]
mod zone_data;
