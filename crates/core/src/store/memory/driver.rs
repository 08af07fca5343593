//! The general path of a decision: any number of policies, new keys, blocks, a clock that steps back, peeks.
//!
//! A decision reads the page of each key and decides. Then it locks all pages, in the order in which the
//! tables were made, and charges. If a page has changed since it was read, the decision starts anew.

mod alternatives;
mod guaranteeing;
mod sharing;

use std::hint::spin_loop;

use smallvec::SmallVec;

use super::blocks::Blocks;
use super::fair::Seat;
use super::guarantee::Siblings;
use super::opened::Opened;
use super::page_snapshot::{Changed, Counted, NoRoom, PageSnapshot, Probe};
use super::seqlock::Lock;
use super::sink::{ATTEMPTS, OutcomeSink};
use super::tiers::{Tier, Tiers, ask_tier};
use crate::algorithm::Algorithm;
use crate::calendar::There;
use crate::clock::{Clock, Micros};
use crate::decision::{DenialEffect, Outcomes};
use crate::policy::Alternative;
use crate::store::Wanted;
use crate::store::fair::Share;

/// A decision on charges under any number of policies.
pub(super) struct Decision<'a> {
    /// In the order of locking.
    parts: SmallVec<[Part<'a>; 8]>,
    /// The tenants of the parts whose limit is divided, by the places of the parts.
    seats: SmallVec<[(usize, Seat<'a>); 1]>,
    /// The children of the parts that guarantee them something, by the places of the parts.
    families: Vec<(usize, Siblings<'a>)>,
    clock: &'a dyn Clock,
    wanted: Wanted,
    purpose: Purpose,
    /// The units taken, if the decision takes units.
    units: u32,
    /// How often the decision started anew.
    disturbed: u32,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Purpose {
    Charge,
    Peek,
    /// Writes the outcomes of a request that another policy denies.
    Deny,
    /// Charges as many units as every policy grants.
    Take,
}

impl Purpose {
    fn writes(self) -> bool {
        matches!(self, Self::Charge | Self::Take)
    }
}

/// The number of attempts after which a decision locks each page before it reads it. With many policies,
/// another thread may always be faster on one of the pages.
const PATIENT_AFTER: u32 = 16;

/// One policy's part of a decision.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is found out by a step of its own"
)]
pub(super) struct Part<'a> {
    policy: usize,
    tiers: &'a Tiers,
    /// The table in which the key was looked up.
    tier: Tier<'a>,
    /// The limit of the request, if it differs from that of the counter.
    limit: Option<Algorithm>,
    blocks: &'a Blocks,
    /// The key that may be blocked.
    blockable: u64,
    probe: Probe,
    /// The cost of the request, of which less may be charged.
    most: u32,
    counted: Counted,
    /// Whether the key had no slot and there was room for one when it was looked up.
    has_room: bool,
    snapshot: PageSnapshot,
    allowed: bool,
    /// How much longer the key is blocked.
    blocked: Option<Micros>,
    /// Whether a denial of this policy denies the request.
    effect: DenialEffect,
    /// Its place among parts of which one is charged.
    alternative: Option<Alternative>,
    /// What the tenant may take, if the limit is divided.
    share: Option<Share>,
    /// The units that have to be left beside the cost, and the units that the request may take, if the limit is guaranteed to others.
    beside: u32,
    granted: u32,
    /// Whether another part is charged in place of this one.
    is_passed: bool,
    /// Set if the limit depends on the hour, which none does without feature `calendar`.
    hours: Option<There>,
    lock: Option<Lock<'a>>,
    /// Whether the key got its slot in this decision.
    is_new: bool,
    attempts: usize,
}

impl<'a> Decision<'a> {
    pub(super) fn new(clock: &'a dyn Clock, wanted: Wanted, purpose: Purpose) -> Self {
        Self {
            parts: SmallVec::new(),
            seats: SmallVec::new(),
            families: Vec::new(),
            clock,
            wanted,
            purpose,
            units: 0,
            disturbed: 0,
        }
    }

    /// Adds a part. Parts are added in the order of locking.
    pub(super) fn add(&mut self, part: Part<'a>) {
        self.parts.push(part);
    }

    pub(super) fn units(&self) -> u32 {
        self.units
    }

    pub(super) fn decide(&mut self, outcomes: &mut Outcomes) -> bool {
        let mut now = self.clock.now();
        loop {
            *outcomes = Outcomes::new(now);
            if let Ok(allowed) = self.attempt(&mut now, outcomes) {
                self.conclude_shares(allowed, outcomes);
                self.conclude_guarantees(allowed, outcomes);
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
                part.lock_and_look(*now, self.clock);
            } else {
                part.look(*now, self.clock);
            }
        }
        if self.latest(|_| true) > *now {
            // Another thread charged after the clock was read, or the clock has stepped back.
            *now = self.clock.now();
            if self.parts.iter().any(|part| part.until() < *now) {
                return Err(Changed);
            }
        }
        let now = *now;
        if self.purpose.writes() && self.latest(|part| part.probe.cost > 0) > now {
            self.step_back(now)?;
            return Err(Changed);
        }

        self.ask_for_shares(now);
        self.ask_for_guarantees(now)?;
        if self.purpose == Purpose::Take {
            self.share_out(now)?;
            self.ask_for_guarantees(now)?;
        }
        let allowed = self.allows(now)?;
        self.look_for_room(allowed, now)?;
        if allowed && self.purpose == Purpose::Peek {
            return self.preview(now, outcomes);
        }
        self.write_uncharged(allowed, now, outcomes)?;
        if !allowed && self.is_to_wait_for_all() {
            self.wait_for_all(now, outcomes)?;
        }
        if allowed && self.parts.iter().any(Part::charges) {
            self.charge(now, outcomes)?;
        }
        Ok(allowed)
    }

    /// Returns whether all policies allow the request.
    fn allows(&mut self, now: Micros) -> Result<bool, Changed> {
        let only_asks = !self.purpose.writes();
        let mut allowed = self.purpose != Purpose::Deny;
        for part in &mut self.parts {
            part.allowed = part.allows(now)?;
            part.look_up_block(now, self.clock, only_asks);
            allowed &= match part.effect {
                _ if part.alternative.is_some() => true,
                DenialEffect::Full => part.allowed && part.blocked.is_none(),
                DenialEffect::Soft => part.blocked.is_none(),
                DenialEffect::Shadow => true,
            };
        }
        if self.has_alternatives() {
            allowed &= self.choose();
        }
        Ok(allowed)
    }

    /// Writes the outcomes of the parts that are not charged. Those of charged parts are written after the charge.
    fn write_uncharged(
        &self,
        allowed: bool,
        now: Micros,
        outcomes: &mut Outcomes,
    ) -> Result<(), Changed> {
        if !self.wanted.includes(allowed) {
            return Ok(());
        }
        let charged = |part: &&Part<'_>| allowed && part.charges();
        let told = |part: &&Part<'_>| !part.is_passed && !charged(part);
        for part in self.parts.iter().filter(told) {
            let mut sink = OutcomeSink {
                wanted: Wanted::Everything,
                policy: part.policy,
                outcomes,
            };
            part.write_uncharged(part.probe, now, Some(part.allowed), &mut sink)?;
            if let Some(left) = part.blocked {
                outcomes.block(part.policy, left);
            }
        }
        if !allowed && self.has_alternatives() {
            self.keep_soonest(outcomes);
        }
        Ok(())
    }

    /// Returns whether the wait for one policy can end while another policy or a block still denies.
    fn is_to_wait_for_all(&self) -> bool {
        let is_blocked = |part: &Part<'_>| part.blocked.is_some();
        (self.parts.len() > 1 || self.parts.iter().any(is_blocked))
            && self.parts.iter().any(|part| part.hours.is_some())
    }

    /// Writes a wait after which all policies let the request pass together.
    #[cold]
    fn wait_for_all(&self, now: Micros, outcomes: &mut Outcomes) -> Result<(), Changed> {
        let effect = |policy| {
            let part = self.parts.iter().find(|part| part.policy == policy);
            part.map_or(DenialEffect::Full, |part| part.effect)
        };
        let mut is_same = Ok(());
        outcomes.set_effects(effect);
        outcomes.wait_for_all(|wait| {
            let mut later = Outcomes::new(now.saturating_add(wait));
            for part in &self.parts {
                if is_same.is_ok() {
                    is_same = part.write_later_outcome(now, wait, &mut later);
                }
            }
            later.set_effects(effect);
            later
        });
        is_same
    }

    /// Sets the cost to the units that every policy grants, soft policies aside. If that is none, the cost is
    /// one unit, which is denied.
    fn share_out(&mut self, now: Micros) -> Result<(), Changed> {
        let most = self.parts.iter().map(|part| part.most).max();
        self.units = most.unwrap_or(0);
        for part in &mut self.parts {
            part.look_up_block(now, self.clock, true);
        }
        if self.has_alternatives() {
            self.choose_giver(now)?;
        }
        for part in self.parts.iter_mut().filter(|part| !part.is_passed) {
            if part.blocked.is_some() && part.effect != DenialEffect::Shadow {
                self.units = 0;
            } else if part.most > 0 && part.effect == DenialEffect::Full {
                self.units = self.units.min(part.remaining(now)?);
            }
        }
        for part in &mut self.parts {
            part.probe.cost = part.most.min(self.units.max(1));
        }
        Ok(())
    }

    /// Finds out whether a key that is given no slot has to be counted by the shared entry, because there is
    /// no room. Then the decision starts anew.
    fn look_for_room(&mut self, allowed: bool, now: Micros) -> Result<(), Changed> {
        let charges = allowed && self.purpose.writes();
        let is_lost = |part: &Part<'_>| {
            !(charges && part.charges() || part.has_room)
                && ask_tier!(part.tier, table => table.lacks_room(&part.snapshot, part.probe))
        };
        if !self.parts.iter().any(is_lost) {
            return Ok(());
        }
        // Searching other pages requires that no page is locked.
        self.unlock();
        for part in self.parts.iter_mut().filter(|part| is_lost(part)) {
            if ask_tier!(part.tier, table => table.has_room(&part.snapshot, now)) {
                part.has_room = true;
            } else {
                part.counted = Counted::Overflow;
            }
        }
        Err(Changed)
    }

    /// Writes the outcomes of a request that would be allowed.
    fn preview(&self, now: Micros, outcomes: &mut Outcomes) -> Result<bool, Changed> {
        for part in self.parts.iter().filter(|part| !part.is_passed) {
            let mut sink = OutcomeSink {
                wanted: Wanted::Everything,
                policy: part.policy,
                outcomes,
            };
            if part.charges() {
                part.write_uncharged(part.probe, now, None, &mut sink)?;
            } else {
                part.write_uncharged(part.probe, now, Some(part.allowed), &mut sink)?;
                if let Some(left) = part.blocked {
                    outcomes.block(part.policy, left);
                }
            }
        }
        Ok(true)
    }

    /// Locks every page, if none has changed since it was read.
    fn lock(&mut self) -> Result<(), Changed> {
        for part in self.parts.iter_mut().filter(|part| part.lock.is_none()) {
            part.lock = Some(ask_tier!(part.tier, table => table.lock(&part.snapshot))?);
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
                && part.probe.cost > 0
                && part.snapshot.latest > now
            {
                ask_tier!(part.tier, table => table.step_back(&part.snapshot, lock, now));
            }
        }
        Ok(())
    }

    /// Charges every policy, once each key has a slot.
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
                let mut sink = OutcomeSink {
                    wanted: self.wanted,
                    policy: part.policy,
                    outcomes,
                };
                let (snapshot, asked, sink) =
                    (&part.snapshot, (part.probe, part.is_new), Some(&mut sink));
                ask_tier!(part.tier, table => table.charge_placed(snapshot, asked, lock, now, sink));
            }
        }
        self.unlock();
        for part in self.parts.iter().filter(|part| part.is_new) {
            ask_tier!(part.tier, table => table.grow(now));
        }
        Ok(())
    }

    /// Gives the slots of the newcomers back, and makes room for the newcomer that has none.
    fn give_up(&mut self, without: usize, now: Micros) {
        for part in self.parts.iter_mut().filter(|part| part.is_new) {
            ask_tier!(part.tier, table => table.note_evictable(&part.snapshot, now));
            part.is_new = false;
        }
        self.unlock();
        let part = &mut self.parts[without];
        part.attempts += 1;
        let snapshot = &part.snapshot;
        if part.attempts > ATTEMPTS
            || !ask_tier!(part.tier, table => table.make_room(snapshot, now))
        {
            part.counted = Counted::Overflow;
        }
    }

    /// Returns the time of the latest charge to the pages of these parts.
    fn latest(&self, which: impl Fn(&Part<'_>) -> bool) -> Micros {
        let parts = self.parts.iter().filter(|part| which(part));
        parts
            .map(|part| part.snapshot.latest)
            .max()
            .unwrap_or(Micros::ZERO)
    }
}

impl<'a> Part<'a> {
    pub(super) fn new(
        policy: usize,
        opened: &'a Opened,
        probe: Probe,
        limit: Option<Algorithm>,
        effect: DenialEffect,
    ) -> Self {
        Self {
            policy,
            tiers: opened.general(),
            tier: opened.general().first(),
            limit,
            blocks: &opened.blocks,
            blockable: probe.fingerprint,
            probe,
            most: probe.cost,
            counted: Counted::Own,
            has_room: false,
            snapshot: PageSnapshot::default(),
            allowed: false,
            blocked: None,
            effect,
            alternative: None,
            share: None,
            beside: 0,
            granted: u32::MAX,
            is_passed: false,
            hours: limit.as_ref().unwrap_or(&opened.first).hours(),
            lock: None,
            is_new: false,
            attempts: 0,
        }
    }

    fn look(&mut self, now: Micros, clock: &dyn Clock) {
        let (tiers, limit) = (self.tiers, self.limit.as_ref());
        (self.tier, self.snapshot) = tiers.snapshot(self.probe, limit, self.counted, now, clock);
    }

    /// Waits until the page can be locked, and then reads it.
    fn lock_and_look(&mut self, now: Micros, clock: &dyn Clock) {
        let (tiers, limit) = (self.tiers, self.limit.as_ref());
        let (tier, snapshot, lock) =
            tiers.snapshot_and_lock(self.probe, limit, self.counted, now, clock);
        (self.tier, self.snapshot, self.lock) = (tier, snapshot, Some(lock));
    }

    /// Returns the last moment that the table can hold.
    fn until(&self) -> Micros {
        ask_tier!(self.tier, table => table.until())
    }

    /// Returns whether the key may be charged.
    fn allows(&self, now: Micros) -> Result<bool, Changed> {
        let needed = self.needed();
        let probe = Probe {
            cost: needed.cost.saturating_add(self.beside),
            ..needed
        };
        ask_tier!(self.tier, table => table.allows(&self.snapshot, probe, now))
    }

    /// Writes the outcome of a request that is not charged, or that it would have if it was charged.
    fn write_uncharged(
        &self,
        probe: Probe,
        now: Micros,
        allowed: Option<bool>,
        sink: &mut OutcomeSink<'_>,
    ) -> Result<(), Changed> {
        let (snapshot, asked) = (&self.snapshot, (probe, now));
        ask_tier!(self.tier, table => table.write_uncharged(snapshot, asked, allowed, sink))
    }

    /// Returns whether the part is charged if the request is allowed.
    fn charges(&self) -> bool {
        self.probe.cost > 0 && self.allowed && !self.is_passed && self.blocked.is_none()
    }

    /// Finds out how much longer the key is blocked.
    fn look_up_block(&mut self, now: Micros, clock: &dyn Clock, only_asks: bool) {
        self.blocked = None;
        if self.blocks.are_any() {
            let only_asks = only_asks || self.probe.cost == 0;
            self.blocked = self.blocks.left(self.blockable, now, clock, only_asks);
        }
    }

    /// Writes the outcome of the policy after this wait, if no request arrives meanwhile.
    fn write_later_outcome(
        &self,
        now: Micros,
        wait: Micros,
        outcomes: &mut Outcomes,
    ) -> Result<(), Changed> {
        let then = now.saturating_add(wait);
        let allowed = self.allows(then)?;
        let mut sink = OutcomeSink {
            wanted: Wanted::Everything,
            policy: self.policy,
            outcomes,
        };
        self.write_uncharged(self.probe, then, Some(allowed), &mut sink)?;
        let left = self.blocked.map(|left| left.saturating_sub(wait));
        if let Some(left) = left.filter(|left| *left > Micros::ZERO) {
            outcomes.block(self.policy, left);
        }
        Ok(())
    }

    /// Returns how many units the policy grants.
    fn remaining(&self, now: Micros) -> Result<u32, Changed> {
        Ok(self.share_of(self.left(now)?).min(self.granted))
    }

    /// Returns how many units are left of the limit.
    fn left(&self, now: Micros) -> Result<u32, Changed> {
        let mut outcomes = Outcomes::new(now);
        let mut sink = OutcomeSink {
            wanted: Wanted::Everything,
            policy: self.policy,
            outcomes: &mut outcomes,
        };
        let probe = Probe {
            cost: 0,
            ..self.probe
        };
        self.write_uncharged(probe, now, Some(true), &mut sink)?;
        let granted = outcomes.iter().next();
        Ok(granted.map_or(0, |(_, outcome)| outcome.remaining()))
    }

    /// Makes sure that the key has a slot, if it is to be charged.
    fn place(&mut self, now: Micros) -> Result<(), NoRoom> {
        if self.charges()
            && let Some(lock) = &mut self.lock
        {
            let (snapshot, probe) = (&self.snapshot, self.probe);
            self.is_new =
                ask_tier!(self.tier, table => table.place_key(snapshot, probe, lock, now))?;
        }
        Ok(())
    }
}
