//! Limits from a file: what it means, how its mistakes are told, and its schema.

mod endings;
mod fuzzed;
mod meaning;
mod mistakes;
mod reload;
mod scene;
mod schema;
mod terms;
