//! Policies: an algorithm with a name, a key, a cost and a condition.
//!
//! A policy is declared with a builder and never changes. The rule itself is the same for every kind of
//! service; the type parameter says how a policy reads a request, so that a `Limiter`, whose caller passes
//! key and cost, needs no HTTP.

mod fair;
mod http;
mod keyed;
pub(crate) mod logged;
mod missing_key;
mod settlement;
mod tree;

use std::time::Duration;

/// A policy without a key, as a store opens it.
pub use tower_ratelimit_core::policy::Policy as Rule;

use crate::algorithm::{Algorithm, Hours};
use crate::error::ConfigError;
use crate::factor::FactorCell;
use crate::key::Key;
use crate::plan::{KeyLimits, Operations};
use crate::quota::Quota;

pub use tower_ratelimit_core::policy::{
    Fair, Mode, Modes, OnAbandoned, OnStoreFailure, Penalty, TopKeys,
};

pub use self::http::Http;
pub use self::keyed::Keyed;
pub(crate) use self::logged::Logged;
pub use self::missing_key::OnMissingKey;
pub(crate) use self::missing_key::check_status;
pub use self::settlement::{Cost, Ending, Settle, Spend};
pub(crate) use self::settlement::{Ended, KnownCosts, ReportedCost, Settlement};
pub use self::tree::Tree;

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
/// - a request that ends without an answer costs its estimate ([`OnAbandoned::Estimate`])
/// - without a key: one quota for all requests whose client left it out; `500` if the server does
///   not provide it (see [`OnMissingKey`])
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
pub struct Policy<R = Unkeyed> {
    /// What a limiter decides by.
    rule: Rule,
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
            rule: Rule::new(name, algorithm),
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
        self.rule = self.rule.limit_by(limit);
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
        self.rule = self.rule.soft();
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
        self.rule = self.rule.unannounced();
        self
    }

    /// Sets whether the policy is enforced, decides in shadow, or is off; the default is [`Mode::Enforce`].
    ///
    /// [`Modes`] changes it while a layer or a limiter uses the policy.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.rule = self.rule.mode(mode);
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
    /// let after = with(Policy::new("requests", hourly).renamed_from("hourly"))?;
    /// let decision = after.check("ann", 1).now();
    /// assert!(!decision.is_allowed());
    /// assert_eq!(decision.binding().unwrap().0, "requests");
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn renamed_from(mut self, name: impl Into<String>) -> Self {
        self.rule = self.rule.renamed_from(name);
        self
    }

    /// Sets limits by key: see [`KeyLimits`]. They come before the limit of a plan.
    pub fn key_limits(mut self, limits: KeyLimits) -> Self {
        self.rule = self.rule.key_limits(limits);
        self
    }

    /// Sets limits by operation: see [`Operations`]. They come before limits by key and the limit of a plan.
    ///
    /// A layer also needs to know the operation of a request: [`operation`](Policy::operation). The caller of
    /// a limiter names it: [`Limiter::operation`](crate::Limiter::operation).
    pub fn operations(mut self, operations: Operations) -> Self {
        self.rule = self.rule.operations(operations);
        self
    }

    /// Lets the limit depend on the hour: see [`Hours`]. An interval with a limit replaces the limit of
    /// the policy, but not a limit of a plan, of an operation or of a key. An interval with a factor scales any of
    /// them.
    ///
    /// # Errors
    ///
    /// If the policy cannot have the limit of an interval, has no limit, or already has hours.
    pub fn hours(mut self, hours: &Hours) -> Result<Self, ConfigError> {
        self.rule = self.rule.hours(hours)?;
        Ok(self)
    }

    /// Makes a policy whose limit is a share of the limit of this one, such as that of each team of an organisation. A
    /// [tree](Tree::share) does so for a level.
    ///
    /// - **The share** is from 0.000001 to 1, to the nearest millionth. The shares of keys need not add up to 1: this policy bounds
    ///   them together.
    /// - **The limit** has the algorithm and the period of this one. Its quota, its burst, its capacity or its places are the
    ///   share of those, each rounded up.
    /// - **Plans and resolvers** that set a limit for this policy set the share of it for the other, unless they speak of the other
    ///   themselves. Where they exempt this policy, they exempt the other.
    /// - **Hours** that this policy has now hold for the other, too: in an interval with a limit it has the share of that limit.
    /// - **A factor**, an override of a key and [`adjust_limit`](crate::Limiter::adjust_limit) concern the policy that they name
    ///   alone. So does everything else that a policy has, such as a mode.
    ///
    /// # Errors
    ///
    /// When the share is out of range, or this policy has no limit. Building a limiter or a layer fails if this policy is not before
    /// the other, or if it has limits by key, by operation or by a closure, which a share does not follow.
    ///
    /// ```
    /// use tower_ratelimit::key::{IntoKey, Key};
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let org = Policy::new("org", FixedWindow::per_minute(1_000));
    /// let team = org.share("team", 0.4)?;
    /// let limiter = Limiter::builder().policies([org, team]).build_local()?;
    ///
    /// let blue = Key::branch("acme", &["blue".into_key()]);
    /// let decision = limiter.named([("org", blue.root(), 1), ("team", blue, 1)])?.check().now();
    /// let limits: Vec<u32> = decision.policies().map(|(_, outcome)| outcome.limit()).collect();
    /// assert_eq!(limits, [1_000, 400]);
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn share(&self, name: impl Into<String>, share: f64) -> Result<Policy, ConfigError> {
        Ok(Policy {
            rule: self.rule.share(name, share)?,
            reads: Unkeyed,
        })
    }

    /// Says that this policy is a level of a tree, below the policy of this name. It is shown so by an
    /// [`Inspection`](crate::limiter::Inspection) and by the operator's page, and decides nothing by itself: see [`guaranteed`](Self::guaranteed). The levels of a
    /// [tree](Policy::tree), and policies with a [share](Self::share), are below each other already.
    pub fn below(mut self, policy: impl Into<String>) -> Self {
        self.rule = self.rule.below(policy);
        self
    }

    /// Guarantees each key of this level so much of the level above, in the period of that one.
    ///
    /// - **What a key uses up to its guarantee** the level above does not refuse, if the key has asked within the last period.
    /// - **What it uses beyond** is borrowed, up to its own limit: it passes if the level above has room beside what the guarantees of
    ///   other active keys have left.
    /// - **The guarantee of an idle key** is lent, and is back within one period.
    /// - **If the active keys have larger guarantees than the level above has**, each has an equal part of that.
    ///
    /// [The page on trees](crate::guide::trees) has the rule, and what goes with it. A policy outside a [tree](Policy::tree) says by
    /// [`below`](Self::below) which policy is above it.
    ///
    /// # Errors
    ///
    /// Building a limiter or a layer fails if
    ///
    /// - no policy is above this one, or that one guarantees something to another policy
    /// - the guarantee is 0, is more than either limit, or is in another period than the limit above
    /// - the policy above has another algorithm than `FixedWindow`, `TokenBucket`, `Gcra` or `LeakyBucket`, or a burst that is too small
    ///   to have a unit of the guarantee in it
    /// - either policy, or another one beside them, has an option that does not go with a guarantee, or the store keeps none.
    ///
    /// ```
    /// use tower_ratelimit::{Policy, Quota, RateLimitLayer, TokenBucket, key};
    ///
    /// let api = Policy::tree("api")
    ///     .level("org", key::header("x-org"), TokenBucket::per_minute(1_000))
    ///     .level("team", key::header("x-team"), TokenBucket::per_minute(400))
    ///     .with(|team| team.guaranteed(Quota::per_minute(100)))
    ///     .build()?;
    /// let layer = RateLimitLayer::builder().policies(api).build()?;
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn guaranteed(mut self, quota: Quota) -> Self {
        self.rule = self.rule.guaranteed(quota);
        self
    }

    /// Marks the policy as one with the same limit under all [plans](crate::plan::Plans), such as a policy on
    /// the address. Otherwise the log warns of a policy that no plan mentions
    /// ([`TRL018`](crate::diagnostics)).
    pub fn ignore_plans(mut self) -> Self {
        self.rule = self.rule.ignore_plans();
        self
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
        self.rule = self.rule.factor(factor);
        self
    }

    /// Sets the most units that one request may cost. A request that costs more is refused, however much is left.
    ///
    /// - No wait helps: the refusal has no `Retry-After`. Its status is 429, or what
    ///   [`too_large_status`](crate::middleware::RateLimitLayerBuilder::too_large_status) sets, such as 413.
    /// - Nothing is charged to any policy.
    /// - Under a [soft](Self::soft) policy the request goes on, marked.
    ///
    /// # Errors
    ///
    /// Building a limiter or a layer fails if the ceiling is 0, or above the limit, which is a ceiling
    /// itself.
    ///
    /// ```
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("rows", FixedWindow::per_hour(10_000)).most(500))
    ///     .build_local()?;
    /// assert!(limiter.check("ann", 500).now().is_allowed());
    /// let decision = limiter.check("ann", 501).now();
    /// assert!(!decision.is_allowed());
    /// assert_eq!(decision.retry_after(), None);
    /// assert_eq!(decision.binding().unwrap().1.remaining(), 9_500);
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn most(mut self, units: u32) -> Self {
        self.rule = self.rule.most(units);
        self
    }

    /// Keeps this many units of the limit for requests that are not of low priority.
    ///
    /// - A request of low priority passes only if this many units remain after it. All other requests use the whole
    ///   limit.
    /// - All requests of a key are counted together. So the reserve is exact, in every store.
    /// - The response to a request of low priority has the limit without the reserve, what remains of that,
    ///   and the wait until the request passes. A client that waits as told passes, if requests of higher
    ///   priority do not use more meanwhile.
    /// - Requests of low priority never use the reserve, even if no other requests do.
    /// - Under a limit of a plan that does not exceed the reserve, requests of low priority are always
    ///   refused. A key with an [override](crate::Limiter::override_limit) has the limit of the override
    ///   for all its requests.
    ///
    /// A request is of low priority if [`low_priority`](crate::Policy::low_priority) says so, or if it is
    /// decided by [`Limiter::low_priority`](crate::Limiter::low_priority).
    ///
    /// # Errors
    ///
    /// Building a limiter or a layer fails if the reserve is not below the limit, or if the policy has a
    /// [factor](Self::factor), whose [classes](crate::Policy::class) determine which requests run out first.
    ///
    /// ```
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("api", FixedWindow::per_hour(100)).reserve(20))
    ///     .build_local()?;
    /// let batch = limiter.low_priority();
    ///
    /// assert!(batch.check("ann", 80).now().is_allowed());
    /// assert!(!batch.check("ann", 1).now().is_allowed());
    /// assert!(limiter.check("ann", 20).now().is_allowed());
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn reserve(mut self, units: u32) -> Self {
        self.rule = self.rule.reserve(units);
        self
    }

    /// Blocks a key that this policy refuses too often.
    ///
    /// - A request counts if this policy denies it. It does not count if only other policies deny it, if the
    ///   policy is [soft](Self::soft), or if it was decided [without the
    ///   store](crate::Decision::is_degraded). `peek` and `acquire_up_to` count nothing.
    /// - The decision on the last of these refusals has the block: its wait is the end of the block, and
    ///   [`Outcome::is_blocked`](crate::Outcome::is_blocked) is set.
    /// - A blocked key is denied as by [`block`](crate::Limiter::block), whatever is left of its limit.
    ///   [`unblock`](crate::Limiter::unblock) ends the block, and forgets all refusals and blocks of the
    ///   key.
    /// - Nodes that share a store count together, in the same step as the decision. On a Redis Cluster, a request
    ///   whose policies count different keys counts under the policies of the first key that is denied.
    ///
    /// Use a key that a client cannot choose freely, such as an account and an address. With an account alone, any
    /// client can lock its owner out.
    ///
    /// # Memory
    ///
    /// A [`MemoryStore`](crate::MemoryStore) keeps the refusals of up to 65,536 keys for each policy, 150 to
    /// 950 bytes each. Beyond that it drops the refusals that would expire first, and the log says so
    /// ([`TRL026`](crate::diagnostics)). It keeps up to 262,144 such blocks, and then blocks no further key. A
    /// restart from a snapshot keeps blocks, and forgets refusals.
    ///
    /// # Errors
    ///
    /// Building a limiter or a layer fails
    ///
    /// - if a client that sends one request at a time, and waits each `Retry-After`, can be refused so often in that
    ///   time. Under a window of a minute, for example, such a client can be refused twice within a moment: just before
    ///   the end of one window, and after the limit of the next. Under a bucket or a sliding window it can be refused
    ///   once for each unit that comes back. Such a penalty would block well-behaved clients. The check knows the
    ///   policy's own limit, and not those of plans.
    /// - if a number of the penalty is out of range,
    /// - if the limit of the policy depends on the hour,
    /// - if the policy is soft, or lets requests [wait](Self::wait_up_to).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_ratelimit::policy::Penalty;
    /// use tower_ratelimit::{AnchoredWindow, Limiter, Policy};
    ///
    /// let penalty = Penalty::after(3, Duration::from_secs(900)).block(Duration::from_secs(3_600));
    /// let login = Policy::new("login", AnchoredWindow::new(5, Duration::from_secs(900))?).penalty(penalty);
    /// let limiter = Limiter::builder().policy(login).build_local()?;
    ///
    /// assert!(limiter.check("ann", 5).now().is_allowed());
    /// for _ in 0..2 {
    ///     assert!(limiter.check("ann", 1).now().retry_after() <= Some(Duration::from_secs(900)));
    /// }
    /// let third = limiter.check("ann", 1).now();
    /// assert_eq!(third.retry_after(), Some(Duration::from_secs(3_600)));
    /// assert!(third.binding().unwrap().1.is_blocked());
    ///
    /// limiter.unblock("ann").now();
    /// assert!(!limiter.inspect("ann").now().policies().any(|(_, outcome)| outcome.is_blocked()));
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn penalty(mut self, penalty: Penalty) -> Self {
        self.rule = self.rule.penalty(penalty);
        self
    }

    /// Lets a request that the policy denies wait for its turn in a layer, for at most this time: in a
    /// [`RateLimitLayer`](crate::RateLimitLayer) or a [`LimitLayer`](crate::LimitLayer).
    ///
    /// The default is zero, which refuses at once. It works with any algorithm. The requests of one
    /// key wait in one line, in order: see [Waiting under any
    /// algorithm](crate::middleware#waiting-under-any-algorithm). A request is refused at once if
    ///
    /// - its turn would come later than this time, or after its
    ///   [`Deadline`](crate::middleware::Deadline);
    /// - another policy that does not wait denies it;
    /// - the [places](Self::wait_places) are taken.
    ///
    /// A [`Limiter`](crate::Limiter) holds no requests: its verbs deny at once, and the decision has the
    /// [wait](crate::Decision::retry_after). The store of the layer has to support
    /// [`peek`](crate::store::Backend::peek).
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// use axum::{Router, body::Body, http::Request, routing::get};
    /// use tower::ServiceExt;
    /// use tower_ratelimit::{Policy, RateLimitLayer, TokenBucket, key};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let policy = Policy::new("burst", TokenBucket::per_second(20).burst(2))
    ///     .wait_up_to(Duration::from_secs(1))
    ///     .key(key::global());
    /// let limit = RateLimitLayer::builder().policy(policy).build()?;
    /// let app: Router = Router::new().route("/", get(|| async {})).layer(limit);
    ///
    /// let start = Instant::now();
    /// for _ in 0..4 {
    ///     let response = app.clone().oneshot(Request::new(Body::empty())).await?;
    ///     assert_eq!(response.status(), 200);
    /// }
    /// // Two pass at once, and two wait for a twentieth of a second each.
    /// assert!(start.elapsed() >= Duration::from_millis(100));
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_up_to(mut self, longest: Duration) -> Self {
        self.rule = self.rule.wait_up_to(longest);
        self
    }

    /// Sets how many requests of one key may [wait](Self::wait_up_to) at the same time; the default
    /// is 100.
    ///
    /// A request beyond that is refused at once. With 0 no request waits. Waiting requests stay in
    /// memory; a layer also bounds [those of all
    /// keys](crate::middleware::RateLimitLayerBuilder::wait_places). Requests of low priority that leave a
    /// [reserve](Self::reserve) have as many places of their own.
    pub fn wait_places(mut self, places: u32) -> Self {
        self.rule = self.rule.wait_places(places);
        self
    }

    /// Lets the store decide each request, where it [leases](crate::guide::many_nodes) units to nodes.
    /// Without leases it changes nothing.
    ///
    /// Blocks, resets and overrides by other nodes then take effect at once, and waits are as short as
    /// possible.
    pub fn without_lease(mut self) -> Self {
        self.rule = self.rule.without_lease();
        self
    }

    /// Tracks the keys that ask for most units, for [snapshots](crate::observe#the-heaviest-keys); off by
    /// default, because keys are personal data and it costs some 40 ns for each request.
    pub fn top_keys(mut self, keys: TopKeys) -> Self {
        self.rule = self.rule.top_keys(keys);
        self
    }

    /// Sets what happens to requests while the store cannot decide; the default is
    /// [`OnStoreFailure::Local`].
    ///
    /// It applies to each shared store: [`RedisStore`](crate::store) and [`SharedStore`](crate::SharedStore). A
    /// [`MemoryStore`](crate::MemoryStore) is never away.
    pub fn on_store_failure(mut self, what: OnStoreFailure) -> Self {
        self.rule = self.rule.on_store_failure(what);
        self
    }

    /// Sets the cost of a request that ends without an answer, or whose
    /// [reservation](crate::limiter::Reservation) is dropped; the default is [`OnAbandoned::Estimate`].
    ///
    /// ```
    /// use tower_ratelimit::policy::OnAbandoned;
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("tokens", FixedWindow::per_hour(100)).on_abandoned(OnAbandoned::Nothing))
    ///     .build_local()?;
    /// drop(limiter.reserve("ann", 60).now());
    /// assert!(limiter.check("ann", 100).now().is_allowed());
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn on_abandoned(mut self, unsettled: OnAbandoned) -> Self {
        self.rule = self.rule.on_abandoned(unsettled);
        self
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.rule.name()
    }

    /// Returns how the limit is enforced.
    pub fn algorithm(&self) -> &Algorithm {
        self.rule.algorithm()
    }

    /// Returns whether the policy is [soft](Self::soft).
    pub fn is_soft(&self) -> bool {
        self.rule.is_soft()
    }

    /// Returns what [`on_store_failure`](Self::on_store_failure) has set.
    pub fn store_failure(&self) -> OnStoreFailure {
        self.rule.store_failure()
    }
}

impl<R> AsRef<Rule> for Policy<R> {
    fn as_ref(&self) -> &Rule {
        &self.rule
    }
}

impl From<Policy> for Rule {
    fn from(policy: Policy) -> Self {
        policy.rule
    }
}
