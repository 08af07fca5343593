//! Policies: an algorithm with a name, a key, a cost and a condition.
//!
//! A policy is declared with a builder and never changes. The rule itself is the same for every kind of
//! service; the type parameter says how a policy reads a request, so that a `Limiter`, whose caller passes
//! key and cost, needs no HTTP.

#[cfg(feature = "http")]
mod http;
#[cfg(feature = "http")]
mod keyed;
#[cfg(feature = "reload")]
pub(crate) mod logged;
#[cfg(feature = "http")]
mod no_key;
mod patience;
#[cfg(feature = "http")]
mod settlement;

mod concurrency;
mod demand;
mod heaviest;
mod leasing;
mod mode;
mod names;
mod on_store_failure;
mod penalty;
mod scope;
mod shown;
mod stored;
mod terms;
mod unsettled;

use std::sync::Arc;

use crate::algorithm::Algorithm;
use crate::error::ConfigError;
use crate::factor::FactorCell;
use crate::key::Key;
use crate::plan::{KeyLimits, LimitBy, Limited, Operations};

pub(crate) use self::demand::{Demand, NoDemand};
pub use self::heaviest::HeaviestKeys;
pub use self::mode::{Mode, Modes};
pub use self::on_store_failure::OnStoreFailure;
pub use self::penalty::Penalty;
pub use self::unsettled::Unsettled;

#[cfg(feature = "redis")]
pub(crate) use self::leasing::LEAST_LEASED;
#[cfg(feature = "reload")]
pub(crate) use self::logged::Logged;
pub(crate) use self::mode::DeclaredModes;
pub(crate) use self::names::check_names;

pub(crate) use self::penalty::{NamedPenalty, Offences};
#[cfg(any(feature = "http", test))]
pub(crate) use self::scope::Keyless;
pub(crate) use self::scope::Scope;
pub(crate) use self::terms::Terms;

#[cfg(feature = "http")]
pub use self::http::Http;
#[cfg(feature = "http")]
pub use self::keyed::Keyed;
#[cfg(feature = "http")]
pub use self::no_key::NoKey;
#[cfg(feature = "http")]
pub(crate) use self::no_key::check_status;
pub(crate) use self::patience::Patience;
#[cfg(feature = "http")]
pub use self::settlement::{Cost, Ending, Settle, Spend};
#[cfg(feature = "http")]
pub(crate) use self::settlement::{Ended, ReportedCost, Settlement, Told};

/// A named rule.
///
/// A policy starts with a name and an algorithm. The caller of a [`Limiter`](crate::Limiter) passes the key
/// and the cost. For a [`RateLimitLayer`](crate::RateLimitLayer), [`key`](Policy::key) sets how the key is
/// taken from a request, and returns a `Policy<`[`Http`]`>`. Call [`key`](Policy::key) first:
/// [`cost`](Policy::cost) and [`when`](Policy::when) read the same kind of request.
///
/// # Defaults
///
/// - cost: 1
/// - when: always
/// - not soft: a request over the limit is denied
/// - no penalty: a key that is refused often is not blocked
/// - units are leased, if the store leases any
/// - a request may cost as much as the limit, and all requests may use all of it
/// - mode: [`Mode::Enforce`]
/// - if its store fails: the same policy in this process ([`OnStoreFailure::Local`])
/// - no waiting: a denied request is refused at once (see `wait_up_to`)
/// - a request that ends without an answer costs its estimate ([`Unsettled::Estimate`])
/// - without a key: one quota for all requests whose client left it out; `500` if the server does
///   not provide it (see [`NoKey`])
///
/// ```
/// use tower_ratelimit::key::{self, Head};
/// use tower_ratelimit::{FixedWindow, Policy};
///
/// let uploads = Policy::new("uploads", FixedWindow::per_day(1_000))
///     .key(key::client_ip())
///     .when(|head| head.method() == "POST")
///     .cost(|head| if head.path().starts_with("/bulk") { 10 } else { 1 });
/// ```
#[derive(Clone, Debug)]
#[must_use = "a policy limits nothing until a limiter or a layer has it"]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is said by a method of its own"
)]
pub struct Policy<R = Unkeyed> {
    name: String,
    algorithm: Algorithm,
    key_limits: Option<Arc<KeyLimits>>,
    operations: Option<Arc<Operations>>,
    limit_by: Option<LimitBy>,
    has_several_limits: bool,
    /// Whether requests of one key may have different limits, without a change of the limits.
    limits_differ: bool,
    /// Whether requests are settled at their end.
    is_settled: bool,
    is_for_all_plans: bool,
    is_soft: bool,
    mode: Mode,
    /// The name of its state, if that differs.
    was: Option<String>,
    factor: Option<FactorCell>,
    heaviest: Option<HeaviestKeys>,
    terms: Terms,
    penalty: Option<Penalty>,
    is_unleased: bool,
    /// Whether responses do not tell of the policy.
    is_unannounced: bool,
    /// The name and the algorithm in units for clients, if the [ledger](Policy::into_stored) has the policy
    /// under another name.
    shown: Option<(String, Algorithm)>,
    on_store_failure: OnStoreFailure,
    unsettled: Unsettled,
    patience: Patience,
    #[cfg_attr(
        not(feature = "http"),
        expect(dead_code, reason = "without HTTP there is nothing to read")
    )]
    reads: R,
}

/// Marks a policy that reads nothing from a request, because the caller passes the key.
///
/// Where a `Policy<Http>` is expected, add a key: `.key(key::client_ip())`.
#[derive(Clone, Copy, Debug)]
pub struct Unkeyed;

impl Policy {
    /// Makes a policy with this name, which appears in decisions and in responses.
    ///
    /// The name is checked when a limiter or a layer is built: it has 1 to 64 printable ASCII
    /// characters, and differs from the names of the other policies, ignoring case.
    pub fn new(name: impl Into<String>, algorithm: impl Into<Algorithm>) -> Self {
        Self {
            name: name.into(),
            algorithm: algorithm.into(),
            key_limits: None,
            operations: None,
            limit_by: None,
            has_several_limits: false,
            limits_differ: false,
            is_settled: false,
            is_for_all_plans: false,
            is_soft: false,
            mode: Mode::Enforce,
            was: None,
            factor: None,
            heaviest: None,
            terms: Terms::default(),
            penalty: None,
            is_unleased: false,
            is_unannounced: false,
            shown: None,
            on_store_failure: OnStoreFailure::default(),
            unsettled: Unsettled::default(),
            patience: Patience::default(),
            reads: Unkeyed,
        }
    }

    /// Sets the limit of a request by a closure over its key, as the client has sent it. `None` stands for
    /// the limit that the request has without the closure. The closure comes before limits by key and the
    /// limit of a plan.
    ///
    /// The limit must have the kind and the period of the policy. Otherwise the request has the limit that it
    /// has without the closure, and the log says so once ([`TRL020`](crate::diagnostics)).
    /// [`Algorithm::Unlimited`] does not count the request.
    ///
    /// A policy of a layer may have a closure over the head of the request instead: call it after
    /// [`key`](Policy::key).
    ///
    /// ```
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let policy = Policy::new("minute", FixedWindow::per_minute(10))
    ///     .limit_by(|key| key.starts_with("partner-").then(|| FixedWindow::per_minute(500)));
    /// let limiter = Limiter::builder().policy(policy).build_local()?;
    ///
    /// let limit = |key: &str| limiter.check(key, 1).now().binding().unwrap().1.limit();
    /// assert_eq!([limit("partner-7"), limit("ann")], [500, 10]);
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn limit_by<A: Into<Algorithm>>(
        mut self,
        limit: impl Fn(&Key) -> Option<A> + Send + Sync + 'static,
    ) -> Self {
        self.limit_by = Some(LimitBy::Key(Arc::new(move |key| {
            limit(key).map(Into::into)
        })));
        self
    }
}

impl<R> Policy<R> {
    /// Lets requests over the limit go on, marked, so that the service can give them less.
    ///
    /// - Clients get the numbers of the policy as of any other, so a client can slow down before the service
    ///   gives it less.
    /// - A request over the limit is not charged to this policy. It is charged to the other policies that
    ///   apply.
    /// - [`Decision::over_limit`](crate::Decision::over_limit) names the policy. Behind a layer, a
    ///   handler finds an [`OverLimit`](crate::middleware::OverLimit) in the extensions of the
    ///   request.
    ///
    /// ```
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("full", FixedWindow::per_hour(1)).soft())
    ///     .policy(Policy::new("any", FixedWindow::per_hour(2)))
    ///     .build_local()?;
    ///
    /// assert_eq!(limiter.check("ann", 1).now().over_limit().count(), 0);
    /// let second = limiter.check("ann", 1).now();
    /// assert!(second.is_allowed());
    /// assert_eq!(second.over_limit().next().unwrap().0, "full");
    /// assert!(!limiter.check("ann", 1).now().is_allowed());
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn soft(mut self) -> Self {
        self.is_soft = true;
        self
    }

    /// Leaves the policy out of what clients are told: the rate limit headers, the names in the body of a refusal, and the details
    /// of gRPC. The default is to tell.
    ///
    /// A request that it denies is refused as by any other policy, with the true `Retry-After`. So a limit that protects the
    /// service can stay unmentioned beside a quota that clients should plan with. Decisions, logs, metrics and a
    /// [custom body](crate::response::RefusalBody::custom) have it.
    ///
    /// ```
    /// use axum::{Router, body::Body, http::Request, routing::get};
    /// use tower::ServiceExt;
    /// use tower_ratelimit::{FixedWindow, Policy, RateLimitLayer, TokenBucket, key};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limit = RateLimitLayer::builder()
    ///     .policy(Policy::new("daily", FixedWindow::per_day(1_000)).key(key::global()))
    ///     .policy(Policy::new("flood", TokenBucket::per_second(5)).key(key::global()).unannounced())
    ///     .build()?;
    /// let app: Router = Router::new().route("/", get(|| async {})).layer(limit);
    ///
    /// let response = app.oneshot(Request::new(Body::empty())).await?;
    /// assert_eq!(response.headers()["ratelimit-policy"], "\"daily\";q=1000;w=86400");
    /// # Ok(())
    /// # }
    /// ```
    pub fn unannounced(mut self) -> Self {
        self.is_unannounced = true;
        self
    }

    /// Sets whether the policy is enforced, decides in shadow, or is off; the default is [`Mode::Enforce`].
    ///
    /// [`Modes`] changes it while a layer or a limiter uses the policy.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the name under which the policy began, so that it keeps its state under a new name.
    ///
    /// The state stays under that name, in every store, so nodes with the old name count together with nodes
    /// with the new one. Keep this as long as the state matters, also through later renames: the first name
    /// counts.
    ///
    /// ```
    /// use tower_ratelimit::{FixedWindow, Limiter, MemoryStore, Policy};
    ///
    /// let store = MemoryStore::new();
    /// let with = |policy: Policy| Limiter::builder().policy(policy).store(store.clone()).build_local();
    /// let hourly = FixedWindow::per_hour(1);
    /// let before = with(Policy::new("hourly", hourly))?;
    /// assert!(before.check("ann", 1).now().is_allowed());
    ///
    /// let after = with(Policy::new("requests", hourly).was("hourly"))?;
    /// let decision = after.check("ann", 1).now();
    /// assert!(!decision.is_allowed());
    /// assert_eq!(decision.binding().unwrap().0, "requests");
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn was(mut self, name: impl Into<String>) -> Self {
        self.was = Some(name.into());
        self
    }

    /// Returns the name under which its state began.
    // For `tower-ratelimit-config`.
    #[doc(hidden)]
    pub fn first_name(&self) -> &str {
        self.was.as_ref().unwrap_or(&self.name)
    }

    /// Sets limits by key: see [`KeyLimits`]. They come before the limit of a plan.
    pub fn key_limits(mut self, limits: KeyLimits) -> Self {
        self.key_limits = Some(Arc::new(limits));
        self
    }

    /// Sets limits by operation: see [`Operations`]. They come before limits by key and the limit of a plan.
    ///
    /// A layer also needs to know the operation of a request: [`operation`](Policy::operation). The caller of
    /// a limiter names it: [`Limiter::operation`](crate::Limiter::operation).
    pub fn operations(mut self, operations: Operations) -> Self {
        self.operations = Some(Arc::new(operations));
        self
    }

    /// Lets the limit depend on the hour: see [`Hours`](crate::Hours). An interval with a limit replaces the limit of
    /// the policy, but not a limit of a plan, of an operation or of a key. An interval with a factor scales any of
    /// them.
    ///
    /// # Errors
    ///
    /// If the policy cannot have the limit of an interval, has no limit, or already has hours.
    pub fn hours(mut self, hours: &crate::algorithm::Hours) -> Result<Self, ConfigError> {
        self.algorithm = hours.over(self.algorithm)?;
        Ok(self)
    }

    /// Marks the policy as one with the same limit under all [plans](crate::plan::Plans), such as a policy on
    /// the address. Otherwise the log warns of a policy that no plan mentions
    /// ([`TRL018`](crate::diagnostics)).
    pub fn for_all_plans(mut self) -> Self {
        self.is_for_all_plans = true;
        self
    }

    /// Replaces how the policy reads requests, and returns the previous one.
    #[cfg(feature = "http")]
    fn reading<S>(self, reads: S) -> (Policy<S>, R) {
        let policy = Policy {
            name: self.name,
            algorithm: self.algorithm,
            key_limits: self.key_limits,
            operations: self.operations,
            limit_by: self.limit_by,
            has_several_limits: self.has_several_limits,
            limits_differ: self.limits_differ,
            is_settled: self.is_settled,
            is_for_all_plans: self.is_for_all_plans,
            is_soft: self.is_soft,
            mode: self.mode,
            was: self.was,
            factor: self.factor,
            heaviest: self.heaviest,
            terms: self.terms,
            penalty: self.penalty,
            is_unleased: self.is_unleased,
            is_unannounced: self.is_unannounced,
            shown: self.shown,
            on_store_failure: self.on_store_failure,
            unsettled: self.unsettled,
            patience: self.patience,
            reads,
        };
        (policy, self.reads)
    }

    /// Returns whether a table or a closure sets limits of requests.
    fn has_limits_of_requests(&self) -> bool {
        self.key_limits.is_some() || self.operations.is_some() || self.limit_by.is_some()
    }

    /// Returns the limits that were set for it.
    pub(crate) fn limited(&self) -> Limited<'_> {
        Limited {
            name: &self.name,
            own: &self.algorithm,
            by_key: self.key_limits.as_deref(),
            by_operation: self.operations.as_deref(),
            by_closure: self.limit_by.as_ref(),
            parts: self.factor.as_ref().map(|factor| factor.most().get()),
        }
    }

    /// Reduces the limit in force to the share of this [factor](crate::factor), from moment to moment.
    ///
    /// - A request passes if the whole limit would admit it, and is then charged its cost divided by the
    ///   factor. So a client that waits as told passes, whatever the factor does meanwhile.
    /// - Under a factor of a half, a key has half of the limit in the long run, and can take half of the burst at once.
    /// - One request is charged at most a whole limit more than its cost. So the share is exact for costs of at most the
    ///   limit times the factor; requests of greater cost take more than that share.
    /// - Decisions and responses tell the limit in force: how much a key that has used nothing can take, and at least 1.
    /// - The policy counts in thousandths of a unit, so a charge is right to 0.05 %. In a store its states
    ///   are separate from those of a policy of the same name without a factor.
    /// - The share applies to the limit of the request, wherever that comes from: a plan, a table, a closure
    ///   or a resolver. Hours and a [reserve](Self::reserve) cannot be combined with a factor, and
    ///   [`adjust_limit`](crate::Limiter::adjust_limit) cannot change the limits of such a policy.
    /// - Over a shared store, each node charges by its own factor.
    /// - [Refunded](crate::Limiter::refund) units count at the price of the highest factor, which is
    ///   never more than was charged. [Settled](crate::Limiter::settle) units count at the present price.
    ///
    /// ```
    /// use tower_ratelimit::factor::{Factor, FactorCell};
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let factor = FactorCell::new();
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("api", FixedWindow::per_hour(100)).factor(&factor))
    ///     .build_local()?;
    /// factor.set(Factor::thousandths(500), "memory 83 %");
    ///
    /// let decision = limiter.check("ann", 1).now();
    /// let (_, outcome) = decision.binding().unwrap();
    /// assert_eq!((outcome.limit(), outcome.remaining()), (50, 49));
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn factor(mut self, factor: &FactorCell) -> Self {
        self.factor = Some(factor.clone());
        self
    }

    /// Sets the cost of a request that ends without an answer, or whose
    /// [reservation](crate::limiter::Reservation) is dropped; the default is [`Unsettled::Estimate`].
    ///
    /// ```
    /// use tower_ratelimit::policy::Unsettled;
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("tokens", FixedWindow::per_hour(100)).unless_settled(Unsettled::Nothing))
    ///     .build_local()?;
    /// drop(limiter.reserve("ann", 60).now());
    /// assert!(limiter.check("ann", 100).now().is_allowed());
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn unless_settled(mut self, unsettled: Unsettled) -> Self {
        self.unsettled = unsettled;
        self
    }

    pub(crate) fn if_unsettled(&self) -> Unsettled {
        self.unsettled
    }

    /// Returns whether the policy is [soft](Self::soft).
    pub fn is_soft(&self) -> bool {
        self.is_soft
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the policy charges anything: an unlimited policy allows everything.
    pub(crate) fn is_limited(&self) -> bool {
        !matches!(self.algorithm, Algorithm::Unlimited)
    }

    /// Returns whether the policy holds requests until their turn.
    // For `tower-ratelimit-config`.
    #[doc(hidden)]
    pub fn shapes(&self) -> bool {
        self.algorithm.without_hours().shapes()
    }

    /// Returns whether its requests may have to wait for their turn.
    pub(crate) fn may_wait(&self) -> bool {
        let is_patient = self.patience.is_any() && !self.is_soft && self.is_limited();
        is_patient || self.shapes()
    }

    /// Tracks the keys that ask for most units, for [snapshots](crate::observe#the-heaviest-keys); off by
    /// default, because keys are personal data and it costs some 40 ns for each request.
    pub fn heaviest_keys(mut self, keys: HeaviestKeys) -> Self {
        self.heaviest = Some(keys);
        self
    }

    /// Returns how the heaviest keys are tracked, if they are.
    pub(crate) fn heaviest(&self) -> Option<&HeaviestKeys> {
        self.heaviest.as_ref()
    }

    /// Returns how the limit is enforced.
    pub fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }
}
