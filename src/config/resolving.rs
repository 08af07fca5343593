//! The resolver of a file: which of those that code has registered, and its cache and times.

use std::hash::Hash;
use std::time::Duration;

use super::fields::RESOLVER;
use super::functions::Functions;
use super::reading::ConfigBuilder;
use super::resolver_options::ResolverOptions;
use super::walk::{At, Table};
use crate::key::Head;
use crate::middleware::ResolverOf;
use crate::plan::Resolver;

/// The resolver of a file.
#[derive(Clone, Debug)]
pub(super) struct ReadResolver {
    name: String,
    options: ResolverOptions,
    pub(super) looks: ResolverOf,
}

impl ConfigBuilder {
    /// Registers a resolver under a name, for `resolver = { function = "name" }`. `customer` reads what the resolver looks
    /// up, as for [`RateLimitLayerBuilder::resolver`](crate::middleware::RateLimitLayerBuilder::resolver).
    ///
    /// The file may set the options of the [builder](crate::plan::Resolver::builder). A file that sets one has a cache of its
    /// own, which it keeps through reloads that do not change them. What the resolver
    /// [invalidates](crate::plan::Resolver::invalidate) is invalid there, too.
    ///
    /// ```
    /// use std::convert::Infallible;
    ///
    /// use tower_ratelimit::config::{Config, Format};
    /// use tower_ratelimit::key::Head;
    /// use tower_ratelimit::plan::{Resolved, Resolver};
    ///
    /// // In place of a database.
    /// let customers = Resolver::new(|id: String| async move {
    ///     Ok::<_, Infallible>(if id == "ann" { Resolved::plan("pro") } else { Resolved::NotFound })
    /// });
    /// let text = r#"
    ///     default_plan = "free"
    ///     resolver = { function = "customers", fresh_for = "5min", timeout = "20ms" }
    ///
    ///     [policies.minute]
    ///     quota = "10/minute"
    ///     key = { header = "x-id" }
    ///
    ///     [plans.free]
    ///     minute = 10
    ///
    ///     [plans.pro]
    ///     minute = 100
    /// "#;
    /// let customer = |head: &Head<'_>| head.header("x-id").map(str::to_owned);
    /// let config = Config::builder()
    ///     .resolver("customers", customers.clone(), customer)
    ///     .parse(text, Format::Toml)?;
    /// let layer = config.layer()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resolver<K>(
        self,
        name: impl Into<String>,
        resolver: Resolver<K>,
        customer: impl Fn(&Head<'_>) -> Option<K> + Clone + Send + Sync + 'static,
    ) -> Self
    where
        K: Clone + Eq + Hash + Send + Sync + 'static,
    {
        self.registering(name.into(), move |options| {
            let resolver = options.of(&resolver)?;
            let customer = customer.clone();
            let look = move |head: &Head<'_>| Some(resolver.look(&customer(head)?));
            Ok(ResolverOf::new(look))
        })
    }
}

impl ReadResolver {
    /// Whether the other one has the same answers in its cache.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.name == other.name && self.options == other.options
    }
}

/// Reads the resolver.
pub(super) fn resolver(at: &At<'_>) -> Option<ReadResolver> {
    let table = at.table(&RESOLVER)?;
    let function = table.need("function", "name the resolver that code has registered");
    let made = function.and_then(|at| at.registered(Functions::resolver));
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
