//! Amounts for some policies by name.

use super::{Limiter, LocalLimiter};
use crate::error::{ConfigError, StoreError};
use crate::key::IntoKey;
use crate::store::{Amendment, Ledger};

impl LocalLimiter {
    /// Gives units back under these policies, each for a key of its own, as [`refund_now`](Self::refund_now)
    /// does under all policies. Other policies are unchanged.
    ///
    /// # Errors
    ///
    /// When the limiter has no policy of a name, or a policy is named twice. Then nothing is given back.
    ///
    /// ```
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("requests", FixedWindow::per_minute(60)))
    ///     .policy(Policy::new("tokens", FixedWindow::per_minute(10_000)))
    ///     .build_local()?;
    ///
    /// // An estimate of 4,000 tokens, of which 1,000 were used.
    /// let asked = [("requests", "ann", 1), ("tokens", "ann", 4_000)];
    /// assert!(limiter.check_with_now(asked)?.is_allowed());
    /// limiter.refund_with_now([("tokens", "ann", 3_000)])?;
    ///
    /// let used: Vec<_> = limiter.peek_now("ann", 0).policies().map(|(_, told)| told.used()).collect();
    /// assert_eq!(used, [1, 1_000]);
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn refund_with_now<'a, K: IntoKey>(
        &self,
        amounts: impl IntoIterator<Item = (&'a str, K, u32)>,
    ) -> Result<(), ConfigError> {
        let charges = self.asked_by_name_at_least(amounts)?;
        self.amend_now(&charges, Amendment::Refund);
        Ok(())
    }

    /// Charges more units under these policies, each for a key of its own, after the fact, as
    /// [`settle_now`](Self::settle_now) does under all policies. Other policies are charged nothing.
    ///
    /// # Errors
    ///
    /// When the limiter has no policy of a name, or a policy is named twice. Then nothing is charged.
    ///
    /// ```
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("requests", FixedWindow::per_minute(60)))
    ///     .policy(Policy::new("tokens", FixedWindow::per_minute(10_000)))
    ///     .build_local()?;
    ///
    /// // A prompt of 300 tokens, and an answer of 4,000.
    /// let asked = [("requests", "ann", 1), ("tokens", "ann", 300)];
    /// assert!(limiter.check_with_now(asked)?.is_allowed());
    /// limiter.settle_with_now([("tokens", "ann", 4_000)])?;
    ///
    /// let used: Vec<_> = limiter.peek_now("ann", 0).policies().map(|(_, told)| told.used()).collect();
    /// assert_eq!(used, [1, 4_300]);
    ///
    /// let error = limiter.settle_with_now([("token", "ann", 1)]).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     r#"`policy` cannot be "token": name one of requests, tokens"#,
    /// );
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn settle_with_now<'a, K: IntoKey>(
        &self,
        amounts: impl IntoIterator<Item = (&'a str, K, u32)>,
    ) -> Result<(), ConfigError> {
        let charges = self.asked_by_name(amounts)?;
        self.amend_now(&charges, Amendment::Settle);
        Ok(())
    }
}

impl<L: Ledger + ?Sized> Limiter<L> {
    /// Gives units back under these policies, each for a key of its own, in any store; see
    /// [`refund_with_now`](Limiter::refund_with_now).
    ///
    /// The store is asked at once, not when the future is first polled.
    ///
    /// # Errors
    ///
    /// At once, when the limiter has no policy of a name, or a policy is named twice. From the future, when
    /// it is unknown whether all units were given back: of policies with different keys, some may have got
    /// theirs.
    pub fn refund_with<'a, K: IntoKey>(
        &self,
        amounts: impl IntoIterator<Item = (&'a str, K, u32)>,
    ) -> Result<impl Future<Output = Result<(), StoreError>> + Send + 'static, ConfigError> {
        let charges = self.asked_by_name_at_least(amounts)?;
        Ok(self.amend(&charges, Amendment::Refund))
    }

    /// Charges more units under these policies, each for a key of its own, after the fact, in any store; see
    /// [`settle_with_now`](Limiter::settle_with_now).
    ///
    /// The store is asked at once, not when the future is first polled.
    ///
    /// # Errors
    ///
    /// At once, when the limiter has no policy of a name, or a policy is named twice. From the future, when
    /// it is unknown whether all units were charged: of policies with different keys, some may have been
    /// charged.
    pub fn settle_with<'a, K: IntoKey>(
        &self,
        amounts: impl IntoIterator<Item = (&'a str, K, u32)>,
    ) -> Result<impl Future<Output = Result<(), StoreError>> + Send + 'static, ConfigError> {
        let charges = self.asked_by_name(amounts)?;
        Ok(self.amend(&charges, Amendment::Settle))
    }
}
