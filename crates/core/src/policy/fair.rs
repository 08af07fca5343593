//! Fair shares: one limit for many tenants, of which none may starve the others.

use std::time::Duration;

use super::Policy;
use crate::algorithm::Algorithm;
use crate::clock::Micros;
use crate::error::ConfigError;
use crate::plan::Plans;

/// How the limit of a policy is divided among the tenants that ask for it: see [`Policy::fair`].
///
/// # Defaults
///
/// - a tenant counts as long as it has asked within the last second
/// - up to 1,024 tenants of a shared key are told apart, over a [`SharedStore`](crate::SharedStore) up to 64; all further ones share the
///   place of one
/// - each has the weight 1
/// - each key is a tenant, whether anything knows it or not
///
/// ```
/// # use tower_ratelimit_core as tower_ratelimit;
/// use std::time::Duration;
/// use tower_ratelimit::policy::Fair;
///
/// let fair = Fair::new()
///     .active_for(Duration::from_secs(5))
///     .weight("pro", 4);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it divides nothing until a policy has it"]
pub struct Fair {
    active_for: Duration,
    /// `None` stands for as many as the store has room for.
    tenants: Option<u32>,
    weights: Vec<(String, u32)>,
    /// Whether all tenants that nothing knows are one, if that was said.
    unverified_together: Option<bool>,
}

/// The most tenants that are told apart.
pub(crate) const MOST_TENANTS: u32 = 1_024;

/// How long a tenant may count that does not ask.
pub(crate) const LONGEST_ACTIVE: Micros = Micros::from_secs(3_600);

/// The highest weight.
const MOST_WEIGHT: u32 = 100;

/// The lowest limit of a bucket that can be divided. With less, a unit that is kept for one tenant is most of what there is.
const LEAST_LIMIT: u32 = 5;

impl Fair {
    /// Makes the [default](Self#defaults).
    pub fn new() -> Self {
        Self {
            active_for: Duration::from_secs(1),
            tenants: None,
            weights: Vec::new(),
            unverified_together: None,
        }
    }

    /// Sets how long a tenant counts that does not ask, from a millisecond to an hour.
    ///
    /// What it has not used is kept for it as long. A longer time protects tenants that seldom ask, and keeps more of the burst
    /// unused.
    pub fn active_for(self, time: Duration) -> Self {
        Self {
            active_for: time,
            ..self
        }
    }

    /// Sets how many tenants of a shared key are told apart, from 2 to 1,024, or to 64 over a [`SharedStore`](crate::SharedStore).
    pub fn most_tenants(self, tenants: u32) -> Self {
        Self {
            tenants: Some(tenants),
            ..self
        }
    }

    /// Gives tenants of this [plan](crate::plan::Plans) a weight, from 1 to 100: the part of one of weight 4 is four times that of one of
    /// weight 1.
    pub fn weight(mut self, plan: impl Into<String>, weight: u32) -> Self {
        self.weights.push((plan.into(), weight));
        self
    }

    /// Counts all tenants that are in no [plan](crate::plan::Plans) by its name as one tenant, together with requests without a tenant.
    ///
    /// Otherwise a client that can choose its tenant freely, such as an API key that was not looked up, is as many tenants as it
    /// likes. A plan is named by a closure, a table or a resolver, and a resolver that finds limits of a tenant knows it, too; a default
    /// plan alone does not make a tenant known.
    ///
    /// - A settlement and a refund of such a tenant are those of all of them.
    /// - A block, its end and a reset concern the key that they name, if its plan is not known from it: because requests
    ///   name it, or because a resolver is asked and has not answered. `Key::branch(shared, &[Key::MISSING])` is the key of all
    ///   unverified tenants.
    ///
    /// Building a limiter or a layer without plans fails, since no tenant would be known.
    pub fn unverified_together(self) -> Self {
        Self {
            unverified_together: Some(true),
            ..self
        }
    }

    /// Counts each tenant by itself, as by default, and says that something else has verified tenants, such as a gateway that sets their
    /// header. A layer does not warn of them then ([`TRL041`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/diagnostics/)).
    pub fn unverified_apart(self) -> Self {
        Self {
            unverified_together: Some(false),
            ..self
        }
    }

    /// Returns whether all tenants that are in no plan by its name are one.
    pub(crate) fn counts_unverified_together(&self) -> bool {
        self.unverified_together == Some(true)
    }

    /// Returns how long a tenant counts that does not ask.
    pub(crate) fn is_active_for(&self) -> Micros {
        self.active_for.into()
    }

    /// Returns how many tenants are told apart where the store has room.
    pub(crate) fn tenants(&self) -> usize {
        self.tenants.unwrap_or(MOST_TENANTS) as usize
    }

    /// Returns how many tenants are to be told apart, if that was set.
    pub(crate) fn given_tenants(&self) -> Option<u32> {
        self.tenants
    }

    /// Returns the weight of each plan that has one.
    pub(crate) fn weights(&self) -> &[(String, u32)] {
        &self.weights
    }

    /// Rejects a weight of a plan that is not one of these, and what needs plans without any.
    pub(crate) fn check_plans(&self, plans: Option<&Plans>) -> Result<(), ConfigError> {
        if self.counts_unverified_together() && plans.is_none() {
            let remedy = "declare the plans of tenants that are known, `.plans(Plans::new([Plan::new(name)]), …)`, or leave it out: \
                          without plans all tenants would be one";
            return Err(ConfigError::new("unverified_together", true, remedy));
        }
        let is_known = |name: &str| {
            let mut plans = plans.into_iter().flat_map(Plans::each);
            plans.any(|plan| plan.name() == name)
        };
        match self.weights.iter().find(|(plan, _)| !is_known(plan)) {
            Some((plan, _)) => {
                let remedy = "name a plan of the limiter, or declare it, `.plans_by_name(Plans::new([Plan::new(name)]))`";
                Err(ConfigError::quoting("weight", plan, remedy))
            }
            None => Ok(()),
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        let (shortest, longest) = (Duration::from_millis(1), LONGEST_ACTIVE.to_duration());
        if !(shortest..=longest).contains(&self.active_for) {
            let remedy = "give a time from a millisecond to an hour";
            let given = format!("{:?}", self.active_for);
            return Err(ConfigError::new("active_for", given, remedy));
        }
        if let Some(tenants) = self.tenants
            && !(2..=MOST_TENANTS).contains(&tenants)
        {
            let remedy = "give a number from 2 to 1024";
            return Err(ConfigError::new("most_tenants", tenants, remedy));
        }
        for (place, (plan, weight)) in self.weights.iter().enumerate() {
            if !(1..=MOST_WEIGHT).contains(weight) {
                let remedy = format!("give plan {plan:?} a weight from 1 to {MOST_WEIGHT}");
                return Err(ConfigError::new("weight", weight, remedy));
            }
            if self.weights[..place].iter().any(|(other, _)| other == plan) {
                let remedy = "give each plan one weight";
                return Err(ConfigError::quoting("weight", plan, remedy));
            }
        }
        Ok(())
    }
}

impl Default for Fair {
    fn default() -> Self {
        Self::new()
    }
}

impl Policy {
    /// Divides the limit fairly among the tenants that ask for it. Those whose requests wait in a [`LeakyQueue`](crate::LeakyQueue) are
    /// served in turn by each layer that holds requests.
    ///
    /// The key of a request says both: [`Key::branch`](crate::key::Key::branch) of the key that all tenants share, and of the tenant.
    pub fn fair(mut self, fair: Fair) -> Self {
        self.fair = Some(fair.into());
        // What its weights say of plans is all that plans say of it.
        self.ignores_plans = true;
        self
    }

    /// Returns whether it says what becomes of tenants that nothing here has verified.
    // For `tower-ratelimit`.
    #[doc(hidden)]
    pub fn speaks_of_unverified(&self) -> bool {
        let fair = self.fairness();
        fair.is_some_and(|fair| fair.unverified_together.is_some())
    }

    /// Returns how its limit is divided, if it is.
    pub(crate) fn fairness(&self) -> Option<&Fair> {
        self.fair.as_deref()
    }

    /// Rejects a limit that is divided, and is not the same for all requests.
    pub(crate) fn check_one_limit(&self) -> Result<(), ConfigError> {
        if self.fair.is_some() && self.limits_differ {
            let remedy = "let no plan set its limit, and give plans a weight, `Fair::new().weight(\"pro\", 4)`: all tenants share one limit";
            return Err(ConfigError::quoting("fair", &self.name, remedy));
        }
        Ok(())
    }

    /// Rejects a policy whose limit cannot be divided.
    pub(crate) fn check_fair(&self) -> Result<(), ConfigError> {
        let Some(fair) = self.fairness() else {
            return Ok(());
        };
        fair.check()?;
        let can_be_divided = matches!(
            self.algorithm,
            Algorithm::TokenBucket(_)
                | Algorithm::Gcra(_)
                | Algorithm::LeakyBucket(_)
                | Algorithm::LeakyQueue(_)
                | Algorithm::Concurrency(_)
        );
        let (least, remedy) = if self.algorithm.limits_concurrency() {
            (
                1,
                "give it at least 1 slot, so that there is something to divide",
            )
        } else if self.shapes() {
            (
                LEAST_LIMIT,
                "give it at least 4 places, so that there is something to divide",
            )
        } else {
            (
                LEAST_LIMIT,
                "give it a burst of at least 5 units, so that there is something to divide",
            )
        };
        let has_terms = !self.terms.are_none() && self.terms.reserve() > 0;
        let unfit = [
            (
                !can_be_divided,
                "algorithm",
                "give it a `TokenBucket`, a `Gcra`, a `LeakyBucket`, a `LeakyQueue` or a `Concurrency`: what tenants leave of a window is known only when it ends",
            ),
            (self.algorithm.limit().unwrap_or(0) < least, "limit", remedy),
            (
                self.factor.is_some(),
                "factor",
                "leave it out, or leave out `fair`: load does not change shares",
            ),
            (
                has_terms,
                "reserve",
                "leave it out: the share of a tenant is its reserve; or leave out `fair`",
            ),
            (
                self.patience.is_any(),
                "wait_up_to",
                "leave it out, or leave out `fair`: the lines of requests that wait do not know of shares",
            ),
            (
                self.has_limits_of_requests(),
                "limit",
                "leave out limits by key, by operation and by closure: all tenants share one limit",
            ),
        ];
        match unfit.into_iter().find(|(is_unfit, ..)| *is_unfit) {
            Some((_, field, remedy)) => Err(ConfigError::quoting(field, &self.name, remedy)),
            None => Ok(()),
        }
    }
}
