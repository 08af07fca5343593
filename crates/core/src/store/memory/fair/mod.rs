//! The tenants among whom the limits of a policy are divided: [`shares`] has the rule.
//!
//! Tenants are kept beside the states of the policy, by the fingerprint of the shared key. A decision locks the tenants of its shared
//! keys first, in the order of the tables, and then decides as any other.

mod shares;

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::shares::Shares;
use crate::algorithm::Algorithm;
use crate::clock::Micros;
use crate::decision::Outcome;
use crate::policy::Fair;
use crate::store::Amendment;
use crate::store::hashed::Hashed;

pub(super) use self::shares::{Scale, Share};

impl Share {
    /// Writes into an outcome what is left for the tenant, and how long it waits. `taken` is what this request has taken.
    pub(super) fn tell(
        &self,
        outcome: &mut Outcome,
        (cost, taken): (u32, u32),
        wait: impl FnOnce(&Outcome) -> Micros,
    ) {
        let left = self.of(outcome.remaining(), taken);
        if outcome.is_allowed() {
            *outcome = outcome.with_remaining(left);
        } else if !outcome.is_blocked() && !self.is_below(cost) {
            let wait = wait(outcome);
            *outcome = outcome.with_remaining(left).denied(Some(wait));
        }
    }
}

/// The tenants of a policy.
#[derive(Debug)]
pub(super) struct Tenants {
    shards: [Mutex<Shard>; SHARDS],
    /// How many tenants each shard keeps, about: each shared key has one more.
    most: usize,
}

#[derive(Debug, Default)]
struct Shard {
    places: HashMap<u64, usize, BuildHasherDefault<Hashed<SHARDS>>>,
    /// The tenants of each shared key, which stands beside them.
    each: Vec<(u64, Shares)>,
    /// How many tenants all of them have.
    tenants: usize,
    /// The next shared key to visit.
    hand: usize,
}

const SHARDS: usize = 16;

/// How many shared keys are visited for a new one, at most.
const VISITS: usize = 4;

/// The division of a policy's limits, as a ledger knows it.
#[derive(Debug)]
pub(super) struct Division {
    scale: Scale,
    tenants: Arc<Tenants>,
}

/// The tenants of one shared key, locked, and the one that asks.
pub(super) struct Seat<'a> {
    shard: MutexGuard<'a, Shard>,
    root: u64,
    /// The place of the shared key; `None` if it is not kept.
    place: Option<usize>,
    tenant: u64,
    weight: u32,
    scale: Scale,
    /// How many tenants the shard keeps.
    most: usize,
}

impl Tenants {
    pub(super) fn new(max_keys: usize) -> Self {
        Self {
            shards: Default::default(),
            most: max_keys.div_ceil(SHARDS),
        }
    }
}

impl Division {
    /// Returns the division of limits of this algorithm, or `None` if it grants nothing.
    pub(super) fn of(algorithm: &Algorithm, fair: &Fair, tenants: Arc<Tenants>) -> Option<Self> {
        let scale = Scale {
            limit: algorithm.limit()?,
            fill: algorithm.period()?.into(),
            active_for: fair.is_active_for(),
            tenants: fair.tenants(),
        };
        Some(Self { scale, tenants })
    }

    /// Locks the tenants of a shared key. The keys are fingerprints.
    pub(super) fn seat(&self, root: u64, (tenant, weight): (u64, u8)) -> Seat<'_> {
        #[expect(clippy::cast_possible_truncation, reason = "a place in a short list")]
        let shard = &self.tenants.shards[root as usize % SHARDS];
        let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        let of_others = shard.tenants;
        let place = shard.places.get(&root).copied();
        let own = place.map_or(0, |place| shard.each[place].1.len());
        let free = self.tenants.most.saturating_sub(of_others - own).max(1);
        Seat {
            place,
            shard,
            root,
            tenant,
            weight: weight.max(1).into(),
            scale: Scale {
                tenants: self.scale.tenants.min(free),
                ..self.scale
            },
            most: self.tenants.most,
        }
    }

    /// Follows an amendment of the state of a shared key.
    pub(super) fn amend(&self, root: u64, tenant: u64, units: u32, amendment: Amendment) {
        let mut seat = self.seat(root, (tenant, 1));
        let scale = seat.scale;
        let Some(shares) = seat.shares() else {
            return;
        };
        match amendment {
            Amendment::Settle | Amendment::Add(_) => shares.use_up(tenant, units, &scale),
            Amendment::Refund | Amendment::TakeBack(_) => shares.give_back(tenant, units, &scale),
            Amendment::Reset => shares.forgive(tenant),
            Amendment::Release
            | Amendment::GiveBack(_)
            | Amendment::Block(_)
            | Amendment::Unblock
            | Amendment::Override(..)
            | Amendment::EndOverride => {}
        }
    }
}

impl Seat<'_> {
    /// Returns what the request may take, whose tenant is active from now on.
    pub(super) fn ask(&mut self, now: Micros) -> Share {
        if self.place.is_none() {
            self.place = self
                .shard
                .make_place(self.root, self.most, now, &self.scale);
        }
        let (tenant, scale) = ((self.tenant, self.weight), self.scale);
        let Some(place) = self.place else {
            return Share::UNDIVIDED;
        };
        let shares = &mut self.shard.each[place].1;
        let before = shares.len();
        let share = shares.ask(tenant, now, &scale);
        let after = shares.len();
        self.shard.tenants = self.shard.tenants + after - before;
        share
    }

    /// Returns what the request might take.
    pub(super) fn look(&self, now: Micros) -> Share {
        match self.place {
            Some(place) => self.shard.each[place].1.look(self.tenant, now, &self.scale),
            None => Share::UNDIVIDED,
        }
    }

    /// Charges the tenant if its request has passed, and else notes that the limit has refused it.
    pub(super) fn conclude(&mut self, has_passed: bool, cost: u32) {
        let (tenant, scale) = (self.tenant, self.scale);
        match self.shares() {
            Some(shares) if has_passed => shares.charge(tenant, cost, &scale),
            Some(shares) => shares.refuse(tenant, cost, &scale),
            None => {}
        }
    }

    fn shares(&mut self) -> Option<&mut Shares> {
        let place = self.place?;
        Some(&mut self.shard.each[place].1)
    }
}

impl Shard {
    /// Makes a place for a shared key, if there is room. Shared keys that nobody asks for are forgotten.
    fn make_place(&mut self, root: u64, most: usize, now: Micros, scale: &Scale) -> Option<usize> {
        for _ in 0..VISITS.min(self.each.len()) {
            let last = self.each.len() - 1;
            self.hand = self.hand.checked_sub(1).unwrap_or(last).min(last);
            let (_, shares) = &self.each[self.hand];
            if shares.are_idle(now, scale) {
                let (key, shares) = self.each.swap_remove(self.hand);
                self.tenants -= shares.len();
                self.places.remove(&key);
                if let Some((moved, _)) = self.each.get(self.hand) {
                    self.places.insert(*moved, self.hand);
                }
            }
        }
        if self.tenants >= most {
            return None;
        }
        let place = self.each.len();
        self.each.push((root, Shares::default()));
        self.places.insert(root, place);
        Some(place)
    }
}
