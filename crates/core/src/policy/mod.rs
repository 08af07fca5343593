//! Policies: an algorithm with a name, and what goes with it.
//!
//! A policy is declared with a builder and never changes. It reads no request: the caller of a limiter passes key and cost.

mod concurrency;
pub(crate) mod demand;
mod fair;
pub(crate) mod first_of;
mod guaranteed;
mod heavy_hitters;
pub(crate) mod leasing;
mod level;
pub(crate) mod mode;
pub(crate) mod names;
mod on_abandoned;
mod on_store_failure;
mod patience;
pub(crate) mod penalty;
pub(crate) mod scope;
mod share;
mod shown;
mod stored;
mod terms;

use std::sync::Arc;

use crate::algorithm::{Algorithm, Hours};
use crate::error::ConfigError;
use crate::factor::FactorCell;
use crate::key::Key;
use crate::plan::{KeyLimits, LimitBy, Limited, Operations};
use crate::quota::Quota;

pub(crate) use self::demand::{Demand, NoDemand};
pub use self::fair::Fair;
pub(crate) use self::fair::{LONGEST_ACTIVE, MOST_TENANTS};
pub(crate) use self::first_of::{Alternative, FirstOf, Groups};
pub use self::heavy_hitters::TopKeys;
pub use self::mode::{Mode, Modes};
pub use self::on_abandoned::OnAbandoned;
pub use self::on_store_failure::OnStoreFailure;
pub use self::penalty::Penalty;

pub(crate) use self::guaranteed::{check_guarantees, guaranteed_below};
pub(crate) use self::mode::DeclaredModes;
pub(crate) use self::names::check_names;
pub(crate) use self::patience::Patience;
pub(crate) use self::penalty::{NamedPenalty, Offences};
pub(crate) use self::scope::Scope;
pub(crate) use self::share::{Part, check_shares};
pub(crate) use self::terms::Terms;

/// A named rule, which a [`Limiter`](crate::Limiter) decides by. Its caller passes the key and the cost.
///
/// [`Policy` of tower-ratelimit][Policy] has the same methods,
/// with examples, and reads key and cost from a request.
///
/// # Defaults
///
/// - not soft: a request over the limit is denied
/// - no penalty: a key that is refused often is not blocked
/// - units are leased, if the store leases any
/// - a request may cost as much as the limit, and all requests may use all of it
/// - mode: [`Mode::Enforce`]
/// - if its store fails: the same policy in this process ([`OnStoreFailure::Local`])
/// - no waiting: a denied request is refused at once (see [`wait_up_to`](Policy::wait_up_to))
/// - a request that ends without an answer costs its estimate ([`OnAbandoned::Estimate`])
///
/// [Policy]: https://docs.rs/tower-ratelimit/latest/tower_ratelimit/policy/struct.Policy.html
#[derive(Clone, Debug)]
#[must_use = "a policy limits nothing until a limiter or a layer has it"]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is said by a method of its own"
)]
pub struct Policy {
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
    ignores_plans: bool,
    is_soft: bool,
    mode: Mode,
    /// The name of its state, if that differs.
    renamed_from: Option<String>,
    factor: Option<FactorCell>,
    heaviest: Option<TopKeys>,
    terms: Terms,
    penalty: Option<Penalty>,
    /// The name of the policy above it in its tree.
    above: Option<Arc<str>>,
    /// Of which policy the limit is a share, if it is.
    part: Option<Part>,
    /// What each key has of the policy above, whatever others ask.
    guaranteed: Option<Quota>,
    /// How the limit is divided among tenants, if it is.
    fair: Option<Arc<Fair>>,
    is_without_lease: bool,
    /// Whether responses do not tell of the policy.
    is_unannounced: bool,
    /// The name and the algorithm in units for clients, if the [backend](Policy::into_stored) has the policy
    /// under another name.
    shown: Option<(String, Algorithm)>,
    on_store_failure: OnStoreFailure,
    unsettled: OnAbandoned,
    patience: Patience,
}

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
            ignores_plans: false,
            is_soft: false,
            mode: Mode::Enforce,
            renamed_from: None,
            factor: None,
            heaviest: None,
            terms: Terms::default(),
            penalty: None,
            above: None,
            part: None,
            guaranteed: None,
            fair: None,
            is_without_lease: false,
            is_unannounced: false,
            shown: None,
            on_store_failure: OnStoreFailure::default(),
            unsettled: OnAbandoned::default(),
            patience: Patience::default(),
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
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
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

    /// Lets requests over the limit go on, marked, so that the service can give them less.
    pub fn soft(mut self) -> Self {
        self.is_soft = true;
        self
    }

    /// Leaves the policy out of what clients are told: the rate limit headers, the names in the body of a refusal, and the details
    /// of gRPC. The default is to tell.
    pub fn unannounced(mut self) -> Self {
        self.is_unannounced = true;
        self
    }

    /// Sets whether the policy is enforced, decides in shadow, or is off; the default is [`Mode::Enforce`].
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the name under which the policy began, so that it keeps its state under a new name.
    pub fn renamed_from(mut self, name: impl Into<String>) -> Self {
        self.renamed_from = Some(name.into());
        self
    }

    /// Returns the name under which its state began.
    // For `tower-ratelimit-config`.
    #[doc(hidden)]
    pub fn original_name(&self) -> &str {
        self.renamed_from.as_ref().unwrap_or(&self.name)
    }

    /// Sets limits by key: see [`KeyLimits`]. They come before the limit of a plan.
    pub fn key_limits(mut self, limits: KeyLimits) -> Self {
        self.key_limits = Some(Arc::new(limits));
        self
    }

    /// Sets limits by operation: see [`Operations`]. They come before limits by key and the limit of a plan.
    pub fn operations(mut self, operations: Operations) -> Self {
        self.operations = Some(Arc::new(operations));
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
        self.algorithm = hours.over(self.algorithm)?;
        Ok(self)
    }

    /// Marks the policy as one with the same limit under all [plans](crate::plan::Plans), such as a policy on
    /// the address. Otherwise the log warns of a policy that no plan mentions
    /// ([`TRL018`](crate::diagnostics)).
    pub fn ignore_plans(mut self) -> Self {
        self.ignores_plans = true;
        self
    }

    /// Says whether its layer finds the limits of requests by a closure, in place of one over the key.
    // For `tower-ratelimit`.
    #[doc(hidden)]
    pub fn limited_by_layer(mut self, is_limited: bool) -> Self {
        self.limit_by = match self.limit_by {
            _ if is_limited => Some(LimitBy::Layer),
            by => by.filter(|by| !matches!(by, LimitBy::Layer)),
        };
        self
    }

    /// Says whether its layer settles requests at their end.
    // For `tower-ratelimit`.
    #[doc(hidden)]
    pub fn settled(mut self, is_settled: bool) -> Self {
        self.is_settled = is_settled;
        self
    }

    // For `tower-ratelimit`.
    #[doc(hidden)]
    pub fn has_operations(&self) -> bool {
        self.operations.is_some()
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
            share: self.part.as_ref().map(|part| (&*part.of, part.share)),
            is_divided: self.fair.is_some(),
            above: self.above(),
        }
    }

    /// Reduces the limit in force to the share of this [factor](crate::factor), from moment to moment.
    pub fn factor(mut self, factor: &FactorCell) -> Self {
        self.factor = Some(factor.clone());
        self
    }

    /// Sets the cost of a request that ends without an answer, or whose
    /// [reservation](crate::limiter::Reservation) is dropped; the default is [`OnAbandoned::Estimate`].
    pub fn on_abandoned(mut self, unsettled: OnAbandoned) -> Self {
        self.unsettled = unsettled;
        self
    }

    /// Returns what a request costs that ends without an answer.
    pub(crate) fn if_unsettled(&self) -> OnAbandoned {
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
    pub fn top_keys(mut self, keys: TopKeys) -> Self {
        self.heaviest = Some(keys);
        self
    }

    /// Returns how the heaviest keys are tracked, if they are.
    pub(crate) fn heaviest(&self) -> Option<&TopKeys> {
        self.heaviest.as_ref()
    }

    /// Returns how the limit is enforced.
    pub fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }
}

impl AsRef<Policy> for Policy {
    fn as_ref(&self) -> &Policy {
        self
    }
}
