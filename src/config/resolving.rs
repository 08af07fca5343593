//! The resolver of a file: one that code has registered, with its cache and times.

use std::sync::Arc;
use std::time::Duration;

use super::fields::RESOLVER;
use super::functions::MakeResolver;
use super::resolver_options::ResolverOptions;
use super::walk::{At, Table};
use crate::key::Head;
use crate::plan::ResolverOf;

/// The resolver of a file.
#[derive(Clone, Debug)]
pub(super) struct ReadResolver {
    name: String,
    options: ResolverOptions,
    pub(super) looks: ResolverOf<Head<'static>>,
}

impl ReadResolver {
    /// Returns whether the other one has the same answers in its cache.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.name == other.name && self.options == other.options
    }
}

/// Reads the resolver.
pub(super) fn resolver(at: &At<'_>) -> Option<ReadResolver> {
    let table = at.table(&RESOLVER)?;
    let function = table.need("function", "name the resolver that code has registered");
    let made = function.and_then(At::registered::<Arc<MakeResolver>>);
    let options = ResolverOptions {
        capacity: number(&table, "capacity"),
        not_found_capacity: number(&table, "not_found_capacity"),
        fresh_for: time(&table, "fresh_for"),
        stale_for: time(&table, "stale_for"),
        not_found_for: time(&table, "not_found_for"),
        retry_after: time(&table, "retry_after"),
        timeout: time(&table, "timeout"),
        lookup_timeout: time(&table, "lookup_timeout"),
        in_flight: number(&table, "in_flight"),
        refuses: table.get("refuse_unresolved").and_then(At::flag) == Some(true),
    };
    Some(ReadResolver {
        looks: at.made(made?(&options))?,
        name: function?.text()?.to_owned(),
        options,
    })
}

fn number(table: &Table<'_>, field: &str) -> Option<usize> {
    table.get(field).and_then(At::whole)
}

fn time(table: &Table<'_>, field: &str) -> Option<Duration> {
    table.get(field).and_then(At::duration)
}
