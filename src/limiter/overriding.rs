//! Another limit for one key, for a while.

use std::time::Duration;

use super::Limiter;
use crate::algorithm::Algorithm;
use crate::clock::Micros;
use crate::error::{ConfigError, StoreError};
use crate::key::IntoKey;
use crate::store::{Charge, Ledger};

impl Limiter {
    /// Lets this key have another limit under this policy, for so long from now on: more for a
    /// customer who bought more today, or less for one who is to be slowed down. Everything that is
    /// asked about the key goes by it, and tells its numbers.
    ///
    /// The limit is an algorithm of the policy's kind and period, with any limit; of a bucket, with
    /// any rate for that period and any capacity; of a queue, with any places.
    ///
    /// What was used stays used, now and at the end: windows compare what they have counted with the
    /// limit of that moment, and a bucket keeps the requests that it owes (to within one), cut to the
    /// new capacity. So nothing is filled again, and nobody waits for longer than the new limit's
    /// longest wait.
    ///
    /// Another override of the key takes the place of the one before, whichever ends later.
    /// [`reset_now`](Self::reset_now) does not end it, and neither does a block.
    /// It ends by the store's clock after this length, of 285 years at most.
    ///
    /// The key is asked by its policy's name and algorithm: limiters over one store that share the
    /// state of the policy share its overrides. So many keys under one policy can have a limit of their
    /// own that [`MemoryStore`](crate::MemoryStore) tells.
    ///
    /// # Errors
    ///
    /// When the limiter has no policy of this name, or that has no limit; when the limit is of another
    /// kind or period; when the length is zero; when there is no room for another.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_ratelimit::{FixedWindow, Limiter, ManualClock, MemoryStore, Policy};
    ///
    /// let clock = ManualClock::new();
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("hourly", FixedWindow::per_hour(10)))
    ///     .store(MemoryStore::new().clock(clock.clone()))
    ///     .build()?;
    /// assert!(limiter.check_now("ann", 10).is_allowed());
    ///
    /// let more = FixedWindow::per_hour(15);
    /// limiter.override_limit_now("hourly", "ann", more, Duration::from_secs(86_400))?;
    /// assert!(limiter.check_now("ann", 5).is_allowed());
    /// assert!(!limiter.check_now("ann", 1).is_allowed());
    /// assert_eq!(limiter.check_now("bob", 0).binding().unwrap().1.limit(), 10);
    ///
    /// clock.advance(Duration::from_secs(86_400));
    /// assert_eq!(limiter.check_now("ann", 0).binding().unwrap().1.limit(), 10);
    ///
    /// let error = limiter
    ///     .override_limit_now("hourly", "ann", FixedWindow::per_day(100), Duration::MAX)
    ///     .unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "`limit` cannot be fixed-window 100/day: give one that differs from that of \
    ///      \"hourly\", fixed-window 10/hour, in its numbers alone, not in its kind or its period",
    /// );
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn override_limit_now(
        &self,
        policy: &str,
        key: impl IntoKey,
        limit: impl Into<Algorithm>,
        length: Duration,
    ) -> Result<(), ConfigError> {
        let limit = limit.into();
        let (charge, length) = self.overriding(policy, key, &limit, length)?;
        let done = self.ledger.override_limit_now(&charge, &limit, length);
        done.map_err(|_| {
            let remedy = "end some with `end_override`, or let them end sooner";
            ConfigError::new("overrides", "more than 10,000 of one policy", remedy)
        })
    }

    /// Lets the limit of this key be that of the policy again, if it is another.
    ///
    /// # Errors
    ///
    /// When the limiter has no policy of this name.
    pub fn end_override_now(&self, policy: &str, key: impl IntoKey) -> Result<(), ConfigError> {
        let charges = self.charges_by_name([(policy, key, 0)])?;
        self.ledger.end_override_now(&charges);
        Ok(())
    }
}

impl<L: Ledger + ?Sized> Limiter<L> {
    /// Lets this key have another limit under this policy, for so long from now on; as
    /// [`override_limit_now`](Limiter::override_limit_now), in any store.
    ///
    /// # Errors
    ///
    /// At once, when the limiter has no policy of this name, or that has no limit; when the limit is of
    /// another kind or period; when the length is zero. From the future, when the store cannot tell
    /// whether the key has it, and when it has no room for another.
    pub fn override_limit(
        &self,
        policy: &str,
        key: impl IntoKey,
        limit: impl Into<Algorithm>,
        length: Duration,
    ) -> Result<impl Future<Output = Result<(), StoreError>> + Send + 'static, ConfigError> {
        let limit = limit.into();
        let (charge, length) = self.overriding(policy, key, &limit, length)?;
        let reply = self.ledger.override_limit(&charge, &limit, length);
        Ok(reply.wait())
    }

    /// Lets the limit of this key be that of the policy again; as
    /// [`end_override_now`](Limiter::end_override_now), in any store.
    ///
    /// # Errors
    ///
    /// At once, when the limiter has no policy of this name. From the future, when the store cannot
    /// tell whether it is.
    pub fn end_override(
        &self,
        policy: &str,
        key: impl IntoKey,
    ) -> Result<impl Future<Output = Result<(), StoreError>> + Send + 'static, ConfigError> {
        let charges = self.charges_by_name([(policy, key, 0)])?;
        let reply = self.ledger.end_override(&charges);
        Ok(reply.wait())
    }

    /// Whose limit is to be another, and for how long.
    fn overriding(
        &self,
        policy: &str,
        key: impl IntoKey,
        limit: &Algorithm,
        length: Duration,
    ) -> Result<(Charge, Micros), ConfigError> {
        let charges = self.charges_by_name([(policy, key, 0)])?;
        let Some(charge) = charges.first() else {
            let remedy = "name a policy that has a limit: this one is unlimited for all";
            return Err(ConfigError::quoting("policy", policy, remedy));
        };
        let its = &self.policies.algorithms[charge.policy];
        if !limit.differs_in_its_limit_alone(its) {
            let remedy = format!(
                "give one that differs from that of {policy:?}, {its}, in its numbers alone, not in its \
                 kind or its period",
            );
            return Err(ConfigError::new("limit", limit, remedy));
        }
        match Micros::from(length) {
            Micros::ZERO => {
                let remedy = "give a microsecond or more; `end_override` ends one";
                Err(ConfigError::new(
                    "length",
                    format_args!("{length:?}"),
                    remedy,
                ))
            }
            length => Ok((*charge, length)),
        }
    }
}
