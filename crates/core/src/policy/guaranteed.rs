//! Guarantees: what a level of a tree has of the level above, whatever its siblings ask.

use std::collections::HashMap;
use std::num::NonZeroU32;

use super::Policy;
use crate::algorithm::{Algorithm, Replenishment};
use crate::error::ConfigError;
use crate::quota::Quota;

impl Policy {
    /// Guarantees each key of this policy so much of the policy [above](Self::below), in the period of that one.
    ///
    /// - **What a key uses up to its guarantee** the policy above does not refuse, if the key has asked within the last period.
    /// - **What it uses beyond** is borrowed: it passes if the policy above has room beside what the guarantees of other active keys have
    ///   left.
    /// - **The guarantee of an idle key** is lent, and is back within one period.
    /// - **If the active keys have larger guarantees than the policy above has**, each has an equal part of that.
    ///
    /// The state can be in this process, in Redis, or in [items](crate::store::Items) of which several can change at once. What the request
    /// is charged under the policy above counts.
    ///
    /// # Errors
    ///
    /// Building a limiter or a layer fails if
    ///
    /// - no policy of it is above, or that one guarantees something to another policy
    /// - the guarantee is 0, is more than either limit, or is in another period than the limit above
    /// - the policy above has another algorithm than `FixedWindow`, `TokenBucket`, `Gcra` or `LeakyBucket`, or a burst that is too small to
    ///   have a unit of the guarantee in it
    /// - either policy, or another one of the limiter, has an option that does not go with a guarantee, or the store keeps none.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use tower_ratelimit::key::{IntoKey, Key};
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy, Quota};
    ///
    /// let team = Policy::new("team", FixedWindow::per_hour(8)).below("org");
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("org", FixedWindow::per_hour(10)))
    ///     .policy(team.guaranteed(Quota::per_hour(4)))
    ///     .build_local()?;
    ///
    /// let ask = |name: &str, cost| {
    ///     let team = Key::branch("acme", &[name.into_key()]);
    ///     let request = limiter.named([("org", team.root(), cost), ("team", team, cost)]);
    ///     Ok::<_, tower_ratelimit::ConfigError>(request?.check().now().is_allowed())
    /// };
    /// assert!(ask("blue", 1)?);
    /// // Red borrows what blue may not need, but for the 3 that are left of its guarantee.
    /// assert!(ask("red", 6)?);
    /// assert!(!ask("red", 1)?);
    /// assert!(ask("blue", 3)?);
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn guaranteed(mut self, quota: Quota) -> Self {
        self.guaranteed = Some(quota);
        self
    }

    /// Returns what each of its keys is guaranteed of the policy above, if anything is: see [`guaranteed`](Self::guaranteed).
    pub fn guarantee(&self) -> Option<Quota> {
        self.guaranteed
    }

    /// Returns the policy with one node's share of its guarantee, rounded up as its limit is.
    pub(crate) fn with_guarantee_shared_by(mut self, nodes: NonZeroU32) -> Self {
        self.guaranteed = self.guaranteed.map(|quota| {
            let units = quota.limit().div_ceil(nodes.get());
            Quota::of_micros(units, quota.period_micros())
        });
        self
    }

    fn check_guarantee(
        &self,
        policies: &HashMap<&str, &Self>,
        below: &GuaranteedBelow<'_>,
    ) -> Result<(), ConfigError> {
        let Some(quota) = self.guaranteed else {
            return Ok(());
        };
        let error = |remedy: String| {
            let given = format!("{quota} of {:?}", self.name);
            Err(ConfigError::new("guaranteed", given, remedy))
        };
        let Some(above) = self.above().and_then(|above| policies.get(above)) else {
            return error(match self.above() {
                Some(above) => format!("add the policy {above:?}, of which it is a part"),
                None => "give it to a level that has another one above it, of which it is a part"
                    .to_owned(),
            });
        };
        let is_first = |(first, ..): &(&Self, usize, u32)| first.name == self.name;
        if !below.get(above.name()).is_some_and(is_first) {
            return error(format!(
                "leave it out: {:?} guarantees something to another policy",
                above.name
            ));
        }
        above.check_guaranteeing(quota).map_or(Ok(()), error)?;
        self.check_guaranteed(quota, above).map_or(Ok(()), error)
    }

    /// Returns what is to be done if this policy cannot guarantee this to the one below.
    fn check_guaranteeing(&self, quota: Quota) -> Option<String> {
        let name = &self.name;
        if self.algorithm.has_hours() {
            return Some(format!(
                "leave the hours of {name:?} out, or leave the guarantee out: what a request waits for is counted out without hours"
            ));
        }
        let is_steady = self.algorithm.replenishment() == Some(Replenishment::Steady);
        let is_fit = match self.algorithm {
            Algorithm::FixedWindow(_) => true,
            Algorithm::TokenBucket(_) | Algorithm::Gcra(_) | Algorithm::LeakyBucket(_) => is_steady,
            _ => false,
        };
        if !is_fit {
            return Some(format!(
                "give the level above, {name:?}, a `FixedWindow`, a `TokenBucket`, a `Gcra` or a `LeakyBucket`, or leave the guarantee \
                 out: what others leave of {} is not known in time",
                self.algorithm.name()
            ));
        }
        let limits = self.algorithm.limits()?;
        let (_, period, _) = self.algorithm.frame();
        if period != Some(quota.period()) {
            return Some(format!(
                "give it in the period of the level above, {}",
                self.algorithm
            ));
        }
        if quota.limit() > limits.quota() {
            return Some(format!(
                "give at most {}, the limit of the level above",
                limits.quota()
            ));
        }
        let least = limits.quota().div_ceil(quota.limit().max(1));
        if quota.limit() > 0 && limits.size() < least {
            return Some(format!(
                "give the level above, {name:?}, a burst of at least {least}, so that it has a unit of the guarantee at once"
            ));
        }
        let unfit = [
            (
                self.factor.is_some(),
                "a factor: load does not change guarantees",
            ),
            (
                self.terms.reserve() > 0,
                "its `reserve`: the guarantee of a level is its reserve",
            ),
            (
                self.patience.is_any(),
                "its `wait_up_to`: the line of requests that wait does not know of guarantees",
            ),
            (
                self.operations.is_some(),
                "its limits by operation: one key has one limit, of which others have a part",
            ),
            (
                self.fair.is_some(),
                "`fair`: a limit is divided among tenants, or guaranteed to those below",
            ),
        ];
        let (_, what) = unfit.into_iter().find(|(is_unfit, _)| *is_unfit)?;
        Some(format!(
            "leave the guarantee out, or leave out of the level above, {name:?}, {what}"
        ))
    }

    /// Returns what is to be done if this policy cannot have this guarantee of that one.
    fn check_guaranteed(&self, quota: Quota, above: &Self) -> Option<String> {
        if quota.limit() == 0 {
            return Some("give at least 1, or leave it out".to_owned());
        }
        let unfit = [
            (
                !self.is_limited(),
                "give the level a limit, up to which it may borrow",
            ),
            (
                self.algorithm.limits_concurrency(),
                "give the level a limit on a rate, or leave the guarantee out",
            ),
            (self.fair.is_some(), "leave out the guarantee, or `fair`"),
            (
                self.operations.is_some(),
                "leave out its limits by operation, or the guarantee: each operation would have a guarantee of its own",
            ),
        ];
        if let Some((_, remedy)) = unfit.into_iter().find(|(is_unfit, _)| *is_unfit) {
            return Some(remedy.to_owned());
        }
        let limits = self.algorithm.limits()?;
        let (_, period, _) = self.algorithm.frame();
        let micros = |period: std::time::Duration| period.as_micros();
        let own = u128::from(limits.quota()) * micros(quota.period());
        let guaranteed = u128::from(quota.limit()) * period.map_or(0, micros);
        let is_more = guaranteed > own;
        is_more.then(|| format!("give at most the limit of the level, {}, which it cannot pass to the limit of {:?}", self.algorithm, above.name))
    }
}

/// The policy to whose keys another one guarantees something, its place, and the units, by the name of the other one.
pub(crate) type GuaranteedBelow<'a> = HashMap<&'a str, (&'a Policy, usize, u32)>;

/// Returns to whose keys policies guarantee something. There may be thousands of policies, so it looks at each once.
pub(crate) fn guaranteed_below(policies: &[Policy]) -> GuaranteedBelow<'_> {
    let mut below = HashMap::new();
    for (place, policy) in policies.iter().enumerate() {
        if let (Some(above), Some(quota)) = (policy.above(), policy.guarantee()) {
            below.entry(above).or_insert((policy, place, quota.limit()));
        }
    }
    below
}

/// Rejects a guarantee that the policy above cannot keep.
pub(crate) fn check_guarantees(policies: &[Policy]) -> Result<(), ConfigError> {
    let below = guaranteed_below(policies);
    let names = policies.iter().map(|policy| (policy.name(), policy));
    let names: HashMap<_, _> = names.collect();
    policies
        .iter()
        .try_for_each(|policy| policy.check_guarantee(&names, &below))
}
