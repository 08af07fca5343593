//! The verbs of a limiter that change the state of a key, without a decision.
//!
//! Each verb has two forms, as in [`verbs`](super::verbs).

use std::time::Duration;

use super::{Limiter, LocalLimiter, Purpose};
use crate::error::StoreError;
use crate::key::IntoKey;
use crate::store::{Amendment, Charge, Ledger};

impl LocalLimiter {
    /// Gives units back that were charged to this key, under every policy, for work that was not done.
    ///
    /// At most the units in use are given back: of a window, the units that still count, the latest first; of
    /// a bucket, the debt.
    ///
    /// Every policy gets the same amount back. Where policies count different things, such as requests and
    /// tokens, name the policies: [`refund_with_now`](Self::refund_with_now).
    ///
    /// ```
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("mails", FixedWindow::per_hour(10)))
    ///     .build_local()?;
    ///
    /// assert!(limiter.check_now("ann", 10).is_allowed());
    /// limiter.refund_now("ann", 3);
    /// assert!(limiter.check_now("ann", 3).is_allowed());
    /// assert!(!limiter.check_now("ann", 1).is_allowed());
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn refund_now(&self, key: impl IntoKey, units: u32) {
        self.amend_now(
            &self.charges_now(key.into_key(), units, Purpose::GiveBack),
            Amendment::Refund,
        );
    }

    /// Charges this key more units under every policy, for work that took more than its estimate.
    ///
    /// All units count, even if there is no room for them. Nothing is denied now; later requests
    /// are denied until there is room again.
    ///
    /// - A window counts units above its limit too (up to 2^32 − 1 in all), until it ends.
    /// - A bucket owes up to twice its capacity. A debt above that is forgiven.
    /// - A [`LeakyQueue`](crate::LeakyQueue) delays the requests that come later.
    /// - A blocked key is charged, and so is a key under a [soft](crate::Policy::soft) policy.
    /// - 0 units change nothing.
    ///
    /// If the work took less than its estimate, give back the rest with
    /// [`refund_now`](Self::refund_now).
    ///
    /// Every policy is charged the same amount. Where one policy counts tokens and another requests, 4,000
    /// tokens settled here are 4,000 requests too: name the policy with
    /// [`settle_with_now`](Self::settle_with_now).
    ///
    /// ```
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("requests", FixedWindow::per_minute(3_000)))
    ///     .policy(Policy::new("tokens", FixedWindow::per_minute(100_000)))
    ///     .build_local()?;
    ///
    /// limiter.settle_now("ann", 4_000);
    /// assert_eq!(limiter.check_now("ann", 1).binding().unwrap().0, "requests");
    ///
    /// limiter.settle_with_now([("tokens", "bob", 4_000)])?;
    /// assert!(limiter.check_now("bob", 1).is_allowed());
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    ///
    /// Under one policy:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_ratelimit::{Limiter, ManualClock, MemoryStore, Policy, TokenBucket};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("tokens", TokenBucket::per_second(100).burst(1_000)))
    ///     .store(MemoryStore::new().clock(ManualClock::new()))
    ///     .build_local()?;
    ///
    /// // A prompt of 300 tokens, and an answer of 900, whose length was unknown.
    /// assert!(limiter.check_now("ann", 300).is_allowed());
    /// limiter.settle_now("ann", 900);
    ///
    /// let denied = limiter.check_now("ann", 300);
    /// assert_eq!(denied.retry_after(), Some(Duration::from_secs(5)));
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn settle_now(&self, key: impl IntoKey, units: u32) {
        self.amend_now(
            &self.charges_now(key.into_key(), units, Purpose::Amend),
            Amendment::Settle,
        );
    }

    /// Makes this key as good as new under every policy: nothing of its limits is used any more. A block stays,
    /// which [`unblock_now`](Self::unblock_now) ends, and so does an override.
    pub fn reset_now(&self, key: impl IntoKey) {
        self.amend_now(
            &self.charges_now(key.into_key(), 0, Purpose::Amend),
            Amendment::Reset,
        );
    }

    /// Blocks this key under every policy for this long from now on, at most 285 years.
    ///
    /// - Until the block ends, every request of the key is denied and charges nothing, including requests of
    ///   cost 0 and requests under a [soft](crate::Policy::soft) policy.
    /// - Nothing remains, and the wait lasts to the end of the block, whatever the cost. If a
    ///   policy requires a longer wait, the decision tells that wait.
    /// - [`Outcome::is_blocked`](crate::Outcome::is_blocked) distinguishes a block from a used up
    ///   limit.
    /// - After the block, the key is as it would have been without it.
    /// - Of two blocks, the one that ends later counts. To shorten a block, call
    ///   [`unblock_now`](Self::unblock_now) first. [`reset_now`](Self::reset_now) does not end a
    ///   block.
    /// - An unlimited policy decides nothing, and blocks no key.
    ///
    /// Block the key that the requests of the client have: for a layer, `extractor.key_of(value)` with the
    /// policy's extractor, see [keys for an operator](crate::key#keys-for-an-operator).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_ratelimit::{FixedWindow, Limiter, ManualClock, MemoryStore, Policy};
    ///
    /// let clock = ManualClock::new();
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("logins", FixedWindow::per_minute(10)))
    ///     .store(MemoryStore::new().clock(clock.clone()))
    ///     .build_local()?;
    ///
    /// limiter.block_now("mallory", Duration::from_secs(3_600));
    /// let denied = limiter.check_now("mallory", 1);
    /// assert!(!denied.is_allowed());
    /// assert_eq!(denied.retry_after(), Some(Duration::from_secs(3_600)));
    /// assert!(denied.binding().unwrap().1.is_blocked());
    /// assert!(limiter.check_now("ann", 1).is_allowed());
    ///
    /// clock.advance(Duration::from_secs(3_600));
    /// assert!(limiter.check_now("mallory", 1).is_allowed());
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn block_now(&self, key: impl IntoKey, length: Duration) {
        let charges = self.charges_now(key.into_key(), 0, Purpose::Amend);
        self.amend_now(&charges, Amendment::Block(length.into()));
    }

    /// Ends the block of this key under every policy. Returns whether the key was blocked under any.
    ///
    /// `false` means that nothing is different for the requests of the key. If they are refused, the key has
    /// used up its limit, which [`reset_now`](Self::reset_now) gives back.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("logins", FixedWindow::per_hour(3)))
    ///     .build_local()?;
    ///
    /// limiter.block_now("mallory", Duration::from_secs(3_600));
    /// assert!(limiter.unblock_now("mallory"));
    /// assert!(limiter.check_now("mallory", 1).is_allowed());
    ///
    /// // Out of quota, and not blocked.
    /// assert!(limiter.check_now("ann", 3).is_allowed());
    /// assert!(!limiter.unblock_now("ann"));
    /// assert!(!limiter.check_now("ann", 1).is_allowed());
    /// limiter.reset_now("ann");
    /// assert!(limiter.check_now("ann", 1).is_allowed());
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn unblock_now(&self, key: impl IntoKey) -> bool {
        self.amend_now(
            &self.charges_now(key.into_key(), 0, Purpose::Amend),
            Amendment::Unblock,
        )
    }
}

impl LocalLimiter {
    /// Changes the state of a key in this process, and returns what [`Ledger::amend`] answers.
    pub(super) fn amend_now(&self, charges: &[Charge], amendment: Amendment) -> bool {
        self.policies.count_amended(charges, amendment);
        let amended = self.ledger.inner().amend_now(charges, amendment);
        // Only an override can fail, for lack of room.
        amended.unwrap_or(false)
    }
}

impl<L: Ledger + ?Sized> Limiter<L> {
    /// Gives units back that this key was charged, under every policy, in any store; see
    /// [`refund_now`](Limiter::refund_now). To name policies, see [`refund_with`](Self::refund_with).
    ///
    /// # Errors
    ///
    /// When it is unknown whether the units were given back.
    pub fn refund(
        &self,
        key: impl IntoKey,
        units: u32,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + 'static {
        self.amend(
            &self.charges_now(key.into_key(), units, Purpose::GiveBack),
            Amendment::Refund,
        )
    }

    /// Charges this key more units under every policy, after the fact, in any store; see
    /// [`settle_now`](Limiter::settle_now). To name policies, see [`settle_with`](Self::settle_with).
    ///
    /// # Errors
    ///
    /// When it is unknown whether the units were charged.
    pub fn settle(
        &self,
        key: impl IntoKey,
        units: u32,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + 'static {
        self.amend(
            &self.charges_now(key.into_key(), units, Purpose::Amend),
            Amendment::Settle,
        )
    }

    /// Makes this key as good as new under every policy, in any store; see
    /// [`reset_now`](Limiter::reset_now).
    ///
    /// # Errors
    ///
    /// When it is unknown whether the key was reset.
    pub fn reset(
        &self,
        key: impl IntoKey,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + 'static {
        self.amend(
            &self.charges_now(key.into_key(), 0, Purpose::Amend),
            Amendment::Reset,
        )
    }

    /// Blocks this key under every policy, from now on and for this long, in any store; see
    /// [`block_now`](Limiter::block_now), which says which key that is.
    ///
    /// # Errors
    ///
    /// When it is unknown whether the key is blocked.
    pub fn block(
        &self,
        key: impl IntoKey,
        length: Duration,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + 'static {
        let charges = self.charges_now(key.into_key(), 0, Purpose::Amend);
        self.amend(&charges, Amendment::Block(length.into()))
    }

    /// Ends the block of this key under every policy, in any store. Returns whether the key was blocked under
    /// any; if not, a key that is refused needs a [`reset`](Self::reset): see
    /// [`unblock_now`](Limiter::unblock_now).
    ///
    /// # Errors
    ///
    /// When it is unknown whether the block has ended.
    pub fn unblock(
        &self,
        key: impl IntoKey,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send + 'static {
        self.amended(
            &self.charges_now(key.into_key(), 0, Purpose::Amend),
            Amendment::Unblock,
        )
    }
}
