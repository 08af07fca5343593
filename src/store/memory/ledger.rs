use std::fmt;
use std::hint::spin_loop;
use std::sync::Arc;

use smallvec::SmallVec;

use super::counter::{ATTEMPTS, Counter, Told, Wanted};
use super::seed::Seed;
use super::table::{Ask, Changed, Counted, Glance};
use super::version::Lock;
use crate::clock::{Clock, Micros};
use crate::decision::Outcomes;
use crate::error::StoreError;
use crate::key::Key;
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
        let mut told = Told::new(Wanted::Everything);
        match self.decide_alone(charges, &mut told) {
            Some((charge, _)) => told.outcomes(charge),
            None => self.decide_together(charges, Wanted::Everything).1,
        }
    }

    /// Decides as [`charge_now`](Self::charge_now) does, and tells whether the request may go on.
    pub fn admit_now(&self, charges: &[Charge]) -> bool {
        let mut told = Told::new(Wanted::Verdict);
        match self.decide_alone(charges, &mut told) {
            Some((_, allowed)) => allowed,
            None => self.decide_together(charges, Wanted::Verdict).0,
        }
    }

    /// Decides on a request that concerns one policy alone.
    fn decide_alone<'a>(
        &self,
        charges: &'a [Charge],
        told: &mut Told,
    ) -> Option<(&'a Charge, bool)> {
        let [charge] = charges else { return None };
        let policy = self.policies.get(charge.policy)?;
        let ask = self.ask(&charge.key, charge.cost);
        Some((charge, policy.counter.decide(ask, &*self.clock, told)))
    }

    /// Decides on one request under one policy, which has to be one of those that were opened.
    #[inline]
    pub(crate) fn admit_one(&self, policy: usize, key: &Key, cost: u32) -> bool {
        let ask = self.ask(key, cost);
        let counter = &self.policies[policy].counter;
        counter.decide(ask, &*self.clock, &mut Told::new(Wanted::Verdict))
    }

    fn decide_together(&self, charges: &[Charge], wanted: Wanted) -> (bool, Outcomes) {
        Decision::of(self, charges).decide(&*self.clock, wanted)
    }

    #[inline]
    fn ask(&self, key: &Key, cost: u32) -> Ask {
        Ask {
            fingerprint: self.seed.fingerprint(key),
            cost,
        }
    }
}

impl Told {
    fn outcomes(self, charge: &Charge) -> Outcomes {
        let mut outcomes = Outcomes::new(self.at);
        if let Some(outcome) = self.outcome {
            outcomes.push(charge.policy, outcome);
        }
        outcomes
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
                ask: ledger.ask(&charge.key, charge.cost),
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
            verdicts.push(part.counter.allows(glance, part.ask, now)?);
        }
        let allowed = !verdicts.contains(&false);
        let mut outcomes = Outcomes::new(now);
        if allowed && writes {
            self.charge(glances, now, wanted, &mut outcomes)?;
        } else if wanted.includes(allowed) {
            for ((part, glance), allowed) in self.parts.iter().zip(&glances).zip(verdicts) {
                let outcome = part.counter.tell(glance, part.ask, now, allowed)?;
                outcomes.push(part.policy, outcome);
            }
        }
        outcomes.put_in_order();
        Ok((allowed, outcomes))
    }

    /// Locks every page, if none has changed since it was seen.
    fn lock(&self, glances: SmallVec<[Glance; 8]>) -> Result<Locked<'a>, Changed> {
        let mut locks = SmallVec::new();
        for (part, glance) in self.parts.iter().zip(&glances) {
            locks.push(part.counter.lock(glance)?);
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
        wanted: Wanted,
        outcomes: &mut Outcomes,
    ) -> Result<(), Changed> {
        // Those that only ask can be told before the others are charged, and while nothing is locked.
        for (part, glance) in self.parts.iter().zip(&glances) {
            if part.ask.cost == 0 && wanted.includes(true) {
                let outcome = part.counter.tell(glance, part.ask, now, true)?;
                outcomes.push(part.policy, outcome);
            }
        }
        let mut locked = self.lock(glances)?;
        let mut newcomers: SmallVec<[bool; 8]> = SmallVec::new();
        for (place, part) in self.parts.iter().enumerate() {
            let (glance, lock) = (&locked.glances[place], &mut locked.locks[place]);
            let is_new = match part.ask.cost {
                0 => Ok(false),
                _ => part.counter.place(glance, part.ask, lock, now),
            };
            let Ok(is_new) = is_new else {
                self.give_up(locked, &newcomers, place, now);
                return Err(Changed);
            };
            newcomers.push(is_new);
        }
        for (place, part) in self.parts.iter().enumerate() {
            if part.ask.cost > 0 {
                let (glance, lock) = (&locked.glances[place], &mut locked.locks[place]);
                let mut told = Told::new(wanted);
                let is_new = newcomers[place];
                part.counter
                    .charge(glance, part.ask, is_new, lock, now, &mut told);
                if let Some(outcome) = told.outcome {
                    outcomes.push(part.policy, outcome);
                }
            }
        }
        drop(locked);
        for (part, _) in self
            .parts
            .iter()
            .zip(newcomers)
            .filter(|(_, is_new)| *is_new)
        {
            part.counter.grow(now);
        }
        Ok(())
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
        let mut told = Told::new(Wanted::Refusals);
        let (allowed, outcomes) = match self.decide_alone(charges, &mut told) {
            Some((_, true)) => return Reply::Now(Ok(Verdict::Allowed)),
            Some((charge, _)) => (false, told.outcomes(charge)),
            None => self.decide_together(charges, Wanted::Refusals),
        };
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
