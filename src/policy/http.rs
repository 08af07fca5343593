//! The HTTP part of a policy: its key, its cost and its condition.
//!
//! It is separate from the rule, so that a [`Limiter`](crate::Limiter), whose caller passes key and cost, has
//! no type of HTTP.

use std::fmt;
use std::sync::Arc;

use http::StatusCode;
use tower_ratelimit_core::__internal::{Demand, Keyless, LimitsByOperation, NoDemand, Scope};

use super::fair::TenantKey;
use super::logged::{Logged, OrLogged};
use super::settlement::Settlement;
use super::tree::LevelKey;
use super::{Fair, OnMissingKey, Policy, Rule};
use crate::algorithm::Algorithm;
use crate::error::ConfigError;
use crate::factor::Class;
use crate::key::{Extract, Head, Key, Missing};

/// How a policy reads an HTTP request: its key, its cost, and whether it applies.
#[derive(Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own: any two can hold together"
)]
pub struct Http {
    key: Arc<dyn Extract>,
    cost: Option<Arc<Cost>>,
    when: Option<Arc<When>>,
    operation: Option<OperationOf>,
    limit: Option<Arc<LimitOf>>,
    on_missing_key: Option<OnMissingKey>,
    /// Its key, if its limit is divided among tenants.
    tenants: Option<TenantKey>,
    /// Its key, if it is a level of a tree, which by default refuses what comes without a key.
    level: Option<LevelKey>,
    class: Option<Arc<ClassOf>>,
    settlement: Option<Arc<Settlement>>,
    is_low: Option<Arc<When>>,
    is_soft: bool,
    is_limited: bool,
    is_reserved: bool,
    #[cfg(feature = "usage")]
    is_queue: bool,
    /// Whether more than the key is read of a request.
    has_closures: bool,
}

/// How the operation of a request is found.
#[derive(Clone)]
enum OperationOf {
    Named(Arc<dyn Extract>),
    /// By a pointer, so that a program which does not look at paths does not contain the code.
    Path(fn(&Head<'_>, &LimitsByOperation) -> Option<Key>),
}

type Cost = dyn Fn(&Head<'_>) -> u32 + Send + Sync;
type LimitOf = dyn Fn(&Head<'_>) -> Option<Algorithm> + Send + Sync;
type When = dyn Fn(&Head<'_>) -> bool + Send + Sync;
type ClassOf = dyn Fn(&Head<'_>) -> Class + Send + Sync;

impl Policy {
    /// Sets the key: an extractor of [`key`](crate::key), or a closure over the [`Head`] of the
    /// request, whose argument has to be annotated (see [`Extract`]).
    pub fn key(self, key: impl Extract) -> Policy<Http> {
        let reads = Http {
            key: Arc::new(key),
            cost: None,
            when: None,
            operation: None,
            limit: None,
            on_missing_key: None,
            tenants: None,
            level: None,
            class: None,
            settlement: None,
            is_low: None,
            is_soft: false,
            is_limited: true,
            is_reserved: false,
            #[cfg(feature = "usage")]
            is_queue: false,
            has_closures: false,
        };
        Policy {
            rule: self.rule,
            reads,
        }
    }
}

impl Policy<Http> {
    /// Sets how many units a request takes; the default is 1.
    ///
    /// A request that costs more than the limit is always denied, and the log says so once
    /// ([`TRL016`](crate::diagnostics)). A request that costs 0 is
    /// allowed and charges nothing, unless the limit is 0.
    #[inline]
    pub fn cost(mut self, cost: impl Fn(&Head<'_>) -> u32 + Send + Sync + 'static) -> Self {
        self.reads.cost = Some(Arc::new(cost));
        self
    }

    /// Sets the condition under which the policy applies; the default is always.
    ///
    /// A request to which no policy applies goes on as if there were no layer.
    pub fn when(mut self, when: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.reads.when = Some(Arc::new(when));
        self
    }

    /// Sets how the [operation](Policy::operations) of a request is found: by the text of an extractor, such
    /// as [`key::method`](crate::key::method()), `key::matched_path()` or `key::grpc_method()`, or of a
    /// closure.
    ///
    /// A text that names no operation, and a request without a text, count as one of the other operations.
    ///
    /// ```
    /// use tower_ratelimit::key::{self, Head};
    /// use tower_ratelimit::plan::Operations;
    /// use tower_ratelimit::{FixedWindow, Policy};
    ///
    /// let operations = Operations::new()
    ///     .limit("read", FixedWindow::per_minute(100))
    ///     .limit("write", FixedWindow::per_minute(10));
    /// let policy = Policy::new("api", FixedWindow::per_minute(50))
    ///     .key(key::api_key())
    ///     .operations(operations)
    ///     .operation(|head: &Head<'_>| if head.method().is_safe() { "read" } else { "write" });
    /// ```
    pub fn operation(mut self, operation: impl Extract) -> Self {
        self.reads.operation = Some(OperationOf::Named(Arc::new(operation)));
        self
    }

    /// Finds the [operation](Policy::operations) of a request by its path: the names of operations are
    /// prefixes of paths, by whole segments. `/bulk` is the operation of `/bulk` and of `/bulk/7`, and not of
    /// `/bulky`. The longest prefix counts. If the path has several [readings](Head::any_reading), such as `/%62ulk` and
    /// `/bulk`, the request is of that operation among theirs whose limit is the lowest.
    pub fn operation_by_path(mut self) -> Self {
        let of_path = |head: &Head<'_>, limits: &LimitsByOperation| {
            limits.of_path(head.path(), |look| head.any_reading(look))
        };
        self.reads.operation = Some(OperationOf::Path(of_path));
        self
    }

    /// Sets the limit of a request by a closure over its head, for example from the extension that
    /// authentication adds. `None` stands for the limit that the request has without the closure. The closure
    /// comes before limits by key and the limit of a plan.
    ///
    /// The limit must have the kind and the period of the policy. Otherwise the request has the limit that it
    /// has without the closure, and the log says so once ([`TRL020`](crate::diagnostics)).
    /// [`Algorithm::Unlimited`] does not count the request.
    ///
    /// ```
    /// use tower_ratelimit::{FixedWindow, Policy, key};
    ///
    /// #[derive(Clone)]
    /// struct Customer {
    ///     id: u64,
    ///     per_minute: u32,
    /// }
    ///
    /// let policy = Policy::new("minute", FixedWindow::per_minute(10))
    ///     .key(key::extension::<Customer>().map(|customer: &Customer| customer.id))
    ///     .limit_by(|head| {
    ///         let customer = head.extension::<Customer>()?;
    ///         Some(FixedWindow::per_minute(customer.per_minute))
    ///     });
    /// ```
    pub fn limit_by<A: Into<Algorithm>>(
        mut self,
        limit: impl Fn(&Head<'_>) -> Option<A> + Send + Sync + 'static,
    ) -> Self {
        self.rule = self.rule.limited_by_layer(true);
        self.reads.limit = Some(Arc::new(move |head| limit(head).map(Into::into)));
        self
    }

    /// Sets how important a request is; the default is [`Class::Critical`]. Without a
    /// [factor](Policy::factor), it changes nothing.
    ///
    /// Requests of all classes share the quota of their key. While the factor is below 1, less important
    /// requests are charged more, so a client that sends them uses up its quota sooner. Requests of one key compete: under
    /// a key that all clients share, less important requests also use what more important ones need.
    ///
    /// ```
    /// use tower_ratelimit::factor::{Class, FactorCell};
    /// use tower_ratelimit::{Policy, TokenBucket, key};
    ///
    /// let factor = FactorCell::new();
    /// let policy = Policy::new("api", TokenBucket::per_minute(100))
    ///     .factor(&factor)
    ///     .key(key::client_ip())
    ///     .class(|head| match head.path() {
    ///         path if path.starts_with("/checkout") => Class::CriticalPlus,
    ///         path if path.starts_with("/suggestions") => Class::Sheddable,
    ///         _ => Class::Critical,
    ///     });
    /// ```
    pub fn class(mut self, class: impl Fn(&Head<'_>) -> Class + Send + Sync + 'static) -> Self {
        self.reads.class = Some(Arc::new(class));
        self
    }

    /// Sets which requests are of low priority; the default is none. They leave the policy's
    /// [reserve](Policy::reserve) to other requests. Without a reserve, it changes nothing.
    ///
    /// ```
    /// use tower_ratelimit::{FixedWindow, Policy, key};
    ///
    /// let policy = Policy::new("api", FixedWindow::per_minute(100))
    ///     .reserve(20)
    ///     .key(key::api_key())
    ///     .low_priority(|head| head.path().starts_with("/export"));
    /// ```
    pub fn low_priority(
        mut self,
        is_low: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.reads.is_low = Some(Arc::new(is_low));
        self
    }

    /// Sets what happens to requests without a key, whether the client or the server has left it out.
    ///
    /// ```
    /// use http::StatusCode;
    /// use tower_ratelimit::policy::OnMissingKey;
    /// use tower_ratelimit::{Policy, TokenBucket, key};
    ///
    /// let per_key = Policy::new("key", TokenBucket::per_second(50))
    ///     .key(key::api_key())
    ///     .on_missing_key(OnMissingKey::Refuse(StatusCode::UNAUTHORIZED));
    /// ```
    pub fn on_missing_key(mut self, on_missing_key: OnMissingKey) -> Self {
        self.reads.on_missing_key = Some(on_missing_key);
        self
    }

    /// Rejects a status that cannot answer a request, and a wait that cannot happen.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.check_operations()?;
        self.check_settling()?;
        self.reads
            .on_missing_key
            .map_or(Ok(()), OnMissingKey::check)
    }

    fn check_operations(&self) -> Result<(), ConfigError> {
        let remedy = match (self.rule.has_operations(), &self.reads.operation) {
            (true, None) => "say which operation a request is, `.operation(key::method())`",
            (false, Some(_)) => "give it limits by operation, `.operations(Operations::new()…)`",
            _ => return Ok(()),
        };
        Err(ConfigError::quoting("operations", self.rule.name(), remedy))
    }

    /// Returns its key as the part of a level, and whether requests without it have one in common.
    pub(super) fn part(&self) -> (Arc<dyn Extract>, bool) {
        let is_shared = self.reads.on_missing_key == Some(OnMissingKey::Shared);
        (Arc::clone(&self.reads.key), is_shared)
    }

    /// Makes it a level of a tree, with this key under those of other levels.
    pub(super) fn put_below(&mut self, key: LevelKey) {
        self.reads.key = Arc::new(key.clone());
        self.reads.level = Some(key);
    }

    /// Divides the limit of a key among the tenants that this extractor finds.
    pub(super) fn divide(mut self, tenant: Arc<dyn Extract>, fair: Fair) -> Self {
        // Of two tenants, the last one counts.
        let shared = match self.reads.tenants.take() {
            Some(tenants) => tenants.shared,
            None => Arc::clone(&self.reads.key),
        };
        let tenants = TenantKey { shared, tenant };
        self.reads.key = Arc::new(tenants.clone());
        self.reads.tenants = Some(tenants);
        self.rule = self.rule.fair(fair);
        self
    }

    /// Returns whether its limit is divided among tenants.
    pub(super) fn is_divided(&self) -> bool {
        self.reads.tenants.is_some()
    }

    /// Describes what a client chooses and so is its tenant, unless the policy says what becomes of tenants that nothing has verified.
    pub(crate) fn invented_tenants(&self) -> Option<String> {
        let chosen = self.reads.tenants.as_ref()?.tenant.chosen_by_client();
        chosen.filter(|_| !self.rule.speaks_of_unverified())
    }

    /// Returns how its key is taken from a request.
    pub(crate) fn extractor(&mut self) -> &mut Arc<dyn Extract> {
        &mut self.reads.key
    }

    /// Prepares the policy for requests of a log: see [`Logged`].
    pub(crate) fn for_a_log(mut self) -> Self {
        let Http {
            key,
            tenants,
            level,
            cost,
            ..
        } = &mut self.reads;
        // A line names the client, and neither what clients share nor what is above them.
        *key = match (tenants, level) {
            (Some(tenants), _) => {
                *tenants = tenants.or_logged();
                Arc::new(tenants.clone())
            }
            (None, Some(level)) => Arc::new(level.or_logged()),
            (None, None) => OrLogged::of(key),
        };
        let own = cost.take();
        *cost = Some(Arc::new(move |head: &Head<'_>| {
            let logged = head.extension::<Logged>().and_then(|logged| logged.cost);
            logged.unwrap_or_else(|| own.as_ref().map_or(1, |own| own(head)))
        }));
        self
    }

    /// Returns whether the policy counts requests of every kind.
    pub(crate) fn always_counts(&self) -> bool {
        self.reads.when.is_none() && *self.rule.algorithm() != Algorithm::Unlimited
    }

    /// Describes the key, or the root of it, if it is known what it reads. `is_level` says whether it is one of several levels of a tree.
    pub(crate) fn identity(&self, are_roots: bool, is_level: bool) -> Option<String> {
        let key = &self.reads.key;
        let root = key.root()?;
        let known = if are_roots || self.reads.level.is_none() {
            root
        } else {
            format!("{root}, {}", key.identity()?)
        };
        // An operation is a part of the key. That of a level stays with the root.
        let is_by_operation = self.rule.has_operations() && !(are_roots && is_level);
        Some(if is_by_operation {
            format!("{known} by operation")
        } else {
            known
        })
    }

    /// Describes this policy for the comparison with others. Each policy may apply to some requests only.
    pub(crate) fn scope(&self) -> Scope<'_> {
        let (reads, scope) = (&self.reads, self.rule.scope());
        let counts_alike = scope.counts.is_some() && reads.cost.is_none() && !self.settles();
        Scope {
            counts: reads.key.identity().filter(|_| counts_alike),
            is_conditional: reads.when.is_some()
                || reads.on_missing_key == Some(OnMissingKey::Skip),
            refuses: match reads.on_missing_key {
                Some(OnMissingKey::Shared | OnMissingKey::Skip) => Keyless::None,
                None if reads.level.is_none() => Keyless::ByServer,
                None | Some(OnMissingKey::Refuse(_)) => Keyless::All,
            },
            ..scope
        }
    }

    /// Returns the policy for a limiter, whose caller passes the key.
    // For `tower-ratelimit-config`.
    #[doc(hidden)]
    pub fn unkeyed(&self) -> Policy {
        Policy {
            rule: self.rule.clone().limited_by_layer(false),
            reads: super::Unkeyed,
        }
    }

    /// Splits the policy into its rule and how it reads a request.
    pub(crate) fn split(self) -> (Rule, Http) {
        let settles = self.settles();
        let rule = self.rule.clone().settled(settles);
        let reads = Http {
            is_soft: rule.is_soft(),
            is_limited: *rule.algorithm() != Algorithm::Unlimited,
            is_reserved: settles || matches!(rule.algorithm(), Algorithm::Concurrency(_)),
            #[cfg(feature = "usage")]
            is_queue: rule.shapes(),
            has_closures: self.reads.has_closures(),
            ..self.reads
        };
        (rule, reads)
    }
}

impl Http {
    fn has_closures(&self) -> bool {
        let are_any = self.when.is_some() || self.cost.is_some() || self.settlement.is_some();
        are_any || self.class.is_some() || self.is_low.is_some()
    }

    fn applies(&self, head: &Head<'_>) -> bool {
        self.when.as_ref().is_none_or(|when| when(head))
    }

    /// Returns whether the policy can affect a request: a policy without a limit can if it refuses requests
    /// without a key.
    pub(crate) fn can_affect(&self) -> bool {
        let refuses = matches!(self.on_missing_key, Some(OnMissingKey::Refuse(_)));
        self.is_limited || refuses || self.is_level() && self.on_missing_key.is_none()
    }

    /// Returns whether the policy holds requests until their turn.
    #[cfg(feature = "usage")]
    pub(crate) fn is_queue(&self) -> bool {
        self.is_queue
    }

    /// Returns whether the policy holds requests to their end.
    pub(crate) fn holds_requests(&self) -> bool {
        self.is_limited && self.is_reserved
    }

    /// Returns whether its key is that of a level of a tree.
    pub(crate) fn is_level(&self) -> bool {
        self.level.is_some()
    }

    /// Returns the key in tables, before it is hashed, or `None` if the request has no key.
    pub(crate) fn plain_key(&self, head: &Head<'_>) -> Option<Key> {
        self.key.plain(head).ok()
    }

    /// Returns the name of the operation of a request, as a key.
    pub(crate) fn operation(&self, head: &Head<'_>, limits: &LimitsByOperation) -> Option<Key> {
        match self.operation.as_ref()? {
            OperationOf::Named(extract) => extract.extract(head).ok(),
            OperationOf::Path(of_path) => of_path(head, limits),
        }
    }

    /// Returns the limit of the closure over the head.
    pub(crate) fn limit(&self, head: &Head<'_>) -> Option<Algorithm> {
        self.limit.as_ref()?(head)
    }

    /// Returns what a request asks of the policy. `key` replaces the key of the request, and `note` sees a missing one.
    #[inline]
    pub(crate) fn demand(
        &self,
        head: &Head<'_>,
        key: Option<Key>,
        note: impl FnOnce(&Missing),
    ) -> Result<Demand, NoDemand<(StatusCode, Missing)>> {
        if self.has_closures && !self.applies(head) {
            return Err(NoDemand::DoesNotApply);
        }
        let key = match key {
            Some(key) => key,
            None => match self.key.extract(head) {
                Ok(key) => key,
                Err(missing) => self.key_of_none(head, missing, note)?,
            },
        };
        if !self.is_limited {
            return Err(NoDemand::Unlimited);
        }
        let mut demand = Demand {
            is_soft: self.is_soft,
            is_reserved: self.is_reserved,
            ..Demand::of(key, 1)
        };
        if self.has_closures {
            self.read_closures(head, &mut demand);
        }
        Ok(demand)
    }

    // A function of its own, since most policies read the key alone.
    #[inline(never)]
    fn read_closures(&self, head: &Head<'_>, demand: &mut Demand) {
        (demand.cost, demand.is_estimate) = self.cost(head);
        if let Some(class) = &self.class {
            demand.class = class(head);
        }
        demand.is_low_priority = self.is_low.as_ref().is_some_and(|is_low| is_low(head));
    }

    /// Returns the key of a request without a key, if it is counted together with all others without one.
    #[cold]
    fn key_of_none(
        &self,
        head: &Head<'_>,
        missing: Missing,
        note: impl FnOnce(&Missing),
    ) -> Result<Key, NoDemand<(StatusCode, Missing)>> {
        note(&missing);
        match self
            .on_missing_key
            .unwrap_or_else(|| OnMissingKey::by_default(&missing, self.is_level()))
        {
            OnMissingKey::Shared => Ok(self.key_of_all_without(head)),
            OnMissingKey::Skip => Err(NoDemand::MissingKey),
            OnMissingKey::Refuse(status) => Err(NoDemand::Refused((status, missing))),
        }
    }

    /// Returns the key of all requests without one: of a limit that is divided, that of one tenant.
    fn key_of_all_without(&self, head: &Head<'_>) -> Key {
        let tenants = self.tenants.as_ref();
        match tenants.map(|tenants| tenants.shared.extract(head)) {
            Some(Ok(shared)) => Key::branch(shared, &[Key::MISSING]),
            _ => Key::MISSING,
        }
    }

    /// Returns the cost of a request, and whether that is a default estimate, which is cut to the limit.
    fn cost(&self, head: &Head<'_>) -> (u32, bool) {
        if let Some(settlement) = &self.settlement
            && let Some(estimate) = settlement.estimate()
        {
            return estimate.of(head);
        }
        (self.cost.as_ref().map_or(1, |cost| cost(head)), false)
    }

    /// Returns how requests are settled at their end.
    pub(crate) fn settlement(&self) -> Option<&Arc<Settlement>> {
        self.settlement.as_ref()
    }

    pub(super) fn settlement_mut(&mut self) -> &mut Settlement {
        Arc::make_mut(self.settlement.get_or_insert_default())
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http")
            .field("cost", &self.cost.as_ref().map(|_| "closure"))
            .field("when", &self.when.as_ref().map(|_| "closure"))
            .finish_non_exhaustive()
    }
}
