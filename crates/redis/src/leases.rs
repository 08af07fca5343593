//! The units that this node holds, and what it knows of their keys.
//!
//! A pair is a key under a policy and a limit. Pairs are kept in generations, as denials are; the units of
//! evicted pairs are given back.

mod answers;

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ahash::RandomState;
use tokio::sync::oneshot;

use super::lease::{NodeClock, Pair, Terms, UnitsRequest, Way};
use super::not_leased::SmallLimits;
use super::opened::OpenedPolicy;
use super::pairs::{Again, Counts, Entry, LeaseRequest, LeaseRequests, Local, PairId, Shard};
use super::under_way::UnderWay;
use tower_ratelimit_core::__internal::{KeyEpochs, SHARDS};
use tower_ratelimit_core::algorithm::Limit;
use tower_ratelimit_core::clock::Micros;
use tower_ratelimit_core::decision::Outcomes;
use tower_ratelimit_core::observe::LeaseStats;
use tower_ratelimit_core::store::Charge;

/// The units that this node holds under a list of policies.
pub(super) struct Leases {
    clock: NodeClock,
    /// The terms of each policy, or `None` if its units are not leased.
    terms: Box<[Option<Terms>]>,
    small_limits: SmallLimits,
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
    /// Changes through any backend of the store, other than by requests.
    changes: Arc<KeyEpochs>,
    /// The units to give back of evicted pairs.
    returns: Mutex<Vec<LeaseRequest>>,
    is_looked_after: AtomicBool,
    pub(super) on_their_way: UnderWay,
}

/// The number of pairs at most; each takes some 800 bytes.
const MOST: usize = 8_192;

/// A request with more charges asks the server.
const MOST_CHARGES: usize = 16;

impl Leases {
    pub(super) fn new(
        clock: NodeClock,
        (terms, small_limits): (Box<[Option<Terms>]>, SmallLimits),
        changes: Arc<KeyEpochs>,
    ) -> Self {
        Self {
            clock,
            terms,
            small_limits,
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
            changes,
            returns: Mutex::default(),
            is_looked_after: AtomicBool::new(false),
            on_their_way: UnderWay::default(),
        }
    }

    /// Returns whether units of all of these charges are leased.
    pub(super) fn lends(&self, charges: &[Charge]) -> bool {
        let lends = |charge: &Charge| {
            let is_small = |limit: Limit| self.small_limits.finds(charge.policy, limit.size());
            charge.cost > 0
                && !charge.is_soft
                && charge.slot.is_none()
                && self.terms(charge.policy).is_some()
                && !charge.limit.is_some_and(is_small)
        };
        charges.len() <= MOST_CHARGES && charges.iter().all(lends)
    }

    /// Returns whether units of this policy are leased.
    pub(super) fn leases(&self, policy: usize) -> bool {
        self.terms(policy).is_some()
    }

    fn terms(&self, policy: usize) -> Option<Terms> {
        self.terms.get(policy).copied().flatten()
    }

    /// Returns how long a denial of several charges is remembered at most.
    pub(super) fn remembers_for(&self, charges: &[Charge]) -> Duration {
        let terms = charges
            .iter()
            .filter_map(|charge| self.terms(charge.policy));
        let least = terms.map(|terms| terms.covers).min();
        least.unwrap_or(Micros::ZERO).to_duration()
    }

    /// Decides if this node holds units for all charges, or knows that the only one cannot pass.
    pub(super) fn decide(
        &self,
        charges: &[Charge],
        policies: &[OpenedPolicy],
        outcomes: &mut Outcomes,
    ) -> Option<Local> {
        let now = self.clock.now();
        if let [charge] = charges {
            let terms = self.terms(charge.policy)?;
            let (mut shard, hash) = self.shard_of(charge);
            let (entry, counts) = self.live(&mut shard, hash, charge, now)?;
            let way = entry.pair.request(now, charge.cost);
            return entry.follow(way, (charge, policies, now), terms, counts, outcomes);
        }
        let mut low = 0;
        for (place, charge) in charges.iter().enumerate() {
            let (mut shard, hash) = self.shard_of(charge);
            let way = self
                .live(&mut shard, hash, charge, now)
                .and_then(|(entry, counts)| {
                    let way = entry.pair.request(now, charge.cost);
                    match way {
                        Way::Spent { is_low } if entry.spend(charge, now, counts, outcomes) => {
                            Some(is_low)
                        }
                        _ => None,
                    }
                });
            drop(shard);
            let Some(is_low) = way else {
                self.put_back(&charges[..place], now);
                *outcomes = Outcomes::new(Micros::ZERO);
                return None;
            };
            low |= u32::from(is_low) << place;
        }
        outcomes.put_in_order();
        Some(Local {
            is_allowed: true,
            low,
        })
    }

    /// Decides a request that was not decided before, or that has waited.
    pub(super) fn again(
        &self,
        charges: &[Charge],
        policies: &[OpenedPolicy],
        outcomes: &mut Outcomes,
    ) -> Again {
        let [charge] = charges else {
            return Again::Ask;
        };
        let now = self.clock.now();
        let (mut shard, hash) = self.shard_of(charge);
        let live = self.live(&mut shard, hash, charge, now);
        let Some(((entry, counts), terms)) = live.zip(self.terms(charge.policy)) else {
            return Again::Ask;
        };
        match entry.pair.again(now, charge.cost) {
            Way::Wait => {
                entry.pair.wait(charge.cost);
                let (waker, hears) = oneshot::channel();
                entry.waiting.push(waker);
                Again::Wait(hears)
            }
            way => {
                let local = entry.follow(way, (charge, policies, now), terms, counts, outcomes);
                local.map_or(Again::Ask, Again::Decided)
            }
        }
    }

    /// Puts the units of these charges back, because another policy has none.
    fn put_back(&self, charges: &[Charge], now: Micros) {
        for charge in charges {
            let (mut shard, hash) = self.shard_of(charge);
            let Shard { young, counts, .. } = &mut *shard;
            counts.spent = counts.spent.saturating_sub(charge.cost.into());
            counts.saved = counts.saved.saturating_sub(1);
            if let Some(entry) = young.get_mut(&hash)
                && entry.of.is(charge)
            {
                entry.pair.put_back(now, charge.cost);
            }
        }
    }

    /// Returns the entry of a charge, which is made if there is none, and the counts. Returns `None` if its
    /// place is taken.
    #[inline]
    fn live<'a>(
        &self,
        shard: &'a mut Shard,
        hash: u64,
        charge: &Charge,
        now: Micros,
    ) -> Option<(&'a mut Entry, &'a mut Counts)> {
        let is_live = |entry: &Entry| entry.of.is(charge) && self.changes.is_still(entry.epoch);
        if !shard.young.get(&hash).is_some_and(is_live) {
            self.make_live(shard, hash, charge, now);
        }
        let entry = shard.young.get_mut(&hash)?;
        entry.of.is(charge).then_some((entry, &mut shard.counts))
    }

    /// Moves an entry to the young generation, or makes one. If the key was changed since then, the entry
    /// starts empty.
    #[cold]
    fn make_live(&self, shard: &mut Shard, hash: u64, charge: &Charge, now: Micros) {
        if let Some(entry) = shard.young.get(&hash) {
            if entry.of.is(charge)
                && let Some(changed) = shard.young.insert(hash, self.new_entry(charge))
            {
                self.give_back_later(&mut shard.counts, changed, now);
            }
            return;
        }
        let known = shard.old.remove(&hash);
        if shard.young.len() >= MOST / SHARDS / 2 {
            let young = mem::take(&mut shard.young);
            let old = mem::replace(&mut shard.old, young);
            for (_, entry) in old {
                self.give_back_later(&mut shard.counts, entry, now);
            }
        }
        match known {
            Some(entry) if entry.of.is(charge) && self.changes.is_still(entry.epoch) => {
                shard.young.insert(hash, entry);
            }
            known => {
                shard.young.insert(hash, self.new_entry(charge));
                if let Some(entry) = known {
                    self.give_back_later(&mut shard.counts, entry, now);
                }
            }
        }
    }

    fn new_entry(&self, charge: &Charge) -> Entry {
        Entry {
            of: PairId::without_cost(charge),
            pair: Pair::default(),
            epoch: self.changes.of(&charge.key),
            last: None,
            waiting: Vec::new(),
        }
    }

    fn give_back_later(&self, counts: &mut Counts, entry: Entry, now: Micros) {
        let Entry {
            of,
            mut pair,
            epoch,
            ..
        } = entry;
        if let Some(ask) = pair.give_back(now) {
            let question = of.question(ask, epoch, now);
            counts.gives_back(&question.ask);
            self.returns().push(question);
        }
    }

    /// Returns the questions for the server about these charges.
    pub(super) fn ask(&self, charges: &[Charge]) -> LeaseRequests {
        let now = self.clock.now();
        let requests = charges.iter().map(|charge| {
            let (mut shard, hash) = self.shard_of(charge);
            let mut ask = UnitsRequest {
                cost: charge.cost,
                ..UnitsRequest::default()
            };
            let mut epoch = self.changes.of(&charge.key);
            if let Some(terms) = self.terms(charge.policy)
                && let Some((entry, counts)) = self.live(&mut shard, hash, charge, now)
            {
                epoch = entry.epoch;
                ask = entry.pair.ask(now, charge.cost, terms);
                counts.gives_back(&ask);
            }
            LeaseRequest {
                charge: *charge,
                ask,
                epoch,
                put: now,
            }
        });
        requests.collect()
    }

    /// Returns reports on the spent units of these charges, to be sent before their keys are changed.
    pub(super) fn reports(&self, charges: &[Charge]) -> Vec<LeaseRequest> {
        self.questions_of(charges, Pair::tell)
    }

    /// Returns the units of these charges, to be given back.
    pub(super) fn give_back(&self, charges: &[Charge]) -> Vec<LeaseRequest> {
        self.questions_of(charges, Pair::give_back)
    }

    fn questions_of(
        &self,
        charges: &[Charge],
        ask: impl Fn(&mut Pair, Micros) -> Option<UnitsRequest>,
    ) -> Vec<LeaseRequest> {
        let now = self.clock.now();
        let questions = charges.iter().filter_map(|charge| {
            let (mut shard, hash) = self.shard_of(charge);
            let Shard { young, old, counts } = &mut *shard;
            let entry = young.get_mut(&hash).or_else(|| old.get_mut(&hash))?;
            if !entry.of.is(charge) {
                return None;
            }
            let ask = ask(&mut entry.pair, now)?;
            counts.gives_back(&ask);
            Some(entry.of.question(ask, entry.epoch, now))
        });
        questions.collect()
    }

    /// Returns the units of the keys of these charges, under any limit, to be given back.
    pub(super) fn end(&self, charges: &[Charge]) -> Vec<LeaseRequest> {
        self.questions(|PairId(of), pair, now| {
            let mut charges = charges.iter();
            let is_of = |charge: &Charge| of.policy == charge.policy && of.key == charge.key;
            charges.any(is_of).then(|| pair.give_back(now)).flatten()
        })
    }

    /// Returns the units of pairs that no request has needed lately, and of evicted pairs, to be given
    /// back.
    pub(super) fn idle(&self) -> Vec<LeaseRequest> {
        let mut idle = self.questions(|of, pair, now| pair.idle(now, self.terms(of.0.policy)?));
        idle.append(&mut self.returns());
        idle
    }

    /// Returns all units that can be given back.
    pub(super) fn all(&self) -> Vec<LeaseRequest> {
        let mut all = self.questions(|_, pair, now| pair.give_back(now));
        all.append(&mut self.returns());
        all
    }

    fn questions(
        &self,
        mut ask: impl FnMut(&PairId, &mut Pair, Micros) -> Option<UnitsRequest>,
    ) -> Vec<LeaseRequest> {
        let now = self.clock.now();
        let mut questions = Vec::new();
        for shard in &self.shards {
            let mut shard = locked(shard);
            let Shard { young, old, counts } = &mut *shard;
            for entry in young.values_mut().chain(old.values_mut()) {
                if let Some(ask) = ask(&entry.of, &mut entry.pair, now) {
                    counts.gives_back(&ask);
                    questions.push(entry.of.question(ask, entry.epoch, now));
                }
            }
        }
        questions
    }

    /// Returns whether a task has to start that gives back unused units.
    pub(super) fn is_to_be_looked_after(&self) -> bool {
        !self.is_looked_after.load(Ordering::Acquire)
            && !self.is_looked_after.swap(true, Ordering::AcqRel)
    }

    /// Records that this task has ended.
    pub(super) fn sweeper_stopped(&self) {
        self.is_looked_after.store(false, Ordering::Release);
    }

    /// Returns whether any units are held, or have to be given back.
    pub(super) fn holds_any(&self) -> bool {
        let now = self.clock.now();
        let is_returning = !self.returns().is_empty();
        is_returning
            || self
                .shards
                .iter()
                .any(|shard| locked(shard).unspent(now) > 0)
    }

    /// Returns how many units are held, and what happened to the others.
    pub(super) fn stats(&self) -> LeaseStats {
        let now = self.clock.now();
        let (mut all, mut unspent) = (Counts::default(), 0);
        for shard in &self.shards {
            let shard = locked(shard);
            unspent += shard.unspent(now);
            all.add(shard.counts);
        }
        all.stats(unspent)
    }

    fn returns(&self) -> MutexGuard<'_, Vec<LeaseRequest>> {
        self.returns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[expect(clippy::cast_possible_truncation, reason = "a place in a short list")]
    fn shard_of(&self, charge: &Charge) -> (MutexGuard<'_, Shard>, u64) {
        let pair = (charge.policy, charge.key, charge.limit);
        let hash = self.hasher.hash_one(pair);
        (locked(&self.shards[hash as usize % SHARDS]), hash)
    }
}

fn locked(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod exact_tests;
#[cfg(test)]
#[path = "../tests/unit/leases/shares.rs"]
mod shares;
#[cfg(test)]
mod tests;
