//! Overrides: another limit for one key, for a time.
//!
//! An override is another limit in the charges of a key. It changes no state, so units that a key has used
//! stay used when it begins and when it ends.

use std::time::Duration;

use super::amending::Amend;
use super::ask::{Ask, Verb};
use super::charging::Named;
use super::subject::Subject;
use super::{Limiter, Purpose};
use crate::algorithm::Algorithm;
use crate::clock::Micros;
use crate::error::{ConfigError, StoreError};
use crate::key::IntoKey;
use crate::store::{Amendment, Backend, Charge, MemoryBackend, Reply};

impl<L: Backend + ?Sized> Limiter<L> {
    /// Gives this key another limit under this policy for this long from now on.
    ///
    /// The limit may be higher, for a customer who bought more, or lower, for a client that has to slow down.
    ///
    /// All decisions about the key use the new limit and have its numbers.
    ///
    /// - **The limit** is an algorithm of the same kind and period as the policy, with any limit. A
    ///   bucket may have any rate for that period and any capacity, and a queue any number of
    ///   places.
    /// - **What was used stays used**, at the beginning and at the end. A window compares its count
    ///   with the current limit. A bucket keeps its debt: what exceeds the capacity of the current
    ///   limit drains at the rate at which it was charged (the highest, if there were several), and
    ///   the rest at the current rate. So a limit that is lowered and raised again grants nothing,
    ///   and 10,000 a day lowered to 100 a day locks out for about a day after a full burst.
    /// - **The wait** of a denied request is exact under the current limit. If a lower limit begins
    ///   or a higher one ends meanwhile, the request may have to wait longer.
    /// - **A second override** of the key replaces the first, whichever ends later. Neither
    ///   [`reset`](Self::reset) nor a block ends an override.
    /// - **It ends** after this length by the clock of the store, at most 285 years.
    /// - **It is shared** by all limiters over one store that share the state of the policy: the
    ///   same name and algorithm.
    ///
    /// [`MemoryStore`](crate::MemoryStore) bounds how many keys of a policy may have an override.
    ///
    /// # Errors
    ///
    /// At once, when
    ///
    /// - the limiter has no policy of this name, or the policy has no limit,
    /// - the policy has a [factor](crate::Policy::factor), or is on [concurrency](crate::Concurrency),
    /// - the new limit is of another kind or period, or
    /// - the length is zero.
    ///
    /// Once awaited, when the store cannot tell whether the key has the override, and when it has no room for another
    /// one.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use std::time::Duration;
    /// use tower_ratelimit::{FixedWindow, Limiter, ManualClock, MemoryStore, Policy};
    ///
    /// let clock = ManualClock::new();
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("hourly", FixedWindow::per_hour(10)))
    ///     .store(MemoryStore::new().clock(clock.clone()))
    ///     .build_local()?;
    /// assert!(limiter.check("ann", 10).now().is_allowed());
    ///
    /// let more = FixedWindow::per_hour(15);
    /// limiter.override_limit("hourly", "ann", more, Duration::from_secs(86_400))?.now()?;
    /// assert!(limiter.check("ann", 5).now().is_allowed());
    /// assert!(!limiter.check("ann", 1).now().is_allowed());
    /// assert_eq!(limiter.check("bob", 0).now().binding().unwrap().1.limit(), 10);
    ///
    /// clock.advance(Duration::from_secs(86_400));
    /// assert_eq!(limiter.check("ann", 0).now().binding().unwrap().1.limit(), 10);
    ///
    /// let error = limiter
    ///     .override_limit("hourly", "ann", FixedWindow::per_day(100), Duration::MAX)
    ///     .unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "`limit` cannot be fixed-window 100/day: give one that differs from that of \
    ///      \"hourly\", fixed-window 10/hour, in its numbers alone, not in its kind or its period",
    /// );
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn override_limit(
        &self,
        policy: &str,
        key: impl IntoKey,
        limit: impl Into<Algorithm>,
        length: Duration,
    ) -> Result<Override<'_, L>, ConfigError> {
        let verb = self.overriding(policy, key, &limit.into(), length)?;
        Ok(Override(self.asks(verb)))
    }

    /// Ends the override of this key under this policy, if there is one.
    ///
    /// # Errors
    ///
    /// At once, when the limiter has no policy of this name. Once awaited, when the store cannot tell whether the override
    /// has ended.
    pub fn end_override(
        &self,
        policy: &str,
        key: impl IntoKey,
    ) -> Result<Ask<'_, impl Verb<Answer = ()>, L>, ConfigError> {
        let named = self.demands([(policy, key, 0)])?;
        Ok(self.asks(Amend::of(named, Amendment::EndOverride)))
    }

    /// Checks an override.
    fn overriding(
        &self,
        policy: &str,
        key: impl IntoKey,
        limit: &Algorithm,
        length: Duration,
    ) -> Result<Amend<Named>, ConfigError> {
        let named = self.demands([(policy, key, 0)])?;
        let findings = named.look(self).now();
        let first = |charges: &[Charge]| charges.first().copied();
        let charged = self.with_charges_named(&named, &findings, Purpose::Amend, first);
        let Some(charge) = charged else {
            let remedy = "name a policy that has a limit: this one is unlimited for all";
            return Err(ConfigError::quoting("policy", policy, remedy));
        };
        let its = &self.policies.algorithms[charge.policy];
        if its.limits_concurrency() {
            let remedy =
                "name a policy on a rate: a concurrency limit is set by the policy or by a plan";
            return Err(ConfigError::quoting("policy", policy, remedy));
        }
        if self.policies.prices.has(charge.policy) {
            let remedy = "name a policy without a factor: a key with a limit of its own would not keep to the factor";
            return Err(ConfigError::quoting("policy", policy, remedy));
        }
        if self.policies.divided.contains(&charge.policy) {
            let remedy = "name a policy without `fair`: its tenants share one limit";
            return Err(ConfigError::quoting("policy", policy, remedy));
        }
        let fits = limit.differs_in_its_limit_alone(its);
        let Some(numbers) = limit.limits().filter(|_| fits) else {
            let remedy = format!(
                "give one that differs from that of {policy:?}, {its}, in its numbers alone, not in its \
                 kind or its period",
            );
            return Err(ConfigError::new("limit", limit, remedy));
        };
        match Micros::from(length) {
            Micros::ZERO => {
                let remedy = "give a microsecond or more; `end_override` ends one";
                Err(ConfigError::new(
                    "length",
                    format_args!("{length:?}"),
                    remedy,
                ))
            }
            length => Ok(Amend::of(named, Amendment::Override(numbers, length))),
        }
    }
}

/// An [`Ask`] for another limit of a key, for which the store in this process may have no room.
#[must_use = "nothing happens until it is awaited, or `now` is called"]
#[derive(Debug)]
pub struct Override<'a, L: ?Sized + Backend = dyn Backend>(Ask<'a, Amend<Named>, L>);

impl Override<'_, MemoryBackend> {
    /// Asks the store in this process, which always answers at once.
    ///
    /// # Errors
    ///
    /// When there is no room for another override.
    pub fn now(self) -> Result<(), ConfigError> {
        match self.0.into_future() {
            Reply::Now(Err(_)) => {
                let remedy = "end some with `end_override`, or let them end sooner";
                Err(ConfigError::new(
                    "overrides",
                    "more than 10,000 of one policy",
                    remedy,
                ))
            }
            _ => Ok(()),
        }
    }
}

impl<L: Backend + ?Sized> IntoFuture for Override<'_, L> {
    type Output = Result<(), StoreError>;
    type IntoFuture = Reply<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.0.into_future()
    }
}
