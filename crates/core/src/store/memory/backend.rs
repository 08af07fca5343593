//! The backend of the store in memory: which path each charge takes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::driver::{Decision, Part, Purpose};
use super::fair::{Division, SlotDivision};
use super::guarantee::{Guarantee, Siblings};
use super::known::{self, KnownCharge};
use super::opened::Opened;
use super::ordering::ascending;
use super::page_snapshot::{Counted, Probe};
use super::seed::Seed;
use super::sink::OutcomeSink;
use crate::algorithm::{Algorithm, Limit};
use crate::clock::{AnyClock, Clock, Micros};
use crate::decision::{DenialEffect, Outcomes};
use crate::error::StoreError;
use crate::key::Key;
use crate::observe::{KeyStats, StoreStats};
use crate::store::charged::mark;
use crate::store::sealed::Sealed;
use crate::store::{
    Amendment, Backend, Charge, Charged, Charges, Outlook, Reply, TenantShare, Wanted,
};

/// A [`MemoryStore`](super::MemoryStore) opened for a list of policies.
pub struct MemoryBackend {
    pub(super) clock: AnyClock,
    seed: Seed,
    pub(super) policies: Box<[Opened]>,
    /// The policies in the order in which their tables are locked. The order is the same for all backends of a
    /// store: otherwise two decisions could wait for each other's locks.
    order_of_locking: Box<[usize]>,
    /// Whether any policy has a penalty.
    has_penalties: bool,
    /// Whether any policy is on concurrency, so that requests hold slots.
    has_slots: bool,
    /// Whether the limit of any policy is divided among tenants, or guaranteed to the keys of another one.
    has_divisions: bool,
}

impl MemoryBackend {
    pub(super) fn new(clock: AnyClock, seed: Seed, policies: Box<[Opened]>) -> Self {
        let order_of_locking = ascending(policies.iter().map(|opened| opened.number as u64));
        let has_penalties = policies.iter().any(|opened| opened.penalty.is_some());
        let has_slots = policies.iter().any(Opened::takes_slots);
        let has_divisions = policies
            .iter()
            .any(|opened| opened.division.is_some() || opened.guarantee.is_some());
        Self {
            clock,
            seed,
            policies,
            order_of_locking: order_of_locking.into(),
            has_penalties,
            has_slots,
            has_divisions,
        }
    }

    /// Decides one request; see [`Backend::charge`]. If a charge names a policy that was not opened, nothing
    /// is charged and there are no outcomes.
    pub fn charge_now(&self, charges: &[Charge]) -> Outcomes {
        let mut outcomes = Outcomes::new(Micros::ZERO);
        self.decide(charges, Wanted::Everything, &mut outcomes);
        mark(charges, &mut outcomes);
        outcomes
    }

    /// Decides as [`charge_now`](Self::charge_now) does, and returns whether the request may go on. It may
    /// not if a charge names a policy that was not opened.
    pub fn admit_now(&self, charges: &[Charge]) -> bool {
        self.decide(charges, Wanted::Verdict, &mut Outcomes::new(Micros::ZERO))
    }

    /// Decides under one policy, which is one of the opened ones and has neither a penalty nor slots, and under this
    /// limit, if there is one. Returns whether the request is allowed, and writes its outcome into `outcomes`, which
    /// are empty.
    pub(crate) fn charge_one(
        &self,
        policy: usize,
        (key, cost): (&Key, u32),
        limit: Option<Limit>,
        outcomes: &mut Outcomes,
    ) -> bool {
        let sink = &mut OutcomeSink {
            wanted: Wanted::Everything,
            policy,
            outcomes,
        };
        match limit {
            None => self.decide_one(policy, (key, cost), Some(sink)),
            Some(limit) => self.decide_one_under(policy, key, cost, limit, Some(sink)),
        }
    }

    /// Decides as [`charge_one`](Self::charge_one) does, without the numbers.
    #[expect(
        clippy::inline_always,
        reason = "a call costs a twelfth of the decision"
    )]
    #[inline(always)]
    pub(crate) fn admit_one(&self, policy: usize, key: &Key, cost: u32) -> bool {
        self.decide_one(policy, (key, cost), None)
    }

    /// Decides as [`admit_one`](Self::admit_one) does, under this limit, if there is one.
    #[inline]
    pub(crate) fn admit_under(
        &self,
        policy: usize,
        (key, cost): (&Key, u32),
        limit: Option<Limit>,
    ) -> bool {
        match limit {
            None => self.admit_one(policy, key, cost),
            Some(limit) => self.decide_one_under(policy, key, cost, limit, None),
        }
    }

    /// Takes as many units as there are; see [`Backend::acquire_up_to`]. If a charge names a policy that was not
    /// opened, nothing is taken and there are no outcomes.
    pub(in crate::store) fn acquire_up_to_now(&self, charges: &[Charge]) -> (u32, Outcomes) {
        let of_rates: Charges;
        let mut charges = charges;
        if self.has_slots {
            // Slots are taken one by one, and held.
            let rates = charges.iter().filter(|charge| !self.takes_slots(charge));
            of_rates = rates.copied().collect();
            charges = &of_rates;
        }
        let mut outcomes = Outcomes::new(Micros::ZERO);
        let mut decision = Decision::new(&self.clock, Wanted::Everything, Purpose::Take);
        let mut units = 0;
        if self.add_parts(&mut decision, charges) {
            // A block by another thread may deny the units that were counted before.
            if decision.decide(&mut outcomes) {
                units = decision.units();
            }
            mark(charges, &mut outcomes);
        }
        (units, outcomes)
    }

    /// Changes the state of each key under its policy; see [`Backend::amend`]. Charges of policies that were
    /// not opened are ignored.
    ///
    /// # Errors
    ///
    /// When there is no room for another override: see [`MemoryStore`](super::MemoryStore).
    pub fn amend_now(&self, charges: &[Charge], amendment: Amendment) -> Result<bool, StoreError> {
        let mut answer = amendment.answer_about_none();
        for charge in charges {
            let Some(opened) = self.policies.get(charge.policy) else {
                continue;
            };
            let mut probe = self.probe(&charge.key, charge.cost);
            // Whether turns are given back is known when the table has answered.
            let is_of_turns = matches!(amendment, Amendment::GiveBack(_));
            let tenant = (probe.fingerprint, charge.weight);
            let follow = |division: &Division, root| {
                division.amend(root, tenant, (charge.cost, &self.clock), amendment);
            };
            if let Some(division) = &opened.division
                && !amendment.is_of_blocks()
            {
                probe = self.probe(&charge.key.root(), charge.cost);
                if !is_of_turns {
                    follow(division, probe.fingerprint);
                }
            }
            if let Some(division) = &opened.slot_division
                && amendment == Amendment::Release
            {
                let tenant = probe.fingerprint;
                probe = self.probe(&charge.key.root(), charge.cost);
                let slots = (charge.slot, charge.cost);
                division.give_back(probe.fingerprint, tenant, slots, &self.clock);
            }
            // They are locked before the state changes, as in a decision: no sibling asks between the two changes.
            let guarantee = opened.guarantee.as_ref();
            let mut siblings =
                guarantee.map(|it| self.siblings((it, &opened.first), probe, charges));
            let mut children_follow = || {
                if let Some(siblings) = &mut siblings {
                    let units = (charge.cost, self.clock.now());
                    siblings.amend(units, opened.limit_of(charge), amendment);
                }
            };
            if opened.amend_at_once(charge, probe, amendment, &self.clock) {
                children_follow();
                continue;
            }
            let limit = opened.limit_of(charge);
            let of_key = opened.amend(probe, limit.as_ref(), amendment, &self.clock)?;
            if let Some(division) = &opened.division
                && is_of_turns
                && of_key
            {
                follow(division, probe.fingerprint);
            }
            if of_key {
                children_follow();
            }
            answer = amendment.and(answer, of_key);
        }
        Ok(answer)
    }

    #[inline]
    fn decide(&self, charges: &[Charge], wanted: Wanted, outcomes: &mut Outcomes) -> bool {
        if self.has_slots && charges.iter().any(|charge| self.takes_slots(charge)) {
            if let [charge] = charges
                && let Some(is_allowed) = self.take_slots_at_once(charge, outcomes)
            {
                return is_allowed;
            }
            return self.decide_with_slots(charges, wanted, Purpose::Charge, outcomes);
        }
        self.decide_all(charges, wanted, outcomes)
    }

    /// Decides charges without slots.
    #[inline]
    fn decide_all(&self, charges: &[Charge], wanted: Wanted, outcomes: &mut Outcomes) -> bool {
        if !self.has_penalties {
            return self.decide_unpenalized(charges, wanted, outcomes);
        }
        self.decide_penalized(charges, wanted.with_refusals(), outcomes)
    }

    #[inline(never)]
    fn decide_penalized(
        &self,
        charges: &[Charge],
        wanted: Wanted,
        outcomes: &mut Outcomes,
    ) -> bool {
        let allowed = self.decide_unpenalized(charges, wanted, outcomes);
        if !allowed {
            self.penalize(charges, outcomes);
        }
        allowed
    }

    /// Counts refusals for the penalties of the policies that have denied, and writes the blocks that begin.
    #[cold]
    fn penalize(&self, charges: &[Charge], outcomes: &mut Outcomes) {
        for charge in charges {
            let Some(opened) = self.policies.get(charge.policy) else {
                continue;
            };
            let denied = outcomes.iter().find(|(policy, outcome)| {
                *policy == charge.policy && !outcome.is_allowed() && charge.cost > 0
            });
            if let (Some(penalty), Some((policy, _)), false) =
                (&opened.penalty, denied, charge.is_soft)
            {
                let fingerprint = self.seed.fingerprint(&charge.key);
                if let Some(length) = opened
                    .blocks
                    .note_refusal(fingerprint, penalty, &self.clock)
                {
                    outcomes.penalize(policy, length);
                }
            }
        }
    }

    #[inline]
    fn decide_unpenalized(
        &self,
        charges: &[Charge],
        wanted: Wanted,
        outcomes: &mut Outcomes,
    ) -> bool {
        match charges {
            [charge]
                if charge.policy < self.policies.len()
                    && !charge.is_soft
                    && charge.alternative.is_none() =>
            {
                if self.has_divisions {
                    let opened = &self.policies[charge.policy];
                    if let Some(division) = &opened.division {
                        return self.decide_divided(charge, division, wanted, outcomes);
                    }
                    if opened.guarantee.is_some() {
                        return self.decide_as(charges, wanted, Purpose::Charge, outcomes);
                    }
                }
                if let Some(limit) = charge.limit {
                    return self.decide_under_its_limit(charge, limit, wanted, outcomes);
                }
                let sink = &mut OutcomeSink {
                    wanted,
                    policy: charge.policy,
                    outcomes,
                };
                self.decide_one(charge.policy, (&charge.key, charge.cost), Some(sink))
            }
            _ => self.decide_together(charges, wanted, outcomes),
        }
    }

    /// Decides a request that concerns one policy alone.
    #[expect(
        clippy::inline_always,
        reason = "a call costs a twelfth of the decision"
    )]
    #[inline(always)]
    fn decide_one(
        &self,
        policy: usize,
        (key, cost): (&Key, u32),
        mut sink: Option<&mut OutcomeSink<'_>>,
    ) -> bool {
        let opened = &self.policies[policy];
        // The clock first, which may be a call: less has to be kept over it.
        let now = self.clock.now();
        let probe = self.probe(key, cost);
        if opened.blocks.are_any() && opened.blocks.may_hold(probe.fingerprint, now) {
            return self.decide_on_a_suspect(policy, probe, sink);
        }
        if opened.limit.is_none() {
            let counter = &*opened.counter;
            if let Some(allowed) = counter.decide_at_once(None, probe, now, sink.as_deref_mut()) {
                return allowed;
            }
        }
        self.decide_further(opened, opened.limit.as_ref(), probe, now, sink)
    }

    /// A function of its own, since the fast path takes fewer instructions the less it carries along.
    #[inline(never)]
    pub(super) fn decide_further(
        &self,
        opened: &Opened,
        limit: Option<&Algorithm>,
        probe: Probe,
        now: Micros,
        mut sink: Option<&mut OutcomeSink<'_>>,
    ) -> bool {
        let (table, mut its) = (&opened.counter, Counted::Own);
        if limit.is_some() {
            // A backend that was opened with another limit has not tried this yet.
            if let Some(allowed) = table.decide_at_once(limit, probe, now, sink.as_deref_mut()) {
                return allowed;
            }
        } else {
            match table.decide_new_at_once(probe, now, sink.as_deref_mut()) {
                Ok(allowed) => return allowed,
                Err(counted) => its = counted,
            }
        }
        let general = opened.general();
        general.decide_in_the_end((probe, its), limit, now, &self.clock, sink)
    }

    /// Decides a request whose key may be blocked.
    #[cold]
    fn decide_on_a_suspect(
        &self,
        policy: usize,
        probe: Probe,
        sink: Option<&mut OutcomeSink<'_>>,
    ) -> bool {
        let mut unwanted = Outcomes::new(Micros::ZERO);
        let (wanted, outcomes) = match sink {
            Some(sink) => (sink.wanted, &mut *sink.outcomes),
            None => (Wanted::Verdict, &mut unwanted),
        };
        let mut decision = Decision::new(&self.clock, wanted, Purpose::Charge);
        decision.add(Part::new(
            policy,
            &self.policies[policy],
            probe,
            self.policies[policy].limit,
            DenialEffect::Full,
        ));
        decision.decide(outcomes)
    }

    /// Returns the outcomes of [`charge_now`](Self::charge_now), and charges nothing.
    pub fn peek_now(&self, charges: &[Charge]) -> Outcomes {
        let mut outcomes = Outcomes::new(Micros::ZERO);
        if self.has_slots && charges.iter().any(|charge| self.takes_slots(charge)) {
            self.decide_with_slots(charges, Wanted::Everything, Purpose::Peek, &mut outcomes);
        } else {
            self.decide_as(charges, Wanted::Everything, Purpose::Peek, &mut outcomes);
        }
        mark(charges, &mut outcomes);
        outcomes
    }

    /// Decides one key and one cost under these policies, each with a flag that says whether it is soft. A
    /// denial names the first policy that denies. Returns `None` in all but the common case.
    #[inline]
    pub(crate) fn admit_alike(
        &self,
        policies: &[(usize, bool)],
        key: &Key,
        cost: u32,
    ) -> Option<Result<(), usize>> {
        if self.has_penalties || self.has_slots || self.has_divisions {
            return None;
        }
        let probe = self.probe(key, cost);
        let charges = policies.iter().map(|&(policy, is_soft)| KnownCharge {
            policy,
            probe,
            is_soft,
            limit: None,
            is_one_of_several: false,
        });
        let mut unwanted = Outcomes::new(Micros::ZERO);
        let now = self.clock.now();
        known::decide(&self.policies, charges, now, Wanted::Verdict, &mut unwanted)
    }

    fn decide_together(&self, charges: &[Charge], wanted: Wanted, outcomes: &mut Outcomes) -> bool {
        if self.has_divisions {
            return self.decide_as(charges, wanted, Purpose::Charge, outcomes);
        }
        let Some(verdict) = self.decide_known(charges, wanted, outcomes) else {
            if self.decide_either(charges, wanted, outcomes) {
                return true;
            }
            return self.decide_as(charges, wanted, Purpose::Charge, outcomes);
        };
        let allowed = verdict.is_ok();
        if wanted.includes(allowed) {
            outcomes.put_in_order();
        }
        allowed
    }

    /// Decides if every key is known and the case is the common one.
    #[inline]
    fn decide_known(
        &self,
        charges: &[Charge],
        wanted: Wanted,
        outcomes: &mut Outcomes,
    ) -> Option<Result<(), usize>> {
        let mut last: Option<(&Key, u64)> = None;
        let known = charges.iter().map(|charge| {
            // Most requests charge one key under all policies.
            let fingerprint = match last {
                Some((key, fingerprint)) if *key == charge.key => fingerprint,
                _ => self.seed.fingerprint(&charge.key),
            };
            last = Some((&charge.key, fingerprint));
            let cost = charge.cost;
            KnownCharge {
                policy: charge.policy,
                probe: Probe { fingerprint, cost },
                is_soft: charge.is_soft,
                limit: charge.limit,
                is_one_of_several: charge.alternative.is_some(),
            }
        });
        let now = self.clock.now();
        known::decide(&self.policies, known, now, wanted, outcomes)
    }

    /// Charges one of several, and all that are always charged, if the case is the common one. Returns whether it is.
    // A function of its own, since most requests have no group.
    #[inline(never)]
    fn decide_either(&self, charges: &[Charge], wanted: Wanted, outcomes: &mut Outcomes) -> bool {
        if charges.iter().all(|charge| charge.alternative.is_none()) {
            return false;
        }
        let probe = |charge: &Charge| self.probe(&charge.key, charge.cost);
        let now = self.clock.now();
        let decided = known::decide_either(&self.policies, charges, probe, now, wanted, outcomes);
        if decided.is_some() && wanted.includes(true) {
            outcomes.put_in_order();
        }
        decided.is_some()
    }

    pub(super) fn decide_as(
        &self,
        charges: &[Charge],
        wanted: Wanted,
        purpose: Purpose,
        outcomes: &mut Outcomes,
    ) -> bool {
        let mut decision = Decision::new(&self.clock, wanted, purpose);
        if !self.add_parts(&mut decision, charges) {
            return false;
        }
        decision.decide(outcomes)
    }

    /// Adds a part for each charge. Returns `false` if a charge names a policy that was never opened.
    fn add_parts<'a>(&'a self, decision: &mut Decision<'a>, charges: &[Charge]) -> bool {
        let is_open = |charge: &Charge| charge.policy < self.policies.len();
        if !charges.iter().all(is_open) {
            return false;
        }
        for &policy in &self.order_of_locking {
            if let Some(charge) = charges.iter().find(|charge| charge.policy == policy) {
                let opened = &self.policies[policy];
                let probe = self.probe(&opened.counted(&charge.key), charge.cost);
                let limit = opened.limit_of(charge);
                let part = Part::new(policy, opened, probe, limit, charge.effect());
                let part = part.one_of(charge.alternative);
                if let Some(division) = &opened.division {
                    let tenant = self.fingerprint(&charge.key);
                    let seat = division.seat(probe.fingerprint, (tenant, charge.weight));
                    decision.add_for(tenant, seat, part);
                } else if let Some(guarantee) = &opened.guarantee {
                    let siblings = self.siblings((guarantee, &opened.first), probe, charges);
                    decision.add_beside(siblings, part);
                } else {
                    decision.add(part);
                }
            }
        }
        true
    }

    /// Locks the children of a key, whose policy guarantees something to those of the policy below, and has this algorithm.
    fn siblings<'a>(
        &self,
        (guarantee, first): (&'a Guarantee, &'a Algorithm),
        root: Probe,
        charges: &[Charge],
    ) -> Siblings<'a> {
        let mut charges = charges.iter();
        let of_child = charges.find(|charge| charge.policy == guarantee.child);
        let child = of_child.map(|charge| self.fingerprint(&charge.key));
        guarantee.siblings((root.fingerprint, child), first)
    }

    /// Returns whether the request of this charge holds slots.
    fn takes_slots(&self, charge: &Charge) -> bool {
        self.opened(charge.policy).is_some_and(Opened::takes_slots)
    }

    pub(super) fn opened(&self, policy: usize) -> Option<&Opened> {
        self.policies.get(policy)
    }

    pub(super) fn is_open(&self, charge: &Charge) -> bool {
        charge.policy < self.policies.len()
    }

    pub(super) fn in_order_of_locking(&self) -> impl Iterator<Item = (usize, &Opened)> {
        let policies = self.order_of_locking.iter();
        policies.map(|&policy| (policy, &self.policies[policy]))
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        &self.clock
    }

    pub(super) fn fingerprint(&self, key: &Key) -> u64 {
        self.seed.fingerprint(key)
    }

    /// Decides the charges without slots of a request that also asks for slots.
    pub(super) fn decide_rest(
        &self,
        charges: &[Charge],
        wanted: Wanted,
        purpose: Purpose,
        outcomes: &mut Outcomes,
    ) -> bool {
        match purpose {
            Purpose::Charge => self.decide_all(charges, wanted, outcomes),
            purpose => self.decide_as(charges, wanted, purpose, outcomes),
        }
    }

    #[inline]
    pub(super) fn probe(&self, key: &Key, cost: u32) -> Probe {
        Probe {
            fingerprint: self.seed.fingerprint(key),
            cost,
        }
    }
}

impl Sealed for MemoryBackend {}

impl Backend for MemoryBackend {
    #[inline]
    fn charge(&self, charges: &[Charge], wanted: Wanted, outcomes: &mut Outcomes) -> Charged {
        Charged::Now(Ok(self.decide(charges, wanted, outcomes)))
    }

    fn acquire_up_to(&self, charges: &[Charge]) -> Reply<Result<(u32, Outcomes), StoreError>> {
        Reply::Now(Ok(self.acquire_up_to_now(charges)))
    }

    fn peek(&self, charges: &[Charge]) -> Reply<Result<Outcomes, StoreError>> {
        Reply::Now(Ok(self.peek_now(charges)))
    }

    fn outlook(&self, charges: &[Charge]) -> Reply<Result<Outlook, StoreError>> {
        Reply::Now(Ok(self.outlook_now(charges)))
    }

    fn refusals(&self, charge: &Charge) -> Reply<Result<u32, StoreError>> {
        let opened = self.policies.get(charge.policy);
        let counting = opened.and_then(|opened| {
            let fingerprint = self.seed.fingerprint(&charge.key);
            let penalty = opened.penalty.as_ref()?;
            Some(opened.blocks.refusals(fingerprint, penalty, &self.clock))
        });
        Reply::Now(Ok(counting.unwrap_or_default()))
    }

    fn tenant_share(&self, charge: &Charge) -> Reply<Result<Option<TenantShare>, StoreError>> {
        let opened = self.policies.get(charge.policy);
        let share = opened.and_then(|opened| {
            let root = self.probe(&charge.key.root(), 0).fingerprint;
            let tenant = (self.seed.fingerprint(&charge.key), charge.weight);
            let now = self.clock().now();
            if let Some(division) = &opened.slot_division {
                return Some(division.seat(root, tenant).share(now));
            }
            Some(opened.division.as_ref()?.seat(root, tenant).share(now))
        });
        Reply::Now(Ok(share))
    }

    fn amend(&self, charges: &[Charge], amendment: Amendment) -> Reply<Result<bool, StoreError>> {
        Reply::Now(self.amend_now(charges, amendment))
    }

    fn stats(&self) -> StoreStats {
        StoreStats::new("memory")
    }

    fn keys(&self, policy: usize) -> Option<KeyStats> {
        let opened = self.policies.get(policy)?;
        let fill = opened.general().fill();
        let of_slots = opened.slot_division.as_ref().map(SlotDivision::tenants);
        let tenants = of_slots.or_else(|| opened.division.as_ref().map(Division::tenants));
        Some(KeyStats {
            kept: fill.keys as u64,
            most: fill.bound as u64,
            bytes: fill.bytes as u64,
            evicted: fill.evicted,
            overflowed: fill.overflowed,
            tenants: tenants.map(|tenants| tenants as u64),
        })
    }

    fn holds_for(&self, policy: usize) -> Duration {
        let Some(opened) = self.policies.get(policy) else {
            return Duration::ZERO;
        };
        let now = self.clock.now();
        let last = opened.general().last_override_end();
        let last = last.max(opened.blocks.last_end());
        let last = last.map_or(Micros::ZERO, |last| last.saturating_sub(now));
        last.max(opened.general().longest_reset(now)).to_duration()
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        self.clock.other()
    }
}

impl fmt::Debug for MemoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBackend").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::LeakyQueue;
    use crate::clock::ManualClock;
    use crate::key::IntoKey;
    use crate::policy::Policy;
    use crate::store::{Departure, MemoryStore};

    /// A newcomer to a full store that has got an entry meanwhile gave its turns back to that, and the next newcomers
    /// were held for them.
    #[test]
    fn turns_in_the_shared_entry_are_given_back_there() {
        let store = MemoryStore::new().max_keys(2).clock(ManualClock::new());
        let queue = Policy::new("queue", LeakyQueue::per_second(2).places(99));
        let backend = store.backend(&[queue]);
        let charge = |key: &'static str, cost| Charge::new(0, key.into_key(), cost);
        for key in ["one", "two"] {
            backend
                .amend_now(&[charge(key, 200)], Amendment::Settle)
                .unwrap();
        }
        let take = |key| {
            let answer = backend.charge_now(&[charge(key, 1)]);
            let (_, outcome) = answer.iter().next().unwrap();
            let begins = answer.at().saturating_add(outcome.delay_micros());
            (outcome.is_overflow(), Departure::at(begins))
        };
        let newcomer = [(); 3].map(|()| take("newcomer"));
        assert!(newcomer.iter().all(|(is_overflow, _)| *is_overflow));
        backend
            .amend_now(&[charge("one", 0)], Amendment::Reset)
            .unwrap();
        assert!(!take("newcomer").0, "there is room for it");
        let (_, last) = newcomer[2];
        let give_back = |departure| {
            let amendment = Amendment::GiveBack(departure);
            backend
                .amend_now(&[charge("newcomer", 1)], amendment)
                .unwrap()
        };
        assert!(!give_back(last));
        assert!(give_back(last.charged_where(false, true)));
        assert!(
            !give_back(last.charged_where(false, true)),
            "it is given back"
        );
    }
}
