use std::hash::Hash;

use super::reading::ConfigBuilder;
use crate::key::Head;
use crate::middleware::ResolverOf;
use crate::plan::Resolver;

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
