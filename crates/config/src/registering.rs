//! Registers functions to which files refer by name, beside keys, costs and conditions.

use std::hash::Hash;
use std::sync::Arc;

use super::functions::MakeResolver;
use super::functions::{ClassOf, CostAtEnd, EndsSo};
use super::own_store::OwnStore;
use super::reading::ConfigBuilder;
use super::resolver_options::ResolverOptions;
use tower_ratelimit::__internal::ResolverOf;
use tower_ratelimit::decision::Decision;
use tower_ratelimit::factor::Class;
use tower_ratelimit::key::{Head, Key};
use tower_ratelimit::plan::Resolver;
use tower_ratelimit::policy::Ending;
use tower_ratelimit::response::RefusalBody;
use tower_ratelimit::store::Store;
use tower_ratelimit_adapt::Adapt;

impl ConfigBuilder {
    /// Registers a function that returns the real cost of a request, for `settle = { function = "name" }`, as
    /// for [`Settle::from_ending`](tower_ratelimit::policy::Settle::from_ending). `None` leaves it to the next source
    /// of the list, or to the estimate.
    ///
    /// ```
    /// use tower_ratelimit_config::{Config, Format};
    ///
    /// let config = Config::builder()
    ///     .settle("seconds", |ending| u32::try_from(ending.elapsed().as_secs()).ok())
    ///     .ending("slow", |ending| ending.elapsed().as_secs() > 10)
    ///     .parse(
    ///         r#"
    ///         [policies.work]
    ///         quota = "600/hour"
    ///         key = "api_key"
    ///         estimate = 10
    ///         settle = { function = "seconds" }
    ///
    ///         [policies.slow]
    ///         quota = "5/minute"
    ///         key = "api_key"
    ///         charge_when = { function = "slow" }
    ///         "#,
    ///         Format::Toml,
    ///     )?;
    /// # Ok::<(), tower_ratelimit_config::FileError>(())
    /// ```
    pub fn settle(
        self,
        name: impl Into<String>,
        cost: impl Fn(&Ending<'_>) -> Option<u32> + Send + Sync + 'static,
    ) -> Self {
        self.registering::<Arc<CostAtEnd>>(name, Arc::new(cost))
    }

    /// Registers a condition on the end of a response under a name, for `function` in `charge_when` and `refund_when`.
    pub fn ending(
        self,
        name: impl Into<String>,
        ends_so: impl Fn(&Ending<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.registering::<Arc<EndsSo>>(name, Arc::new(ends_so))
    }

    /// Registers a function that returns how important a request is, for `class = { function = "name" }`.
    pub fn class(
        self,
        name: impl Into<String>,
        class: impl Fn(&Head<'_>) -> Class + Send + Sync + 'static,
    ) -> Self {
        self.registering::<Arc<ClassOf>>(name, Arc::new(class))
    }

    /// Registers the body of a refusal under a name, for `refusal_body = { function = "name" }`.
    pub fn refusal_body(self, name: impl Into<String>, body: RefusalBody) -> Self {
        self.registering(name, body)
    }

    /// Sets the store, in place of a table `store` in the file: one over a connection of the program's own, one that is
    /// [snapshotted](tower_ratelimit::MemoryStore::snapshot), or one that the program implements.
    ///
    /// ```
    /// use tower_ratelimit::MemoryStore;
    /// use tower_ratelimit_config::{Config, Format};
    ///
    /// let store = MemoryStore::new();
    /// let limits = "[policies.minute]\nquota = \"10/minute\"\nkey = \"global\"";
    /// let config = Config::builder().store(store.clone()).parse(limits, Format::Toml)?;
    /// let layer = config.layer()?;
    /// assert_eq!(store.usage().len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn store(self, store: impl Store + Clone + Send + Sync + 'static) -> Self {
        self.with(|functions| functions.store = Some(OwnStore::new(store)))
    }

    /// Sets what policies with `adapt = true` follow, in place of a table `adapt` in the file, with signals
    /// and controllers of the program's own. The program spawns its task, or samples it.
    pub fn adapt(self, adapt: &Adapt) -> Self {
        self.with(|functions| functions.own_adapt = Some(adapt.clone()))
    }

    /// Sets a hook for each decision of the layers of a file, as
    /// [`RateLimitLayerBuilder::on_decision`](tower_ratelimit::middleware::RateLimitLayerBuilder::on_decision) does.
    /// Files do not refer to it.
    pub fn on_decision(
        self,
        hook: impl Fn(&Head<'_>, Key, &Decision) + Send + Sync + 'static,
    ) -> Self {
        self.with(|functions| functions.on_decision = Some(Arc::new(hook)))
    }
}

impl ConfigBuilder {
    /// Registers a resolver under a name, for `resolver = { function = "name" }`. `customer` reads what the resolver looks
    /// up, as for [`RateLimitLayerBuilder::resolver`](tower_ratelimit::middleware::RateLimitLayerBuilder::resolver).
    ///
    /// The file may set the options of the [builder](tower_ratelimit::plan::Resolver::builder). A file that sets any
    /// has a cache of its own, which it keeps through reloads that do not change them. A key that the resolver
    /// [invalidates](tower_ratelimit::plan::Resolver::invalidate) is invalid there too.
    ///
    /// ```
    /// use std::convert::Infallible;
    ///
    /// use tower_ratelimit_config::{Config, Format};
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
        let make = move |options: &ResolverOptions| {
            let resolver = options.of(&resolver)?;
            Ok(ResolverOf::<Head<'_>>::new(resolver, customer.clone()))
        };
        self.registering::<Arc<MakeResolver>>(name, Arc::new(make))
    }
}
