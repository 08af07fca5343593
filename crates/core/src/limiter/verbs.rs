//! The verbs of a limiter that tell whether requests may go on: with a charge, and without one.

use std::convert;
use std::sync::Arc;

use super::ask::sealed::Sealed;
use super::ask::{Ask, PlainVerb, Verb};
use super::counting::Decided;
use super::findings::{Findings, Looks};
use super::subject::{Alike, Subject};
use super::{Inspection, Limiter, LocalLimiter, Purpose};
use crate::clock::Micros;
use crate::decision::{Decision, Outcomes};
use crate::error::StoreError;
use crate::key::IntoKey;
use crate::policy::Mode;
use crate::store::{Backend, Charge, Charges, Reply, answered};

impl<L: Backend + ?Sized> Limiter<L> {
    /// Decides one request of this key at this cost, and charges every policy if all allow it.
    ///
    /// # Errors
    ///
    /// When the store cannot decide; the in-process store always can.
    #[inline]
    pub fn check(&self, key: impl IntoKey, cost: u32) -> Ask<'_, impl Verb<Answer = Decision>, L> {
        self.asks(Check(Alike::of(key, cost)))
    }

    /// Decides and charges as [`check`](Self::check) does, and answers only with the verdict.
    ///
    /// In this process, a decision without the numbers takes a fraction of the time.
    ///
    /// # Errors
    ///
    /// When the store cannot decide; the in-process store always can.
    #[inline]
    pub fn admit(&self, key: impl IntoKey, cost: u32) -> Ask<'_, impl Verb<Answer = bool>, L> {
        self.asks(Admit(Alike::of(key, cost)))
    }

    /// Returns the decision that [`check`](Self::check) would make, and charges nothing.
    ///
    /// # Errors
    ///
    /// When the store cannot answer; the in-process store always can.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("mails", FixedWindow::per_hour(10)))
    ///     .build_local()?;
    ///
    /// let batch = limiter.peek("ann", 8).now();
    /// assert!(batch.is_allowed());
    /// assert_eq!(batch.binding().unwrap().1.remaining(), 2);
    /// assert_eq!(limiter.peek("ann", 0).now().binding().unwrap().1.remaining(), 10);
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn peek(&self, key: impl IntoKey, cost: u32) -> Ask<'_, impl Verb<Answer = Decision>, L> {
        self.asks(peek(Alike::of(key, cost)))
    }

    /// Takes as many units as there are, up to `most`, in one step: the units that every policy grants, and
    /// the decision about them. If there are none, it answers with 0 and the decision about one unit. A
    /// [soft](crate::Policy::soft) policy limits nothing, and is charged where it has room.
    ///
    /// If a policy has a [factor](crate::Policy::factor), it takes two steps: to ask how many there are and
    /// to take them. If other requests take them in between four times, it takes one unit at most.
    ///
    /// # Errors
    ///
    /// When the store cannot decide. It may have charged the units all the same. The in-process store always can.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use tower_ratelimit::{FixedWindow, Limiter, Policy};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("mails", FixedWindow::per_hour(10)))
    ///     .build_local()?;
    ///
    /// assert_eq!(limiter.acquire_up_to("ann", 7).now().0, 7);
    /// assert_eq!(limiter.acquire_up_to("ann", 7).now().0, 3);
    /// let (none, decision) = limiter.acquire_up_to("ann", 7).now();
    /// assert_eq!(none, 0);
    /// assert!(decision.retry_after().is_some());
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn acquire_up_to(
        &self,
        key: impl IntoKey,
        most: u32,
    ) -> Ask<'_, impl Verb<Answer = (u32, Decision)>, L> {
        let nothing = |none| (0, none);
        self.asks(PlainVerb::new(Alike::of(key, most), Limiter::take, nothing))
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
    /// # Errors
    ///
    /// When the store cannot answer; the in-process store always can.
    ///
    /// ```
    /// # use tower_ratelimit_core as tower_ratelimit;
    /// use tower_ratelimit::{FixedWindow, Limiter, ManualClock, MemoryStore, Policy, TokenBucket};
    ///
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("burst", TokenBucket::per_second(1).burst(2)))
    ///     .policy(Policy::new("hourly", FixedWindow::per_hour(100)))
    ///     .store(MemoryStore::new().clock(ManualClock::new()))
    ///     .build_local()?;
    ///
    /// assert!(limiter.check("ann", 2).now().is_allowed());
    /// assert_eq!(
    ///     limiter.inspect("ann").now().to_string(),
    ///     "burst: 2 of 2 used, none remains. One more in 1s, whole again in 2s.\n\
    ///      hourly: 2 of 100 used, 98 remain. Whole again in 1h.\n",
    /// );
    /// # Ok::<(), tower_ratelimit::ConfigError>(())
    /// ```
    pub fn inspect(&self, key: impl IntoKey) -> Ask<'_, impl Verb<Answer = Inspection>, L> {
        let key = Alike::of(key, 0);
        self.asks(PlainVerb::new(key, Limiter::inspect_at, Inspection::new))
    }

    #[inline]
    pub(super) fn asks<V>(&self, verb: V) -> Ask<'_, V, L> {
        Ask {
            limiter: self,
            verb,
        }
    }

    /// Returns the decision that these charges would have.
    pub(crate) fn peek_about(&self, charges: &[Charge]) -> Reply<Result<Decision, StoreError>> {
        let peeked = self.backend.peek(charges);
        self.once_answered(charges, peeked, |policies, charges, answer| {
            let mut outcomes = answered(charges, answer)?;
            policies.prices.convert_to_units(charges, &mut outcomes);
            Ok(Decision::new(Arc::clone(&policies.names), outcomes))
        })
    }

    pub(super) fn no_decision(&self) -> Decision {
        self.policies.decision(Outcomes::new(Micros::ZERO))
    }
}

impl Limiter {
    fn peek_at<S: Subject>(
        &self,
        subject: &S,
        findings: &Findings,
    ) -> Reply<Result<Decision, StoreError>> {
        let peek = |charges: &[Charge]| self.peek_about(charges);
        subject.with_charges(self, findings, Purpose::Decide, peek)
    }

    fn inspect_at(&self, key: Alike, findings: &Findings) -> Reply<Result<Inspection, StoreError>> {
        let peek = |charges: &[Charge]| {
            // A look is at all policies, and none of them pays.
            let modes = &self.policies.modes;
            let mut each = Charges::from_slice(charges);
            each.retain(|charge| modes.of(charge.policy) != Mode::Off);
            for charge in &mut each {
                charge.alternative = None;
                if modes.of(charge.policy) == Mode::Shadow {
                    *charge = charge.shadow();
                }
            }
            self.peek_about(&each)
        };
        // The members of a group that a decision would leave out are looked at, too, and of tenants the one that is named.
        let policies = &self.policies;
        let purpose = if policies.groups.is_some() || policies.weights.is_some() {
            Purpose::Look
        } else {
            Purpose::Decide
        };
        let peeked = key.with_charges(self, findings, purpose, peek);
        let inspect = |charges: &[Charge]| self.inspect_beside(peeked, charges);
        key.with_charges(self, findings, Purpose::Look, inspect)
    }

    fn take(
        &self,
        Alike { key, cost: most }: Alike,
        findings: &Findings,
    ) -> Reply<Result<(u32, Decision), StoreError>> {
        let cost = self.most_at_once(key, most, findings.of(0));
        let alike = Alike { key, cost };
        alike.with_charges(self, findings, Purpose::Decide, |charges| {
            if cost == 0 || charges.is_empty() {
                // There is nothing to take, or no policy that limits it.
                let peeked = self.peek_about(charges);
                return peeked.map(move |peeked| Ok((cost, peeked?)));
            }
            if self.policies.prices.are_any() {
                return Reply::later(self.clone().take_priced(alike, findings.clone()));
            }
            let taken = self.policies.ask_for_units(charges);
            self.once_answered(charges, taken, |policies, charges, taken| {
                let (units, outcomes) = taken?;
                let charges = policies.taken_from(charges, &outcomes);
                let outcomes = answered(&charges, Ok(outcomes))?;
                let tallies = policies.tallies(&charges);
                let taken = tallies.map(|tally| tally.at_most(units));
                policies.count(taken, Decided::Outcomes(&outcomes));
                Ok((units, Decision::new(Arc::clone(&policies.names), outcomes)))
            })
        })
    }

    /// Takes as many units as there are at the present price, for which a store has no step of its own.
    async fn take_priced(
        self,
        Alike { key, cost: most }: Alike,
        findings: Findings,
    ) -> Result<(u32, Decision), StoreError> {
        let peek = |cost| self.peek_at(&Alike { key, cost }, &findings);
        let check = |cost| Check(Alike { key, cost }).ask(&self, &findings);
        for _ in 0..TRIES {
            let units = takeable(&peek(0).await?, most);
            if units == 0 {
                break;
            }
            let decision = check(units).await?;
            if decision.is_allowed() {
                return Ok((units, decision));
            }
        }
        let denied = peek(most.min(1)).await?;
        if most == 0 || !denied.is_allowed() {
            return Ok((0, denied));
        }
        // Units were given back meanwhile. One of them, in one step, has a verdict that agrees with the number.
        let decision = check(1).await?;
        Ok((decision.is_allowed().into(), decision))
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

/// Decides and charges nothing.
pub(super) fn peek<S: Subject>(subject: S) -> impl Verb<Answer = Decision> {
    let peek =
        |limiter: &Limiter, subject: S, findings: &Findings| limiter.peek_at(&subject, findings);
    PlainVerb::new(subject, peek, convert::identity)
}

pub(super) struct Check<S>(pub(super) S);

impl<S> Sealed for Check<S> {}

impl<S: Subject> Verb for Check<S> {
    type Answer = Decision;

    #[inline]
    fn look<L: ?Sized>(&self, limiter: &Limiter<L>) -> Looks {
        self.0.look(limiter)
    }

    fn ask<L: Backend + ?Sized>(
        self,
        limiter: &Limiter<L>,
        findings: &Findings,
    ) -> Reply<Result<Decision, StoreError>> {
        let decide = |charges: &[Charge]| limiter.decision_on(charges);
        self.0
            .with_charges(limiter, findings, Purpose::Decide, decide)
    }

    // It is decided in place, because moving a decision costs as much as making it.
    #[inline]
    fn now(self, limiter: &LocalLimiter) -> Decision {
        let mut decision = limiter.no_decision();
        decision.change(|outcomes| self.0.decide_now(limiter, outcomes));
        decision
    }
}

struct Admit(Alike);

impl Sealed for Admit {}

impl Verb for Admit {
    type Answer = bool;

    fn look<L: ?Sized>(&self, limiter: &Limiter<L>) -> Looks {
        self.0.look(limiter)
    }

    fn ask<L: Backend + ?Sized>(
        self,
        limiter: &Limiter<L>,
        findings: &Findings,
    ) -> Reply<Result<bool, StoreError>> {
        let decided = Check(self.0).ask(limiter, findings);
        decided.map(|decided| Ok(decided?.is_allowed()))
    }

    #[inline]
    fn now(self, limiter: &LocalLimiter) -> bool {
        let Self(Alike { key, cost }) = self;
        limiter.admit_at_once(&key, cost)
    }
}
