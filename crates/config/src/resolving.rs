//! The resolver of a file: one that code has registered, with its cache and times.

use std::sync::Arc;

use super::functions::MakeResolver;
use super::resolver_options::ResolverOptions;
use super::shape::Shape;
use super::vocabulary::{Vocabulary, setting};
use super::walk::At;
use tower_ratelimit::__internal::ResolverOf;
use tower_ratelimit::key::Head;

pub(super) static RESOLVER: Vocabulary<ResolverOptions> = Vocabulary(&[
    setting("function")
        .says("The resolver that code has registered.")
        .together(Shape::Text),
    setting("capacity")
        .says("Of how many keys the plan is kept.")
        .of(Shape::Integer, |it, at| {
            Some(ResolverOptions {
                capacity: Some(at.integer()?),
                ..it
            })
        }),
    setting("not_found_capacity")
        .says("Of how many keys it is kept that they have no plan.")
        .of(Shape::Integer, |it, at| {
            Some(ResolverOptions {
                not_found_capacity: Some(at.integer()?),
                ..it
            })
        }),
    setting("fresh_for")
        .says("How long a plan is fresh.")
        .time(|it, time| ResolverOptions {
            fresh_for: Some(time),
            ..it
        }),
    setting("stale_for")
        .says("How long a plan that is no longer fresh is served while it is refreshed.")
        .time(|it, time| ResolverOptions {
            stale_for: Some(time),
            ..it
        }),
    setting("not_found_for")
        .says("How long it is fresh that a key has no plan.")
        .time(|it, time| ResolverOptions {
            not_found_for: Some(time),
            ..it
        }),
    setting("retry_after")
        .says("How long no lookup of a key begins after one has failed.")
        .time(|it, time| ResolverOptions {
            retry_after: Some(time),
            ..it
        }),
    setting("timeout")
        .says("How long a request waits for a lookup.")
        .time(|it, time| ResolverOptions {
            timeout: Some(time),
            ..it
        }),
    setting("lookup_timeout")
        .says("How long a lookup may take.")
        .time(|it, time| ResolverOptions {
            lookup_timeout: Some(time),
            ..it
        }),
    setting("in_flight")
        .says("How many lookups may be in flight at the same time.")
        .of(Shape::Integer, |it, at| {
            Some(ResolverOptions {
                in_flight: Some(at.integer()?),
                ..it
            })
        }),
    setting("refuse_unresolved")
        .says("Refuses a request whose plan is not known in time, and never was.")
        .flag(|it| ResolverOptions {
            refuses: true,
            ..it
        }),
]);

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
    let mut options = ResolverOptions::default();
    RESOLVER.apply(&table, &mut options);
    Some(ReadResolver {
        looks: at.made(made?(&options))?,
        name: function?.text()?.to_owned(),
        options,
    })
}
