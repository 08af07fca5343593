//! Further verbs of a limiter: decisions under named policies, for as many units as there are, and without a
//! charge.
//!
//! Each verb has two forms: `…_now` for the store in this process, and a future with the same meaning for any
//! store. The documentation of a verb is at `…_now`.

use std::sync::Arc;

use super::leased::AllLeased;
use super::{Charges, Inspection, Limiter, LocalLimiter, Purpose};
use crate::clock::Micros;
use crate::decision::{Decision, Outcomes};
use crate::error::{ConfigError, StoreError};
use crate::key::{IntoKey, Key};
use crate::plan::Finding;
use crate::store::{Ledger, answered};

impl LocalLimiter {
    /// Decides under the named policies, each with its own key and cost, and charges them if all
    /// allow it.
    ///
    /// Only the named policies decide. Without a name, the request is allowed. If the keys have different
    /// types, convert each to a [`Key`] with [`into_key`](IntoKey::into_key).
    ///
    /// # Errors
    ///
    /// When the limiter has no policy of a name, or a policy is named twice.
    ///
    /// ```
    /// use std::net::Ipv4Addr;
    /// use tower_ratelimit::key::IntoKey;
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("address", FixedWindow::per_minute(100)))
    ///     .policy(Policy::new("user", FixedWindow::per_day(1_000)))
    ///     .build_local()?;
    ///
    /// let decision = limiter.check_with_now([
    ///     ("address", Ipv4Addr::LOCALHOST.into_key(), 1),
    ///     ("user", "ann".into_key(), 25),
    /// ])?;
    /// assert!(decision.is_allowed());
    /// let user = limiter.check_with_now([("user", "ann", 1)])?;
    /// assert_eq!(user.binding().unwrap().1.remaining(), 974);
    ///
    /// let error = limiter.check_with_now([("usr", "ann", 1)]).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     r#"`policy` cannot be "usr": name one of address, user"#,
    /// );
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn check_with_now<'a, K: IntoKey>(
        &self,
        asked: impl IntoIterator<Item = (&'a str, K, u32)>,
    ) -> Result<Decision, ConfigError> {
        self.policies.mistakes.note_asked_apart();
        let charges = self.charges_by_name(asked, Purpose::Decide)?;
        let mut decision = self.decision(Outcomes::new(Micros::ZERO));
        decision.change(|outcomes| self.decide_all(&charges, outcomes));
        Ok(decision)
    }

    /// Describes the state of this key under every policy, in sentences for a person who asks why it was
    /// refused.
    ///
    /// It charges nothing.
    ///
    /// A key without requests is described as unused. The key of a layer's client is
    /// `extractor.key_of(value)` with the policy's extractor, see [keys for an
    /// operator](crate::key#keys-for-an-operator).
    ///
    /// ```
    /// use tower_ratelimit::{FixedWindow, Limiter, ManualClock, MemoryStore, Policy, TokenBucket};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("burst", TokenBucket::per_second(1).burst(2)))
    ///     .policy(Policy::new("hourly", FixedWindow::per_hour(100)))
    ///     .store(MemoryStore::new().clock(ManualClock::new()))
    ///     .build_local()?;
    ///
    /// assert!(limiter.check_now("ann", 2).is_allowed());
    /// assert_eq!(
    ///     limiter.inspect_now("ann").to_string(),
    ///     "burst: 2 of 2 used, none remains. One more in 1s, whole again in 2s.\n\
    ///      hourly: 2 of 100 used, 98 remain. Whole again in 1h.\n",
    /// );
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn inspect_now(&self, key: impl IntoKey) -> Inspection {
        let key = key.into_key();
        let refusals = self.refusals_now(&self.charges_now(key, 0, Purpose::Look));
        Inspection::new(self.peek_now(key, 0), refusals, AllLeased::new())
    }

    /// Returns the decision that [`check_now`](Self::check_now) would make, and charges nothing.
    ///
    /// ```
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("mails", FixedWindow::per_hour(10)))
    ///     .build_local()?;
    ///
    /// let batch = limiter.peek_now("ann", 8);
    /// assert!(batch.is_allowed());
    /// assert_eq!(batch.binding().unwrap().1.remaining(), 2);
    /// assert_eq!(limiter.peek_now("ann", 0).binding().unwrap().1.remaining(), 10);
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn peek_now(&self, key: impl IntoKey, cost: u32) -> Decision {
        let charges = self.charges_now(key.into_key(), cost, Purpose::Decide);
        let names = Arc::clone(&self.policies.names);
        let mut decision = Decision::new(names, self.ledger.inner().peek_now(&charges));
        decision.change(|outcomes| self.policies.prices.convert_to_units(&charges, outcomes));
        decision
    }

    /// Takes as many units as there are, up to `most`, in one step: the units that every policy grants, and
    /// the decision about them. If there are none, it returns 0 and the decision about one unit. A
    /// [soft](crate::Policy::soft) policy limits nothing, and is charged where it has room.
    ///
    /// If a policy has a [factor](crate::Policy::factor), it takes two steps: to ask how many there are and
    /// to take them. If other requests take them in between four times, it takes one unit at most.
    ///
    /// ```
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("mails", FixedWindow::per_hour(10)))
    ///     .build_local()?;
    ///
    /// assert_eq!(limiter.take_up_to_now("ann", 7).0, 7);
    /// assert_eq!(limiter.take_up_to_now("ann", 7).0, 3);
    /// let (none, decision) = limiter.take_up_to_now("ann", 7);
    /// assert_eq!(none, 0);
    /// assert!(decision.retry_after().is_some());
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn take_up_to_now(&self, key: impl IntoKey, most: u32) -> (u32, Decision) {
        let key = key.into_key();
        if self.policies.prices.are_any() {
            return self.take_priced(key, most);
        }
        let most = self.most_at_once(key, most);
        let mut charges = self.charges_now(key, most, Purpose::Decide);
        if most == 0 || charges.is_empty() {
            return (most, self.peek_now(key, 0));
        }
        let (units, outcomes) = self.take_now(&charges);
        self.policies.count_taken(&mut charges, units, &outcomes);
        (units, self.decision(outcomes))
    }

    /// Takes as many units as there are at the present price, for which the store has no step of its own.
    fn take_priced(&self, key: Key, most: u32) -> (u32, Decision) {
        for _ in 0..TRIES {
            let units = takeable(&self.peek_now(key, 0), most);
            if units == 0 {
                break;
            }
            let decision = self.check_now(key, units);
            if decision.is_allowed() {
                return (units, decision);
            }
        }
        let denied = self.peek_now(key, most.min(1));
        if most == 0 || !denied.is_allowed() {
            return (0, denied);
        }
        // Units were given back meanwhile. One of them, in one step, has a verdict that agrees with the number.
        let decision = self.check_now(key, 1);
        (decision.is_allowed().into(), decision)
    }
}

/// How often the question is repeated if other requests take the units meanwhile.
const TRIES: usize = 4;

/// Returns how many units all policies have, up to `most`.
fn takeable(decision: &Decision, most: u32) -> u32 {
    let limiting = decision
        .policies()
        .filter(|(_, outcome)| !outcome.is_soft() && !outcome.is_shadow());
    let remaining = limiting.map(|(_, outcome)| outcome.remaining());
    remaining
        .min()
        .map_or(most, |remaining| remaining.min(most))
}

impl<L: Ledger + ?Sized> Limiter<L> {
    /// Decides under the named policies, each with its own key and cost, in any store; see
    /// [`check_with_now`](Limiter::check_with_now).
    ///
    /// The store in this process decides during this call. Any other store may begin only when the
    /// future is first polled.
    ///
    /// # Errors
    ///
    /// At once, when the limiter has no policy of a name, or a policy is named twice. From the
    /// future, when the store cannot decide.
    ///
    /// ```
    /// # use tower_ratelimit::{FixedWindow, Limiter, Policy};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let limiter = Limiter::builder().policy(Policy::new("user", FixedWindow::per_day(1))).build()?;
    /// let decision = limiter.check_with([("user", "ann", 1)])?.await?;
    /// assert!(decision.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    pub fn check_with<'a, K: IntoKey>(
        &self,
        asked: impl IntoIterator<Item = (&'a str, K, u32)>,
    ) -> Result<impl Future<Output = Result<Decision, StoreError>> + Send + 'static, ConfigError>
    {
        self.deciding_by_name(asked)
    }

    /// Describes the state of this key under every policy, in any store; see
    /// [`inspect_now`](Limiter::inspect_now), which says which key that is.
    ///
    /// # Errors
    ///
    /// When the store cannot answer; the in-process store always can.
    pub fn inspect(
        &self,
        key: impl IntoKey,
    ) -> impl Future<Output = Result<Inspection, StoreError>> + Send + 'static {
        let key = key.into_key();
        self.once_found(key, move |limiter, finding| {
            let charges = limiter.charges_alike(limiter.asker(), (key, 0), Purpose::Look, finding);
            let (refusals, leased) = (limiter.refusals(&charges), limiter.leased(&charges));
            let peeked = limiter.peek_found((key, 0), finding);
            async move { Ok(Inspection::new(peeked.await?, refusals.await, leased.await)) }
        })
    }

    /// Takes as many units as there are, up to `most`, in any store; see
    /// [`take_up_to_now`](Limiter::take_up_to_now).
    ///
    /// The store is asked at once, not when the future is first polled, unless a policy has a
    /// [factor](crate::Policy::factor).
    ///
    /// # Errors
    ///
    /// When the store cannot decide. It may have charged the units all the same.
    pub fn take_up_to(
        &self,
        key: impl IntoKey,
        most: u32,
    ) -> impl Future<Output = Result<(u32, Decision), StoreError>> + Send + 'static {
        let key = key.into_key();
        self.once_found(key, move |limiter, finding| {
            let most = limiter.most_at_once(key, most);
            let mut charges = limiter.charges_found((key, most), finding);
            let taken = match (most, &*charges) {
                // There is nothing to take, or no policy that limits it.
                (0, _) | (_, []) => {
                    let told = limiter.ledger.peek(&charges);
                    Ok(told.map(move |answer| Ok((most, answer?))))
                }
                _ if limiter.policies.prices.are_any() => Err(limiter.clone()),
                _ => Ok(limiter.take(&charges)),
            };
            let policies = Arc::clone(&limiter.policies);
            async move {
                let (units, outcomes) = match taken {
                    Ok(reply) => reply.wait().await?,
                    Err(priced) => return Box::pin(priced.take_priced_in_any(key, most)).await,
                };
                let mut outcomes = answered(&charges, Ok(outcomes))?;
                policies.prices.convert_to_units(&charges, &mut outcomes);
                if most > 0 {
                    policies.count_taken(&mut charges, units, &outcomes);
                }
                Ok((units, Decision::new(Arc::clone(&policies.names), outcomes)))
            }
        })
    }

    /// Returns the charges of all policies for one key at one cost, with the finding of a resolver.
    fn charges_found(&self, asked: (Key, u32), finding: Option<&Finding>) -> Charges {
        self.charges_alike(self.asker(), asked, Purpose::Decide, finding)
    }

    /// Takes as many units as there are at the present price, for which a store has no step of its own.
    async fn take_priced_in_any(self, key: Key, most: u32) -> Result<(u32, Decision), StoreError> {
        for _ in 0..TRIES {
            let units = takeable(&self.peek(key, 0).await?, most);
            if units == 0 {
                break;
            }
            let decision = self.check(key, units).await?;
            if decision.is_allowed() {
                return Ok((units, decision));
            }
        }
        let denied = self.peek(key, most.min(1)).await?;
        if most == 0 || !denied.is_allowed() {
            return Ok((0, denied));
        }
        let decision = self.check(key, 1).await?;
        Ok((decision.is_allowed().into(), decision))
    }

    /// Returns the decision that [`check`](Self::check) would make, and charges nothing.
    ///
    /// # Errors
    ///
    /// When the store cannot answer; the in-process store always can.
    pub fn peek(
        &self,
        key: impl IntoKey,
        cost: u32,
    ) -> impl Future<Output = Result<Decision, StoreError>> + Send + 'static {
        let key = key.into_key();
        self.once_found(key, move |limiter, finding| {
            limiter.peek_found((key, cost), finding)
        })
    }

    fn peek_found(
        &self,
        asked: (Key, u32),
        finding: Option<&Finding>,
    ) -> impl Future<Output = Result<Decision, StoreError>> + Send + 'static + use<L> {
        self.peek_about(self.charges_found(asked, finding))
    }

    /// Returns the decision that these charges would have.
    pub(crate) fn peek_about(
        &self,
        charges: Charges,
    ) -> impl Future<Output = Result<Decision, StoreError>> + Send + 'static + use<L> {
        let reply = self.ledger.peek(&charges);
        let policies = Arc::clone(&self.policies);
        async move {
            let mut outcomes = answered(&charges, reply.wait().await)?;
            policies.prices.convert_to_units(&charges, &mut outcomes);
            Ok(Decision::new(Arc::clone(&policies.names), outcomes))
        }
    }
}
