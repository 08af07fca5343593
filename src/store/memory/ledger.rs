use std::fmt;
use std::hint::spin_loop;
use std::sync::Arc;

use smallvec::SmallVec;

use super::counter::{ATTEMPTS, Counter, Wanted};
use super::seed::Seed;
use super::table::{Ask, Counted, Glance};
use super::version::Lock;
use crate::clock::{Clock, Micros};
use crate::decision::Outcomes;
use crate::error::StoreError;
use crate::store::{Charge, Ledger, Reply, Verdict};

/// A [`MemoryStore`](super::MemoryStore) opened for a list of policies.
pub struct MemoryLedger {
    clock: Arc<dyn Clock>,
    seed: Seed,
    policies: Box<[Opened]>,
    /// The policies in the order in which their tables are locked, which is the same for all
    /// ledgers of a store, so that two decisions cannot hinder each other for ever.
    order_of_locking: Box<[usize]>,
}

/// A policy's table, and its number among all tables of the store.
pub(super) struct Opened {
    pub(super) number: usize,
    pub(super) counter: Arc<dyn Counter>,
}

impl MemoryLedger {
    pub(super) fn new(clock: Arc<dyn Clock>, policies: Box<[Opened]>) -> Self {
        let mut order_of_locking: Box<[usize]> = (0..policies.len()).collect();
        order_of_locking.sort_unstable_by_key(|&policy| policies[policy].number);
        Self {
            clock,
            seed: Seed::of_the_process(),
            policies,
            order_of_locking,
        }
    }

    /// Decides on one request; see [`Ledger::charge`].
    pub fn charge_now(&self, charges: &[Charge]) -> Outcomes {
        self.decide(charges, Wanted::Everything).1
    }

    /// Decides as [`charge_now`](Self::charge_now) does, and tells whether the request may go on.
    pub fn admit_now(&self, charges: &[Charge]) -> bool {
        self.decide(charges, Wanted::Verdict).0
    }

    fn decide(&self, charges: &[Charge], wanted: Wanted) -> (bool, Outcomes) {
        if let [charge] = charges
            && let Some(policy) = self.policies.get(charge.policy)
        {
            let decided = policy
                .counter
                .decide(self.ask(charge), &*self.clock, wanted);
            let mut outcomes = Outcomes::new(decided.at);
            if let Some(outcome) = decided.outcome {
                outcomes.push(charge.policy, outcome);
            }
            return (decided.allowed, outcomes);
        }
        Decision::of(self, charges).decide(&*self.clock, wanted)
    }

    fn ask(&self, charge: &Charge) -> Ask {
        Ask {
            fingerprint: self.seed.fingerprint(&charge.key),
            cost: charge.cost,
        }
    }
}

/// A decision that several policies have a part in.
struct Decision<'a> {
    /// In the order of locking.
    parts: SmallVec<[Part<'a>; 8]>,
}

/// One policy's part of a decision.
struct Part<'a> {
    policy: usize,
    counter: &'a dyn Counter,
    ask: Ask,
    counted: Counted,
    attempts: usize,
}

/// Something has changed while the decision was made.
struct Changed;

/// The pages of all parts, locked.
struct Locked<'a> {
    glances: SmallVec<[Glance; 8]>,
    locks: SmallVec<[Lock<'a>; 8]>,
}

impl<'a> Decision<'a> {
    fn of(ledger: &'a MemoryLedger, charges: &[Charge]) -> Self {
        let part = |policy: &usize| {
            let charge = charges.iter().find(|charge| charge.policy == *policy)?;
            Some(Part {
                policy: *policy,
                counter: &*ledger.policies[*policy].counter,
                ask: ledger.ask(charge),
                counted: Counted::Apart,
                attempts: 0,
            })
        };
        Self {
            parts: ledger.order_of_locking.iter().filter_map(part).collect(),
        }
    }

    fn decide(mut self, clock: &dyn Clock, wanted: Wanted) -> (bool, Outcomes) {
        let until = self.parts.iter().map(|part| part.counter.until()).min();
        let time = || until.map_or_else(|| clock.now(), |until| clock.now().min(until));
        let mut now = time();
        loop {
            if let Ok(decided) = self.attempt(&mut now, &time, wanted) {
                return decided;
            }
            spin_loop();
        }
    }

    fn attempt(
        &mut self,
        now: &mut Micros,
        time: &impl Fn() -> Micros,
        wanted: Wanted,
    ) -> Result<(bool, Outcomes), Changed> {
        let glances: SmallVec<[Glance; 8]> = self.parts.iter().map(Part::glance).collect();
        let latest = glances.iter().map(|glance| glance.latest).max();
        if latest.is_some_and(|latest| *now < latest) {
            // Somebody else was here after the clock was read, or it has stepped back.
            *now = time();
        }
        let now = *now;
        let steps_back = latest.is_some_and(|latest| now < latest);
        let writes = self.parts.iter().any(|part| part.ask.cost > 0);
        if steps_back && writes {
            self.step_back(glances, now)?;
            return Err(Changed);
        }

        let mut verdicts: SmallVec<[bool; 8]> = SmallVec::new();
        for (part, glance) in self.parts.iter().zip(&glances) {
            let allowed = part.counter.allows(glance, part.ask, now);
            verdicts.push(allowed.ok_or(Changed)?);
        }
        let allowed = !verdicts.contains(&false);
        let mut outcomes = Outcomes::new(now);
        let told = wanted.includes(allowed);

        if allowed && writes {
            let locked = self.charge(glances, now)?;
            for (part, glance) in self.parts.iter().zip(&locked.glances).filter(|_| told) {
                let outcome = part.counter.tell_locked(glance, part.ask, now, true);
                outcomes.push(part.policy, outcome.ok_or(Changed)?);
            }
            drop(locked);
            for part in &self.parts {
                part.counter.grow(now);
            }
        } else if told {
            for ((part, glance), allowed) in self.parts.iter().zip(&glances).zip(verdicts) {
                let outcome = part.counter.tell(glance, part.ask, now, allowed);
                outcomes.push(part.policy, outcome.ok_or(Changed)?);
            }
        }
        outcomes.put_in_order();
        Ok((allowed, outcomes))
    }

    /// Locks every page, if none has changed since it was seen.
    fn lock(&self, glances: SmallVec<[Glance; 8]>) -> Result<Locked<'a>, Changed> {
        let mut locks = SmallVec::new();
        for (part, glance) in self.parts.iter().zip(&glances) {
            locks.push(part.counter.lock(glance).ok_or(Changed)?);
        }
        Ok(Locked { glances, locks })
    }

    fn step_back(&self, glances: SmallVec<[Glance; 8]>, now: Micros) -> Result<(), Changed> {
        let Locked { glances, mut locks } = self.lock(glances)?;
        for ((part, glance), lock) in self.parts.iter().zip(&glances).zip(&mut locks) {
            if now < glance.latest && part.ask.cost > 0 {
                part.counter.step_back(glance, lock, now);
            }
        }
        Ok(())
    }

    /// Charges every policy, once each has a place for its key.
    fn charge(
        &mut self,
        glances: SmallVec<[Glance; 8]>,
        now: Micros,
    ) -> Result<Locked<'a>, Changed> {
        let mut locked = self.lock(glances)?;
        let mut newcomers: SmallVec<[bool; 8]> = SmallVec::new();
        for (place, part) in self.parts.iter().enumerate() {
            if part.ask.cost == 0 {
                newcomers.push(false);
                continue;
            }
            let (glance, lock) = (&locked.glances[place], &mut locked.locks[place]);
            let Ok(is_new) = part.counter.place(glance, part.ask, lock, now) else {
                self.give_up(locked, &newcomers, place, now);
                return Err(Changed);
            };
            newcomers.push(is_new);
        }
        for (place, part) in self.parts.iter().enumerate() {
            if part.ask.cost > 0 {
                let (glance, lock) = (&locked.glances[place], &mut locked.locks[place]);
                part.counter
                    .charge(glance, part.ask, newcomers[place], lock, now);
            }
        }
        Ok(locked)
    }

    /// Gives the newcomers' places back, and makes room for the one who has none.
    fn give_up(&mut self, locked: Locked<'_>, newcomers: &[bool], without: usize, now: Micros) {
        for ((part, glance), is_new) in self.parts.iter().zip(&locked.glances).zip(newcomers) {
            if *is_new {
                part.counter.abandon(glance, now);
            }
        }
        let glance = locked.glances[without];
        drop(locked);
        let part = &mut self.parts[without];
        part.attempts += 1;
        if part.attempts > ATTEMPTS || !part.counter.make_room(&glance, now) {
            part.counted = Counted::Together;
        }
    }
}

impl Part<'_> {
    fn glance(&self) -> Glance {
        self.counter.glance(self.ask, self.counted)
    }
}

impl Ledger for MemoryLedger {
    fn charge(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>> {
        Reply::Now(Ok(self.charge_now(charges)))
    }

    fn admit(&self, charges: &[Charge]) -> Reply<Result<Verdict, StoreError>> {
        let (allowed, outcomes) = self.decide(charges, Wanted::Refusals);
        Reply::Now(Ok(if allowed {
            Verdict::Allowed
        } else {
            Verdict::Denied(outcomes)
        }))
    }
}

impl fmt::Debug for MemoryLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryLedger").finish_non_exhaustive()
    }
}
