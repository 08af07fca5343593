use super::Policy;
use crate::error::ConfigError;

/// The demands of a policy on single requests, beside its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The most that a request may cost.
    most: Option<u32>,
    /// The units that requests of low priority leave to others.
    reserve: u32,
}

impl Terms {
    /// Returns the most that a request may cost.
    pub(crate) fn most(self) -> Option<u32> {
        self.most
    }

    /// Returns the units that requests of low priority leave to others.
    pub(crate) fn reserve(self) -> u32 {
        self.reserve
    }

    /// Returns whether the policy demands nothing of single requests.
    pub(crate) fn are_none(self) -> bool {
        self == Self::default()
    }
}

impl<R> Policy<R> {
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
        self.terms.most = Some(units);
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
        self.terms.reserve = units;
        self
    }

    /// Returns its demands on single requests.
    pub(crate) fn terms(&self) -> Terms {
        self.terms
    }
}

impl Policy {
    /// Rejects a ceiling and a reserve that do not fit the limit.
    pub(crate) fn check_terms(&self) -> Result<(), ConfigError> {
        let Terms { most, reserve } = self.terms;
        let limit = self.algorithm.limit().unwrap_or(u32::MAX);
        // For a request above the ceiling, the store is asked for more than any limit.
        let highest = limit.min(u32::MAX - 1);
        if let Some(most) = most
            && !(1..=highest).contains(&most)
        {
            let remedy = format!("give 1 to {highest}, the limit of policy {:?}", self.name);
            return Err(ConfigError::new("most", most, remedy));
        }
        if most.is_some() && limit == u32::MAX && self.is_limited() {
            let remedy = "give a limit of at most 4294967294 beside `most`";
            return Err(ConfigError::new("limit", limit, remedy));
        }
        if reserve > 0 && self.is_limited() && reserve >= limit {
            let remedy = format!(
                "give less than {limit}, the limit of policy {:?}",
                self.name
            );
            return Err(ConfigError::new("reserve", reserve, remedy));
        }
        Ok(())
    }

    /// Returns the policy with one node's share of the reserve, rounded up, and below the share of the limit.
    pub(crate) fn with_reserve_shared_by(mut self, nodes: std::num::NonZeroU32) -> Self {
        let highest = self.algorithm.limit().unwrap_or(0).saturating_sub(1);
        self.terms.reserve = self.terms.reserve.div_ceil(nodes.get()).min(highest);
        self
    }
}
