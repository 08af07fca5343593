//! The verbs of a limiter that change the state of a key, without a decision.

use std::convert;
use std::time::Duration;

use super::ask::sealed::Sealed;
use super::ask::{Ask, Verb};
use super::findings::Findings;
use super::subject::{Alike, Subject};
use super::{Limiter, LocalLimiter, Purpose};
use crate::error::StoreError;
use crate::key::IntoKey;
use crate::store::{Amendment, Backend, Charge, Reply};

impl<L: Backend + ?Sized> Limiter<L> {
    /// Gives units back that were charged to this key, under every policy, for work that was not done.
    ///
    /// At most the units in use are given back: of a window, the units that still count, the latest first; of
    /// a bucket, the debt.
    ///
    /// Every policy gets the same amount back. Where policies count different things, such as requests and
    /// tokens, [name](Self::named) the policies.
    ///
    /// # Errors
    ///
    /// When it is unknown whether the units were given back; the in-process store always answers.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("mails", FixedWindow::per_hour(10)))
    ///     .build_local()?;
    ///
    /// assert!(limiter.check("ann", 10).now().is_allowed());
    /// limiter.refund("ann", 3).now();
    /// assert!(limiter.check("ann", 3).now().is_allowed());
    /// assert!(!limiter.check("ann", 1).now().is_allowed());
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn refund(&self, key: impl IntoKey, units: u32) -> Ask<'_, impl Verb<Answer = ()>, L> {
        let given_back = Amend::of(Alike::of(key, units), Amendment::Refund);
        self.asks(given_back.at_least_price())
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
    /// [`refund`](Self::refund).
    ///
    /// Every policy is charged the same amount. Where one policy counts tokens and another requests, 4,000
    /// tokens settled here are 4,000 requests too: [name](Self::named) the policy.
    ///
    /// # Errors
    ///
    /// When it is unknown whether the units were charged; the in-process store always answers.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("requests", FixedWindow::per_minute(3_000)))
    ///     .policy(Policy::new("tokens", FixedWindow::per_minute(100_000)))
    ///     .build_local()?;
    ///
    /// limiter.settle("ann", 4_000).now();
    /// assert_eq!(limiter.check("ann", 1).now().binding().unwrap().0, "requests");
    ///
    /// limiter.named([("tokens", "bob", 4_000)])?.settle().now();
    /// assert!(limiter.check("bob", 1).now().is_allowed());
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    ///
    /// Under one policy:
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use std::time::Duration;
    /// use tower_ratelimit::{Limiter, ManualClock, MemoryStore, Policy, TokenBucket};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("tokens", TokenBucket::per_second(100).burst(1_000)))
    ///     .store(MemoryStore::new().clock(ManualClock::new()))
    ///     .build_local()?;
    ///
    /// // A prompt of 300 tokens, and an answer of 900, whose length was unknown.
    /// assert!(limiter.check("ann", 300).now().is_allowed());
    /// limiter.settle("ann", 900).now();
    ///
    /// let denied = limiter.check("ann", 300).now();
    /// assert_eq!(denied.retry_after(), Some(Duration::from_secs(5)));
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn settle(&self, key: impl IntoKey, units: u32) -> Ask<'_, impl Verb<Answer = ()>, L> {
        self.asks(Amend::of(Alike::of(key, units), Amendment::Settle))
    }

    /// Makes this key as good as new under every policy: nothing of its limits is used any more. A block stays,
    /// which [`unblock`](Self::unblock) ends, and so does an override.
    ///
    /// # Errors
    ///
    /// When it is unknown whether the key was reset; the in-process store always answers.
    pub fn reset(&self, key: impl IntoKey) -> Ask<'_, impl Verb<Answer = ()>, L> {
        self.asks(Amend::of(Alike::of(key, 0), Amendment::Reset))
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
    ///   [`unblock`](Self::unblock) first. [`reset`](Self::reset) does not end a
    ///   block.
    /// - An unlimited policy decides nothing, and blocks no key.
    ///
    /// Block the key that the requests of the client have: for a layer, `extractor.key_of(value)` with the
    /// policy's extractor, see [keys for an operator](crate::key#keys-for-an-operator).
    ///
    /// # Errors
    ///
    /// When it is unknown whether the key is blocked; the in-process store always answers.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use std::time::Duration;
    /// use tower_ratelimit::{FixedWindow, Limiter, ManualClock, MemoryStore, Policy};
    ///
    /// let clock = ManualClock::new();
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("logins", FixedWindow::per_minute(10)))
    ///     .store(MemoryStore::new().clock(clock.clone()))
    ///     .build_local()?;
    ///
    /// limiter.block("mallory", Duration::from_secs(3_600)).now();
    /// let denied = limiter.check("mallory", 1).now();
    /// assert!(!denied.is_allowed());
    /// assert_eq!(denied.retry_after(), Some(Duration::from_secs(3_600)));
    /// assert!(denied.binding().unwrap().1.is_blocked());
    /// assert!(limiter.check("ann", 1).now().is_allowed());
    ///
    /// clock.advance(Duration::from_secs(3_600));
    /// assert!(limiter.check("mallory", 1).now().is_allowed());
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn block(&self, key: impl IntoKey, length: Duration) -> Ask<'_, impl Verb<Answer = ()>, L> {
        let block = Amendment::Block(length.into());
        self.asks(Amend::of(Alike::of(key, 0), block))
    }

    /// Ends the block of this key under every policy. Returns whether the key was blocked under any.
    ///
    /// `false` means that nothing is different for the requests of the key. If they are refused, the key has
    /// used up its limit, which [`reset`](Self::reset) gives back.
    ///
    /// # Errors
    ///
    /// When it is unknown whether the block has ended; the in-process store always answers.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use std::time::Duration;
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("logins", FixedWindow::per_hour(3)))
    ///     .build_local()?;
    ///
    /// limiter.block("mallory", Duration::from_secs(3_600)).now();
    /// assert!(limiter.unblock("mallory").now());
    /// assert!(limiter.check("mallory", 1).now().is_allowed());
    ///
    /// // Out of quota, and not blocked.
    /// assert!(limiter.check("ann", 3).now().is_allowed());
    /// assert!(!limiter.unblock("ann").now());
    /// assert!(!limiter.check("ann", 1).now().is_allowed());
    /// limiter.reset("ann").now();
    /// assert!(limiter.check("ann", 1).now().is_allowed());
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn unblock(&self, key: impl IntoKey) -> Ask<'_, impl Verb<Answer = bool>, L> {
        let unblock = Amend::answering(Alike::of(key, 0), Amendment::Unblock, convert::identity);
        self.asks(unblock)
    }
}

/// Changes the state of keys. It waits for no resolver.
pub(super) struct Amend<S, A = ()> {
    subject: S,
    purpose: Purpose,
    amendment: Amendment,
    /// Makes an answer of that of [`Backend::amend`].
    answer: fn(bool) -> A,
}

impl<S> Amend<S> {
    pub(super) fn of(subject: S, amendment: Amendment) -> Self {
        Self::answering(subject, amendment, drop)
    }

    pub(super) fn at_least_price(self) -> Self {
        Self {
            purpose: Purpose::GiveBack,
            ..self
        }
    }
}

impl<S, A> Amend<S, A> {
    fn answering(subject: S, amendment: Amendment, answer: fn(bool) -> A) -> Self {
        Self {
            subject,
            purpose: if amendment.settles() {
                Purpose::Amend
            } else {
                Purpose::Manage
            },
            amendment,
            answer,
        }
    }
}

impl<S, A> Sealed for Amend<S, A> {}

impl<S: Subject, A: Default + Send + 'static> Verb for Amend<S, A> {
    type Answer = A;

    fn ask<L: Backend + ?Sized>(
        self,
        limiter: &Limiter<L>,
        _: &Findings,
    ) -> Reply<Result<A, StoreError>> {
        let findings = self.subject.look(limiter).now();
        let amend = |charges: &[Charge]| limiter.amended(charges, self.amendment);
        let amended = self
            .subject
            .with_charges(limiter, &findings, self.purpose, amend);
        amended.map(move |amended| amended.map(self.answer))
    }

    fn now(self, limiter: &LocalLimiter) -> A {
        self.at_once(limiter).unwrap_or_default()
    }
}
