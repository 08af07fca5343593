//! A store and the reference, side by side.
//!
//! Every request goes to both, and an answer that differs is a [`Broken`] law, with the last actions that led
//! to it.

use std::fmt::Write;
use std::time::Duration;

use super::Broken;
use super::random::Random;
use super::reference::{Expected, Reference};
use tower_ratelimit_core::__internal::{DenialEffect, answered};
use tower_ratelimit_core::algorithm::Algorithm;
use tower_ratelimit_core::clock::{Clock, ManualClock, Micros};
use tower_ratelimit_core::decision::Outcomes;
use tower_ratelimit_core::error::{StoreError, StoreErrorKind};
use tower_ratelimit_core::key::Key;
use tower_ratelimit_core::policy::Policy;
use tower_ratelimit_core::store::{Amendment, Backend, Charge, Store};

/// A backend and the reference, which get the same questions and have to give the same answers.
pub(super) struct Scene<L> {
    pub(super) backend: L,
    pub(super) random: Random,
    law: &'static str,
    reference: Reference,
    clock: Option<ManualClock>,
    /// The steps so far, for the report of a failure.
    past: Vec<String>,
    last: Option<Outcomes>,
}

/// A place with its own times to live may forget a state although the manual clock stands still. Therefore a
/// state that ends sooner than this is left to end before the next request.
const SOON: Micros = Micros::from_secs(60);

/// How many of the latest actions a report shows.
const SHOWN: usize = 8;

impl<L: Backend> Scene<L> {
    pub(super) fn open<S: Store<Backend = L>>(
        law: &'static str,
        store: &S,
        clock: Option<&ManualClock>,
        seed: u32,
        algorithms: &[Algorithm],
    ) -> Result<Self, Broken> {
        let policies: Vec<_> = (0..)
            .zip(algorithms)
            .map(|(place, algorithm)| Policy::new(format!("conformance-{place}"), *algorithm))
            .collect();
        let backend = store.open(&policies);
        Ok(Self {
            backend: backend.map_err(|error| Broken::refused(law, &error))?,
            random: Random::new(seed),
            law,
            reference: Reference::new(algorithms.to_vec()),
            clock: clock.cloned(),
            past: Vec::new(),
            last: None,
        })
    }

    pub(super) async fn charge(&mut self, charges: &[Charge]) -> Result<Outcomes, Broken> {
        let answer = self.backend.decide(charges).wait().await;
        let outcomes = self.recorded("charge", charges, answer)?;
        let expected = self.reference.charge(charges, outcomes.at());
        self.compare(&expected, &outcomes)?;
        self.last = Some(outcomes.clone());
        self.let_end(charges, outcomes.at());
        Ok(outcomes)
    }

    pub(super) async fn acquire_up_to(&mut self, charges: &[Charge]) -> Result<(), Broken> {
        let (units, answer) = match self.backend.acquire_up_to(charges).wait().await {
            Ok((units, outcomes)) => (units, Ok(outcomes)),
            Err(error) => (0, Err(error)),
        };
        let outcomes = self.recorded("take up to", charges, answer)?;
        let (right, expected) = self.reference.acquire_up_to(charges, outcomes.at());
        self.compare(&expected, &outcomes)?;
        if units != right {
            let seen = format!("{units} units were taken of {right} that there were");
            return Err(self.broken(&seen));
        }
        self.last = Some(outcomes.clone());
        self.let_end(charges, outcomes.at());
        Ok(())
    }

    /// Charges without the reference.
    pub(super) async fn attempt(&mut self, charges: &[Charge]) -> Result<Outcomes, Broken> {
        let answer = self.backend.decide(charges).wait().await;
        self.recorded("charge", charges, answer)
    }

    pub(super) async fn peek(&mut self, charges: &[Charge]) -> Result<Outcomes, Broken> {
        let answer = self.backend.peek(charges).wait().await;
        let outcomes = self.recorded("peek", charges, answer)?;
        let expected = self.reference.peek(charges, outcomes.at());
        self.compare(&expected, &outcomes)?;
        Ok(outcomes)
    }

    pub(super) async fn refund(&mut self, charges: &[Charge]) -> Result<(), Broken> {
        let before = self.peek(charges).await?.at();
        self.amend("refund", charges, Amendment::Refund).await?;
        self.amended(charges, before, |reference, at| {
            reference.refund(charges, at);
        })
        .await
    }

    pub(super) async fn settle(&mut self, charges: &[Charge]) -> Result<(), Broken> {
        let before = self.peek(charges).await?.at();
        self.amend("settle", charges, Amendment::Settle).await?;
        self.amended(charges, before, |reference, at| {
            reference.settle(charges, at);
        })
        .await
    }

    pub(super) async fn override_limit(
        &mut self,
        charge: Charge,
        limit: Algorithm,
        length: Micros,
    ) -> Result<(), Broken> {
        let before = self.peek(&[charge]).await?.at();
        let verb = format!("override by `{limit}` for {:?}", length.to_duration());
        if let Some(limit) = limit.limits() {
            let amendment = Amendment::Override(limit, length);
            self.amend(&verb, &[charge], amendment).await?;
        }
        self.amended(&[charge], before, |reference, at| {
            reference.change_limit(&charge, Some((limit, length)), at);
        })
        .await
    }

    pub(super) async fn end_override(&mut self, charge: Charge) -> Result<(), Broken> {
        let before = self.peek(&[charge]).await?.at();
        self.amend("end override", &[charge], Amendment::EndOverride)
            .await?;
        self.amended(&[charge], before, |reference, at| {
            reference.change_limit(&charge, None, at);
        })
        .await
    }

    /// Compares the answers after a change. No answer tells the moment of the change, so both ends of the time
    /// in which it happened are tried.
    async fn amended(
        &mut self,
        charges: &[Charge],
        before: Micros,
        amend: impl Fn(&mut Reference, Micros),
    ) -> Result<(), Broken> {
        let answer = self.backend.peek(charges).wait().await;
        let outcomes = self.recorded("peek", charges, answer)?;
        let mut amended = self.reference.clone();
        amend(&mut amended, before);
        if self
            .compare(&amended.peek(charges, outcomes.at()), &outcomes)
            .is_err()
        {
            amended = self.reference.clone();
            amend(&mut amended, outcomes.at());
            self.compare(&amended.peek(charges, outcomes.at()), &outcomes)?;
        }
        self.reference = amended;
        self.let_end(charges, outcomes.at());
        Ok(())
    }

    pub(super) async fn reset(&mut self, charges: &[Charge]) -> Result<(), Broken> {
        self.amend("reset", charges, Amendment::Reset).await?;
        self.reference.reset(charges);
        self.peek(charges).await.map(drop)
    }

    pub(super) async fn block(&mut self, charges: &[Charge], length: Micros) -> Result<(), Broken> {
        let before = self.peek(charges).await?.at();
        let verb = format!("block for {:?}", length.to_duration());
        self.amend(&verb, charges, Amendment::Block(length)).await?;
        let answer = self.backend.peek(charges).wait().await;
        let outcomes = self.recorded("peek", charges, answer)?;
        self.reference
            .block(charges, (before, outcomes.at()), length);
        let expected = self.reference.peek(charges, outcomes.at());
        self.compare(&expected, &outcomes)
    }

    pub(super) async fn unblock(&mut self, charges: &[Charge]) -> Result<(), Broken> {
        let before = self.peek(charges).await?;
        let answer = self.backend.amend(charges, Amendment::Unblock).wait().await;
        self.note("unblock", charges);
        let was_blocked = answer.map_err(|error| Broken::failed(self.law, &error))?;
        let still = self.reference.clone();
        self.reference.unblock(charges);
        let after = self.peek(charges).await?.at();
        // A block may end in between.
        let may_be = before.iter().any(|(_, outcome)| outcome.is_blocked());
        let has_to_be = may_be && still.are_blocked(charges, after);
        if was_blocked && !may_be || !was_blocked && has_to_be {
            let answer = format!("it told as `was_blocked`: {was_blocked}");
            return Err(self.broken(&answer));
        }
        Ok(())
    }

    /// Returns whether the store decides requests whose policies count different keys.
    pub(super) async fn counts_several_keys(&mut self, keys: [Key; 2]) -> bool {
        let charges = [Charge::new(0, keys[0], 0), Charge::new(1, keys[1], 0)];
        let answer = self.backend.decide(&charges).wait().await;
        !matches!(answer, Err(error) if error.kind() == StoreErrorKind::Unsupported)
    }

    /// Advances the clock, if there is one: often not at all, and often to the moment of the last answer.
    pub(super) fn let_time_pass(&mut self) {
        let Some(clock) = self.clock.clone() else {
            return;
        };
        let last = self.last.as_ref().and_then(Outcomes::binding);
        let (retry, reset) = last.map_or((0, 0), |(_, outcomes)| {
            let retry = outcomes.retry_micros().unwrap_or_default();
            (retry.get(), Micros::from(outcomes.reset_after()).get())
        });
        let gap = match self.random.below(10) {
            0 => self.random.below(1_000),
            1 | 2 => self.random.below(86_400_000_000 / 8),
            3 => retry,
            4 => retry.saturating_sub(1),
            5 => reset,
            6 => reset.saturating_sub(1),
            _ => return,
        };
        clock.advance(Duration::from_micros(gap.min(400 * 86_400_000_000)));
        self.past.push(format!("{gap} µs pass"));
    }

    fn let_end(&mut self, charges: &[Charge], at: Micros) {
        let Some(clock) = &self.clock else {
            return;
        };
        let mut now = at.max(clock.now());
        while let Some(end) = self
            .reference
            .soonest_end(charges, now)
            .filter(|end| *end < SOON)
        {
            now = now.saturating_add(end);
            clock.advance(end.to_duration());
            self.past.push(format!("{} µs pass", end.get()));
        }
    }

    fn recorded(
        &mut self,
        verb: &str,
        charges: &[Charge],
        answer: Result<Outcomes, StoreError>,
    ) -> Result<Outcomes, Broken> {
        self.note(verb, charges);
        answered(charges, answer).map_err(|error| Broken::failed(self.law, &error))
    }

    async fn amend(
        &mut self,
        verb: &str,
        charges: &[Charge],
        amendment: Amendment,
    ) -> Result<(), Broken> {
        let answer = self.backend.amend(charges, amendment).wait().await;
        self.note(verb, charges);
        let done = answer.map_err(|error| Broken::failed(self.law, &error))?;
        if !done {
            return Err(self.broken("it told that it did not do it"));
        }
        Ok(())
    }

    fn note(&mut self, verb: &str, charges: &[Charge]) {
        let mut note = verb.to_owned();
        for charge in charges {
            let (policy, name, cost) = (charge.policy, charge.key.name(), charge.cost);
            let soft = match charge.effect() {
                DenialEffect::Full => "",
                DenialEffect::Soft => ", softly",
                DenialEffect::Shadow => ", in shadow",
            };
            // Writing to a `String` does not fail.
            let _ = write!(note, " [policy {policy}, key {name}, cost {cost}{soft}]");
        }
        self.past.push(note);
    }

    fn compare(&self, expected: &[Expected], outcomes: &Outcomes) -> Result<(), Broken> {
        for (expected, (policy, outcomes)) in expected.iter().zip(outcomes.iter()) {
            if let Some(difference) = expected.differs_from(outcomes) {
                let policy = self.reference.algorithm(policy);
                return Err(self.broken(&format!("under `{policy}` {difference}")));
            }
        }
        Ok(())
    }

    pub(super) fn broken(&self, seen: &str) -> Broken {
        let outcomes = self.past.len().saturating_sub(SHOWN);
        let past = self.past[outcomes..].join("; ");
        Broken::new(self.law, format_args!("{seen}; the last actions: {past}"))
    }
}
