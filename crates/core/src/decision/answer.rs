//! The decision that a caller gets: the outcomes with the names of the policies.
//!
//! The names are shared by all decisions of a limiter, so that a decision does not allocate for them.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::each::PolicyRule;
use super::hours_now::HoursNow;
use super::limit_rule::LimitRule;
use super::names::Names;
use super::names::Rule;
use super::outcome::Outcome;
use super::outcomes::Outcomes;
use super::resolution::Resolution;
use crate::clock::Micros;
use crate::factor::Explanation;
use crate::quota::Quota;

/// The answer of a [`Limiter`](crate::Limiter): allowed or denied, with the numbers of every policy that was
/// asked.
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use std::time::Duration;
/// use tower_ratelimit::{FixedWindow, Limiter, ManualClock, MemoryStore, Policy, TokenBucket};
///
/// let limiter = Limiter::builder()
///     .policy(Policy::new("burst", TokenBucket::per_second(1).burst(2)))
///     .policy(Policy::new("hourly", FixedWindow::per_hour(100)))
///     .store(MemoryStore::new().clock(ManualClock::new()))
///     .build_local()?;
///
/// let decision = limiter.check("ann", 2).now();
/// assert!(decision.is_allowed());
/// let remaining: Vec<_> = decision
///     .policies()
///     .map(|(name, outcome)| (name, outcome.remaining()))
///     .collect();
/// assert_eq!(remaining, [("burst", 0), ("hourly", 98)]);
///
/// let decision = limiter.check("ann", 1).now();
/// assert!(!decision.is_allowed());
/// let (name, outcome) = decision.binding().unwrap();
/// assert_eq!(name, "burst");
/// assert_eq!(outcome.retry_after(), Some(Duration::from_secs(1)));
/// # Ok::<(), tower_ratelimit::ConfigError>(())
/// ```
#[derive(Clone)]
#[must_use = "a request that is denied must not go on"]
pub struct Decision {
    names: Arc<Names>,
    outcomes: Outcomes,
}

impl Decision {
    #[inline]
    pub(crate) fn new(names: Arc<Names>, outcomes: Outcomes) -> Self {
        Self { names, outcomes }
    }

    /// Returns what responses say of the policies, and their outcomes.
    // For `tower-ratelimit`.
    #[doc(hidden)]
    pub fn rules_and_outcomes(&self) -> (&[Rule], &Outcomes) {
        (&self.names.policies, &self.outcomes)
    }

    pub(crate) fn outcomes(&self) -> &Outcomes {
        &self.outcomes
    }

    /// Changes the outcomes in place.
    #[inline]
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Outcomes)) {
        change(&mut self.outcomes);
    }

    /// Returns whether the request may go on: every policy that was asked allows it.
    pub fn is_allowed(&self) -> bool {
        self.outcomes.is_allowed()
    }

    /// Returns the shortest wait after which the same request would be allowed, if no other request arrives.
    ///
    /// `None` if it was allowed, and if no wait can help.
    pub fn retry_after(&self) -> Option<Duration> {
        self.outcomes.retry_after().map(Micros::to_duration)
    }

    /// Returns how long an allowed request is held before it goes on; zero for a denied request, and zero unless a
    /// policy is a [`LeakyQueue`](crate::LeakyQueue).
    pub fn delay(&self) -> Duration {
        self.outcomes.delay().to_duration()
    }

    /// Returns whether it was decided without the configured store, as while Redis is away. Each policy then follows
    /// its [`OnStoreFailure`](crate::OnStoreFailure); policies that allow every request are not among
    /// [`policies`](Self::policies).
    pub fn is_degraded(&self) -> bool {
        self.outcomes.is_degraded()
    }

    /// Returns the policies that were not asked, by name.
    pub(crate) fn without_outcome(&self) -> impl Iterator<Item = &str> {
        let names = self.names.iter().enumerate();
        let has_outcome = |policy| self.outcomes.iter().any(|(of, _)| of == policy);
        names
            .filter(move |(policy, _)| !has_outcome(*policy))
            .map(|(_, name)| name)
    }

    /// Returns how many levels are above this policy in its tree; 0 outside a tree.
    pub(crate) fn depth_of(&self, policy: &str) -> usize {
        let place = self.names.place_of(policy);
        place.map_or(0, |place| self.names.depth_of(place))
    }

    /// Returns what each key of this policy is guaranteed, and the name of the policy of which that is a part.
    pub(crate) fn guarantee_of(&self, policy: &str) -> Option<(Quota, &str)> {
        self.names.guarantee_of(self.names.place_of(policy)?)
    }

    /// Each policy that was asked, by name, in the order of declaration.
    pub fn policies(&self) -> impl ExactSizeIterator<Item = (&str, &Outcome)> {
        self.outcomes
            .iter()
            .map(|(policy, outcome)| (self.name(policy), outcome))
    }

    /// Returns the policy that pays for the request in the group of this name, declared with
    /// [`first_of`](crate::limiter::LimiterBuilder::first_of). `None` if the request is denied, if no member of the group counts it, and
    /// if there is no such group.
    pub fn payer(&self, group: &str) -> Option<&str> {
        let mut payers = self.payers();
        payers.find_map(|(name, payer)| (name == group).then_some(payer))
    }

    /// Returns each group of [`first_of`](crate::limiter::LimiterBuilder::first_of) in which a policy pays for the request, and that
    /// policy. There are none if the request is denied.
    pub fn payers(&self) -> impl Iterator<Item = (&str, &str)> {
        let is_allowed = self.is_allowed();
        let groups = self.names.groups().filter(move |_| is_allowed);
        groups.filter_map(|(name, members)| {
            let mut each = self.outcomes.iter();
            let (payer, _) = each.find(|(policy, _)| members.contains(policy))?;
            Some((name, self.name(payer)))
        })
    }

    /// Returns the soft policies whose limit the request exceeds, in the order of declaration. If there are any, the
    /// service may do less for this request.
    pub fn over_limit(&self) -> impl Iterator<Item = (&str, &Outcome)> {
        self.policies()
            .filter(|(_, outcome)| outcome.is_soft() && !outcome.allowed && !outcome.is_blocked())
    }

    /// Returns the policies in [shadow](crate::policy::Mode::Shadow) that would have denied the request, in the order of
    /// declaration.
    pub fn would_refuse(&self) -> impl Iterator<Item = (&str, &Outcome)> {
        self.policies()
            .filter(|(_, outcome)| outcome.is_shadow() && !outcome.is_allowed())
    }

    /// Returns the policies whose limits are [reduced](Outcome::is_reduced), in the order of declaration, each with
    /// its factor: how much of the limit is in force, why and since when. The factor is that of now, and not
    /// of the decision.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use tower_ratelimit::factor::{Factor, FactorCell};
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let factor = FactorCell::new();
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("api", FixedWindow::per_hour(100)).factor(&factor))
    ///     .build_local()?;
    /// assert_eq!(limiter.check("ann", 1).now().reduced().count(), 0);
    ///
    /// factor.set(Factor::thousandths(500), "memory 83 %");
    /// let decision = limiter.check("ann", 1).now();
    /// let (policy, why) = decision.reduced().next().unwrap();
    /// assert_eq!((policy, why.factor().to_string(), why.cause()), ("api", "0.5".into(), Some("memory 83 %")));
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn reduced(&self) -> impl Iterator<Item = (&str, Explanation)> {
        let reduced = self
            .outcomes
            .iter()
            .filter(|(_, outcome)| outcome.is_reduced());
        reduced.filter_map(|(policy, _)| {
            let rule = self.names.policies.get(policy)?;
            Some((rule.name(), rule.factor.as_ref()?.explain()))
        })
    }

    /// Returns the policies with [hours](crate::Hours), in the order of declaration, each with the interval in which
    /// it decided. Policies under which the key has an override are left out, since that holds at all hours.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use tower_ratelimit::factor::Factor;
    /// use tower_ratelimit::{FixedWindow, Hours, Limiter, Policy};
    ///
    /// # #[cfg(feature = "calendar")] {
    /// let nights = Hours::in_zone("UTC")?.at("00:00-24:00", Factor::thousandths(2_000))?;
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("api", FixedWindow::per_hour(100)).hours(&nights)?)
    ///     .build_local()?;
    /// let decision = limiter.check("ann", 1).now();
    /// let (policy, hours) = decision.hours().next().unwrap();
    /// assert_eq!((policy, hours.interval()), ("api", Some("00:00-24:00")));
    /// assert_eq!(decision.binding().unwrap().1.limit(), 200);
    /// # }
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn hours(&self) -> impl Iterator<Item = (&str, HoursNow)> {
        let at = self.outcomes.at();
        let all = self.outcomes.iter();
        let by_policy = all.filter(|(_, outcome)| !outcome.is_overridden());
        by_policy.filter_map(move |(policy, _)| {
            let rule = self.names.policies.get(policy)?;
            Some((rule.name(), rule.hours.as_ref()?(at)))
        })
    }

    /// Returns the policy that binds. `None` if no policy was asked, for example because all are unlimited.
    ///
    /// For an allowed request this is the policy with the least remaining, and a soft policy only if all are
    /// soft. A policy in [shadow](crate::policy::Mode::Shadow) never binds. For a denied request it is the
    /// policy with the longest wait, where "never" is the longest. Ties go to the policy declared first.
    pub fn binding(&self) -> Option<(&str, &Outcome)> {
        let (policy, outcome) = self.outcomes.binding()?;
        Some((self.name(policy), outcome))
    }

    /// Which rule gave the policy that [binds](Self::binding) its limit.
    pub fn rule(&self) -> Option<LimitRule> {
        let (place, outcome) = self.outcomes.binding_place()?;
        Some(self.rule_of(*place, outcome))
    }

    /// Each policy that was asked, by name, with the rule that gave its limit, in the order of declaration.
    pub fn rules(&self) -> impl ExactSizeIterator<Item = (&str, LimitRule)> {
        let each = self.outcomes.each.iter();
        each.map(|(place, outcome)| (self.name(place.policy()), self.rule_of(*place, outcome)))
    }

    fn rule_of(&self, place: PolicyRule, outcome: &Outcome) -> LimitRule {
        if outcome.is_overridden() {
            return LimitRule::Override;
        }
        let rule = self.names.rules.get(place.rule);
        if rule == LimitRule::Policy
            && let Some(hours_at) = self
                .names
                .policies
                .get(place.policy())
                .and_then(|rule| rule.hours.as_ref())
            && let hours = hours_at(self.outcomes.at())
            && hours.gives_limit
            && let Some(interval) = hours.interval
        {
            return LimitRule::Hours(interval.into());
        }
        rule
    }

    /// How the plan or the limits of the request were found, if a [`Resolver`](crate::plan::Resolver) was asked.
    pub fn resolution(&self) -> Option<Resolution> {
        let mut each = self.outcomes.each.iter();
        each.find_map(|(place, _)| Resolution::noted(place.rule))
    }

    /// Returns when it was decided, by the store's clock; `None` if the platform cannot represent the moment.
    pub fn at(&self) -> Option<SystemTime> {
        self.outcomes.at().to_system_time()
    }

    /// Returns when the whole limit of this outcome is available again, if no other request arrives, by the store's
    /// clock; `None` if the platform cannot represent the moment, and if slots are free when their requests end.
    pub fn reset_at(&self, outcome: &Outcome) -> Option<SystemTime> {
        let reset = self.outcomes.at().saturating_add(outcome.reset_after);
        reset.to_system_time().filter(|_| !outcome.is_of_slots())
    }

    pub(crate) fn name(&self, policy: usize) -> &str {
        self.names.get(policy)
    }
}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision")
            .field("allowed", &self.is_allowed())
            .field("at", &self.outcomes.at())
            .field("policies", &self.policies().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
