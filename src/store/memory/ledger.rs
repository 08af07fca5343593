use std::fmt;
use std::hint::spin_loop;
use std::sync::Arc;

use smallvec::SmallVec;

use super::blocks::Blocks;
use super::counter::{ATTEMPTS, Counter, Told, decide};
use super::seed::Seed;
use super::table::{Ask, Changed, Counted, Full, Glance, NoRoom};
use super::version::Lock;
use crate::algorithm::Algorithm;
use crate::clock::{AnyClock, Clock, Micros};
use crate::decision::Outcomes;
use crate::error::{StoreError, StoreErrorKind};
use crate::key::Key;
use crate::store::charged::{cannot_have, soften};
use crate::store::{Amendment, Charge, Charged, Ledger, Reply, Wanted};

/// A [`MemoryStore`](super::MemoryStore) opened for a list of policies.
pub struct MemoryLedger {
    clock: AnyClock,
    seed: Seed,
    policies: Box<[Opened]>,
    /// The policies in the order in which their tables are locked. It is the same for all ledgers
    /// of a store, or two decisions that wait for locks could wait for each other.
    order_of_locking: Box<[usize]>,
}

/// A policy's table, with its number among all tables of the store, and who is blocked.
pub(super) struct Opened {
    pub(super) number: usize,
    pub(super) algorithm: Algorithm,
    pub(super) counter: Arc<dyn Counter>,
    pub(super) blocks: Arc<Blocks>,
}

impl Opened {
    fn amend(&self, ask: Ask, amendment: Amendment, clock: &dyn Clock) -> Result<(), StoreError> {
        let (key, counter) = (ask.fingerprint, &*self.counter);
        let full = |Full| StoreError::new(StoreErrorKind::Full);
        match amendment {
            Amendment::Settle => counter.settle(ask, clock),
            Amendment::Block(length) => self.blocks.block(key, length, clock.now()),
            Amendment::Unblock => self.blocks.unblock(key),
            Amendment::Override(limit, length) => {
                let limit = self.algorithm.under(limit).ok_or_else(cannot_have)?;
                let limit = Some((limit, length));
                counter.override_limit(key, limit, clock).map_err(full)?;
            }
            Amendment::EndOverride => counter.override_limit(key, None, clock).map_err(full)?,
            Amendment::Refund
            | Amendment::TakeBack(_)
            | Amendment::GiveBack(_)
            | Amendment::Reset => counter.amend(ask, clock, amendment),
        }
        Ok(())
    }
}

impl MemoryLedger {
    pub(super) fn new(clock: AnyClock, seed: Seed, policies: Box<[Opened]>) -> Self {
        let mut order_of_locking: Box<[usize]> = (0..policies.len()).collect();
        order_of_locking.sort_unstable_by_key(|&policy| policies[policy].number);
        Self {
            clock,
            seed,
            policies,
            order_of_locking,
        }
    }

    /// Decides on one request; see [`Ledger::charge`]. If a charge names a policy that was not
    /// opened, nothing is charged and nothing is told.
    pub fn charge_now(&self, charges: &[Charge]) -> Outcomes {
        let mut outcomes = Outcomes::new(Micros::ZERO);
        self.decide(charges, Wanted::Everything, &mut outcomes);
        outcomes
    }

    /// Decides as [`charge_now`](Self::charge_now) does, and tells whether the request may go on;
    /// it may not if nothing could be charged because of such a policy.
    pub fn admit_now(&self, charges: &[Charge]) -> bool {
        self.decide(charges, Wanted::Verdict, &mut Outcomes::new(Micros::ZERO))
    }

    /// Decides under one policy, which has to be one of those that were opened.
    pub(crate) fn charge_one(&self, policy: usize, key: &Key, cost: u32) -> Outcomes {
        let mut outcomes = Outcomes::new(Micros::ZERO);
        let told = &mut Told {
            wanted: Wanted::Everything,
            policy,
            outcomes: &mut outcomes,
        };
        self.decide_one(policy, self.ask(key, cost), Some(told));
        outcomes
    }

    /// The same, without the numbers.
    #[inline]
    pub(crate) fn admit_one(&self, policy: usize, key: &Key, cost: u32) -> bool {
        self.decide_one(policy, self.ask(key, cost), None)
    }

    /// Takes as much as there is; see [`Ledger::take_up_to`]. If a charge names a policy that was not
    /// opened, nothing is taken and nothing is told.
    pub fn take_up_to_now(&self, charges: &[Charge]) -> (u32, Outcomes) {
        let mut outcomes = Outcomes::new(Micros::ZERO);
        let mut decision = self.decision(Wanted::Everything, Purpose::Take);
        let mut units = 0;
        if self.add_parts(&mut decision, charges) {
            // A block by another thread may deny what was shared out before it.
            if decision.decide(&mut outcomes) {
                units = decision.units;
            }
            soften(charges, &mut outcomes);
        }
        (units, outcomes)
    }

    /// Changes the state of each key under its policy; see [`Ledger::amend`]. Charges of policies that
    /// were not opened are left out.
    ///
    /// # Errors
    ///
    /// When there is no room for another override: see [`MemoryStore`](super::MemoryStore).
    pub fn amend_now(&self, charges: &[Charge], amendment: Amendment) -> Result<(), StoreError> {
        for charge in charges {
            let Some(opened) = self.policies.get(charge.policy) else {
                continue;
            };
            let ask = self.ask(&charge.key, charge.cost);
            opened.amend(ask, amendment, &self.clock)?;
        }
        Ok(())
    }

    fn decide(&self, charges: &[Charge], wanted: Wanted, outcomes: &mut Outcomes) -> bool {
        match charges {
            [charge] if charge.policy < self.policies.len() && !charge.is_soft => {
                let ask = self.ask(&charge.key, charge.cost);
                let told = &mut Told {
                    wanted,
                    policy: charge.policy,
                    outcomes,
                };
                self.decide_one(charge.policy, ask, Some(told))
            }
            _ => self.decide_together(charges, wanted, outcomes),
        }
    }

    /// Decides on a request that concerns one policy alone.
    #[inline]
    fn decide_one(&self, policy: usize, ask: Ask, told: Option<&mut Told<'_>>) -> bool {
        let opened = &self.policies[policy];
        let now = self.clock.now();
        if opened.blocks.are_any() && opened.blocks.may_hold(ask.fingerprint, now) {
            return self.decide_on_a_suspect(policy, ask, told);
        }
        decide(&*opened.counter, ask, now, &self.clock, told)
    }

    /// Decides on a request whose key may be blocked.
    #[cold]
    fn decide_on_a_suspect(&self, policy: usize, ask: Ask, told: Option<&mut Told<'_>>) -> bool {
        let mut unwanted = Outcomes::new(Micros::ZERO);
        let (wanted, outcomes) = match told {
            Some(told) => (told.wanted, &mut *told.outcomes),
            None => (Wanted::Verdict, &mut unwanted),
        };
        let mut decision = self.decision(wanted, Purpose::Charge);
        let part = Part::new(policy, &self.policies[policy], ask);
        decision.parts.push(part);
        decision.decide(outcomes)
    }

    fn decision(&self, wanted: Wanted, purpose: Purpose) -> Decision<'_> {
        Decision {
            parts: SmallVec::new(),
            clock: &self.clock,
            wanted,
            purpose,
            units: 0,
            disturbed: 0,
        }
    }

    /// Tells what [`charge_now`](Self::charge_now) would tell, and charges nothing.
    pub fn peek_now(&self, charges: &[Charge]) -> Outcomes {
        let mut outcomes = Outcomes::new(Micros::ZERO);
        self.decide_as(charges, Wanted::Everything, Purpose::Peek, &mut outcomes);
        outcomes
    }

    fn decide_together(&self, charges: &[Charge], wanted: Wanted, outcomes: &mut Outcomes) -> bool {
        self.decide_as(charges, wanted, Purpose::Charge, outcomes)
    }

    fn decide_as(
        &self,
        charges: &[Charge],
        wanted: Wanted,
        purpose: Purpose,
        outcomes: &mut Outcomes,
    ) -> bool {
        let mut decision = self.decision(wanted, purpose);
        if !self.add_parts(&mut decision, charges) {
            return false;
        }
        let allowed = decision.decide(outcomes);
        soften(charges, outcomes);
        allowed
    }

    /// Adds a part for each charge. Returns `false` if a charge names a policy that was never opened: of that
    /// nothing is known, and nothing is told.
    fn add_parts<'a>(&'a self, decision: &mut Decision<'a>, charges: &[Charge]) -> bool {
        let is_open = |charge: &Charge| charge.policy < self.policies.len();
        if !charges.iter().all(is_open) {
            return false;
        }
        for &policy in &self.order_of_locking {
            if let Some(charge) = charges.iter().find(|charge| charge.policy == policy) {
                let ask = self.ask(&charge.key, charge.cost);
                decision.parts.push(Part {
                    is_soft: charge.is_soft,
                    ..Part::new(policy, &self.policies[policy], ask)
                });
            }
        }
        true
    }

    #[inline]
    fn ask(&self, key: &Key, cost: u32) -> Ask {
        Ask {
            fingerprint: self.seed.fingerprint(key),
            cost,
        }
    }
}

/// A decision that several policies have a part in.
struct Decision<'a> {
    /// In the order of locking.
    parts: SmallVec<[Part<'a>; 8]>,
    clock: &'a dyn Clock,
    wanted: Wanted,
    purpose: Purpose,
    /// How many units were taken, if that is what it is for.
    units: u32,
    /// How often it had to be made anew.
    disturbed: u32,
}

#[derive(Clone, Copy, PartialEq)]
enum Purpose {
    Charge,
    Peek,
    /// Charges as many units as every policy grants.
    Take,
}

/// A decision that was disturbed so often waits for its turn on each page in place of starting
/// anew: with many policies somebody may always be quicker on one of them.
const PATIENT_AFTER: u32 = 16;

/// One policy's part of a decision.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each answers a question of its own, and in any combination"
)]
struct Part<'a> {
    policy: usize,
    counter: &'a dyn Counter,
    blocks: &'a Blocks,
    ask: Ask,
    /// What was asked, of which less may be charged.
    most: u32,
    counted: Counted,
    /// Whether the key has no place, and there was room for it when that was looked up.
    has_room: bool,
    glance: Glance,
    allowed: bool,
    /// How long its key is blocked yet.
    blocked: Option<Micros>,
    /// Whether it denies nothing, and is left out where it does not fit.
    is_soft: bool,
    lock: Option<Lock<'a>>,
    /// Whether a place was made for the key in this decision.
    is_new: bool,
    attempts: usize,
}

impl Decision<'_> {
    fn decide(&mut self, outcomes: &mut Outcomes) -> bool {
        let mut now = self.time();
        loop {
            *outcomes = Outcomes::new(now);
            if let Ok(allowed) = self.attempt(&mut now, outcomes) {
                outcomes.decided_at(now);
                outcomes.put_in_order();
                return allowed;
            }
            self.unlock();
            self.disturbed = self.disturbed.saturating_add(1);
            spin_loop();
        }
    }

    fn attempt(&mut self, now: &mut Micros, outcomes: &mut Outcomes) -> Result<bool, Changed> {
        for part in &mut self.parts {
            if self.disturbed > PATIENT_AFTER {
                let (glance, lock) = part.counter.glance_and_lock(part.ask, part.counted);
                part.glance = glance;
                part.lock = Some(lock);
            } else {
                part.glance = part.counter.glance(part.ask, part.counted);
            }
        }
        if self.latest(|_| true) > *now {
            // Somebody else was here after the clock was read, or it has stepped back.
            *now = self.time();
        }
        let now = *now;
        if self.purpose != Purpose::Peek && self.latest(|part| part.ask.cost > 0) > now {
            self.step_back(now)?;
            return Err(Changed);
        }

        if self.purpose == Purpose::Take {
            self.share_out(now)?;
        }
        let only_asks = self.purpose == Purpose::Peek;
        let mut allowed = true;
        for part in &mut self.parts {
            part.allowed = part.counter.allows(&part.glance, part.ask, now)?;
            part.look_up_block(now, self.clock, only_asks);
            allowed &= (part.allowed || part.is_soft) && part.blocked.is_none();
        }
        self.look_for_room(allowed, now)?;
        if allowed && self.purpose == Purpose::Peek {
            return self.foretell(now, outcomes);
        }
        // Those that are charged are told afterwards.
        for part in self
            .parts
            .iter()
            .filter(|part| !(allowed && part.charges()))
        {
            let mut told = Told {
                wanted: Wanted::Everything,
                policy: part.policy,
                outcomes,
            };
            if self.wanted.includes(allowed) {
                let (glance, ask) = (&part.glance, part.ask);
                part.counter
                    .tell(glance, ask, now, part.allowed, &mut told)?;
                if let Some(left) = part.blocked {
                    outcomes.block(part.policy, left);
                }
            }
        }
        if allowed && self.parts.iter().any(Part::charges) {
            self.charge(now, outcomes)?;
        }
        Ok(allowed)
    }

    /// Asks for as many units as every policy grants that is not soft. If that is none, asks for one, which is
    /// denied.
    fn share_out(&mut self, now: Micros) -> Result<(), Changed> {
        let most = self.parts.iter().map(|part| part.most).max();
        self.units = most.unwrap_or(0);
        for part in &mut self.parts {
            part.look_up_block(now, self.clock, true);
            if part.blocked.is_some() {
                self.units = 0;
            } else if part.most > 0 && !part.is_soft {
                self.units = self.units.min(part.remaining(now)?);
            }
        }
        for part in &mut self.parts {
            part.ask.cost = part.most.min(self.units.max(1));
        }
        Ok(())
    }

    /// Looks up where a key is counted that has no place and is given none: by the shared entry, if there is
    /// no room for it. The decision is then made again.
    fn look_for_room(&mut self, allowed: bool, now: Micros) -> Result<(), Changed> {
        let charges = allowed && self.purpose != Purpose::Peek;
        let is_lost = |part: &Part<'_>| {
            !(charges && part.charges() || part.has_room)
                && part.counter.lacks_room(&part.glance, part.ask)
        };
        if !self.parts.iter().any(is_lost) {
            return Ok(());
        }
        // No page may be locked while others are searched.
        self.unlock();
        for part in self.parts.iter_mut().filter(|part| is_lost(part)) {
            if part.counter.has_room(&part.glance, now) {
                part.has_room = true;
            } else {
                part.counted = Counted::Together;
            }
        }
        Err(Changed)
    }

    /// Tells of a request that would be allowed.
    fn foretell(&self, now: Micros, outcomes: &mut Outcomes) -> Result<bool, Changed> {
        for part in &self.parts {
            let mut told = Told {
                wanted: Wanted::Everything,
                policy: part.policy,
                outcomes,
            };
            let (glance, ask) = (&part.glance, part.ask);
            if part.charges() {
                part.counter.foretell(glance, ask, now, &mut told)?;
            } else {
                part.counter
                    .tell(glance, ask, now, part.allowed, &mut told)?;
            }
        }
        Ok(true)
    }

    /// Locks every page, if none has changed since it was seen.
    fn lock(&mut self) -> Result<(), Changed> {
        for part in self.parts.iter_mut().filter(|part| part.lock.is_none()) {
            part.lock = Some(part.counter.lock(&part.glance)?);
        }
        Ok(())
    }

    fn unlock(&mut self) {
        for part in &mut self.parts {
            part.lock = None;
        }
    }

    fn step_back(&mut self, now: Micros) -> Result<(), Changed> {
        self.lock()?;
        for part in &mut self.parts {
            if let Some(lock) = &mut part.lock
                && part.ask.cost > 0
                && part.glance.latest > now
            {
                part.counter.step_back(&part.glance, lock, now);
            }
        }
        Ok(())
    }

    /// Charges every policy, once each has a place for its key.
    fn charge(&mut self, now: Micros, outcomes: &mut Outcomes) -> Result<(), Changed> {
        self.lock()?;
        let places = self.parts.iter_mut().map(|part| part.place(now));
        if let Some(without) = places.into_iter().position(|place| place.is_err()) {
            self.give_up(without, now);
            return Err(Changed);
        }
        for part in &mut self.parts {
            if part.charges()
                && let Some(lock) = &mut part.lock
            {
                let mut told = Told {
                    wanted: self.wanted,
                    policy: part.policy,
                    outcomes,
                };
                let (glance, ask, is_new) = (&part.glance, part.ask, part.is_new);
                part.counter
                    .charge(glance, ask, is_new, lock, now, Some(&mut told));
            }
        }
        self.unlock();
        for part in self.parts.iter().filter(|part| part.is_new) {
            part.counter.grow(now);
        }
        Ok(())
    }

    /// Gives the newcomers' places back, and makes room for the one who has none.
    fn give_up(&mut self, without: usize, now: Micros) {
        for part in self.parts.iter_mut().filter(|part| part.is_new) {
            part.counter.may_go(&part.glance, now);
            part.is_new = false;
        }
        self.unlock();
        let part = &mut self.parts[without];
        part.attempts += 1;
        if part.attempts > ATTEMPTS || !part.counter.make_room(&part.glance, now) {
            part.counted = Counted::Together;
        }
    }

    fn time(&self) -> Micros {
        let until = self.parts.iter().map(|part| part.counter.until());
        let now = self.clock.now();
        until.min().map_or(now, |until| now.min(until))
    }

    /// The time of the latest charge to the pages of these parts.
    fn latest(&self, which: impl Fn(&Part<'_>) -> bool) -> Micros {
        let parts = self.parts.iter().filter(|part| which(part));
        parts
            .map(|part| part.glance.latest)
            .max()
            .unwrap_or(Micros::ZERO)
    }
}

impl<'a> Part<'a> {
    fn new(policy: usize, opened: &'a Opened, ask: Ask) -> Self {
        Self {
            policy,
            counter: &*opened.counter,
            blocks: &opened.blocks,
            ask,
            most: ask.cost,
            counted: Counted::Apart,
            has_room: false,
            glance: Glance::default(),
            allowed: false,
            blocked: None,
            is_soft: false,
            lock: None,
            is_new: false,
            attempts: 0,
        }
    }

    /// Whether it is charged if the request is allowed.
    fn charges(&self) -> bool {
        self.ask.cost > 0 && self.allowed
    }

    /// Finds out how long its key is blocked yet.
    fn look_up_block(&mut self, now: Micros, clock: &dyn Clock, only_asks: bool) {
        self.blocked = None;
        if self.blocks.are_any() {
            let only_asks = only_asks || self.ask.cost == 0;
            let fingerprint = self.ask.fingerprint;
            self.blocked = self.blocks.left(fingerprint, now, clock, only_asks);
        }
    }

    /// How many units its policy grants.
    fn remaining(&self, now: Micros) -> Result<u32, Changed> {
        let mut outcomes = Outcomes::new(now);
        let mut told = Told {
            wanted: Wanted::Everything,
            policy: self.policy,
            outcomes: &mut outcomes,
        };
        let ask = Ask {
            cost: 0,
            ..self.ask
        };
        self.counter.tell(&self.glance, ask, now, true, &mut told)?;
        let granted = outcomes.iter().next();
        Ok(granted.map_or(0, |(_, outcome)| outcome.remaining()))
    }

    /// Makes sure that the key has a place, if it is to be charged.
    fn place(&mut self, now: Micros) -> Result<(), NoRoom> {
        if self.charges()
            && let Some(lock) = &mut self.lock
        {
            self.is_new = self.counter.place(&self.glance, self.ask, lock, now)?;
        }
        Ok(())
    }
}

impl Ledger for MemoryLedger {
    #[inline]
    fn charge(&self, charges: &[Charge], wanted: Wanted, outcomes: &mut Outcomes) -> Charged {
        Charged::Now(Ok(self.decide(charges, wanted, outcomes)))
    }

    fn take_up_to(&self, charges: &[Charge]) -> Reply<Result<(u32, Outcomes), StoreError>> {
        Reply::Now(Ok(self.take_up_to_now(charges)))
    }

    fn peek(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>> {
        Reply::Now(Ok(self.peek_now(charges)))
    }

    fn amend(&self, charges: &[Charge], amendment: Amendment) -> Reply<Result<bool, StoreError>> {
        // There is no other process that could have come behind a turn.
        Reply::Now(self.amend_now(charges, amendment).map(|()| true))
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        self.clock.other()
    }
}

impl fmt::Debug for MemoryLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryLedger").finish_non_exhaustive()
    }
}
