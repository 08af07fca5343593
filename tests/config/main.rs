//! Limits from a file: the settings, the mistakes and the schema.

#[path = "../support/mod.rs"]
mod support;

mod adapt;
mod all_at_once;
mod bodies;
mod descriptors;
mod endings;
#[cfg(all(
    feature = "axum",
    feature = "ops",
    feature = "redis",
    feature = "serde",
    feature = "tracing"
))]
mod eyes;
mod fair;
mod first_of;
mod folder;
mod following;
mod formats;
mod fuzzed;
mod hours;
mod in_line;
mod known_bugs;
mod logged;
mod meaning;
mod memory;
mod mistakes;
mod modes;
mod money;
mod paths;
mod reach;
mod registered;
mod reload;
mod replay;
mod scene;
mod schema;
mod secrets;
mod shadow;
mod tables;
mod terms;
mod trees;
mod warnings;
mod wrong_files;
mod zone_data;
