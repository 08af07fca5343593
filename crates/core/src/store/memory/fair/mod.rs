//! The tenants among whom the limits of a policy are divided: [`fair`](crate::store::fair) has the rules.
//!
//! Tenants are kept beside the states of the policy, by the fingerprint of the shared key. A decision locks the tenants of its shared
//! keys first, in the order of the tables, and then decides as any other.

mod deciding;
mod slots;

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::algorithm::{Algorithm, State};
use crate::clock::{Clock, Micros};
use crate::policy::{Fair, LONGEST_ACTIVE, MOST_TENANTS};
use crate::store::fair::{Ending, Holders, Scale, Share, Shares, SlotScale};
use crate::store::hashed::Hashed;
use crate::store::{Amendment, TenantShare};

pub(super) use self::slots::{SlotDivision, SlotSeat, SlotTenants};

/// The tenants of a policy.
#[derive(Debug)]
pub(super) struct Tenants {
    shards: [Mutex<Shard<Shares>>; SHARDS],
    /// How many tenants each shard keeps, about: each shared key has one more.
    most: usize,
}

#[derive(Debug, Default)]
struct Shard<T> {
    places: HashMap<u64, usize, BuildHasherDefault<Hashed<SHARDS>>>,
    /// The tenants of each shared key, which stands beside them.
    each: Vec<(u64, T)>,
    /// How many tenants all of them have.
    tenants: usize,
    /// The next shared key to visit.
    hand: usize,
}

/// The tenants of one shared key.
trait OfOneKey: Default {
    /// What is known of the limit.
    type Scale;

    /// Returns how many tenants are kept.
    fn len(&self) -> usize;

    /// Returns whether nothing would change if all tenants were forgotten.
    fn are_idle(&self, now: Micros, scale: &Self::Scale) -> bool;
}

const SHARDS: usize = 16;

/// How many shared keys are visited for a new one, at most.
const VISITS: usize = 4;

/// The division of a policy's limits, as a backend knows it.
#[derive(Debug)]
pub(super) struct Division {
    scale: Scale,
    tenants: Arc<Tenants>,
}

/// The tenants of one shared key, locked, and the one that asks.
pub(super) struct Seat<'a> {
    shard: MutexGuard<'a, Shard<Shares>>,
    root: u64,
    /// The place of the shared key; `None` if it is not kept.
    place: Option<usize>,
    tenant: u64,
    /// The place of the tenant, and what it may take, once it has asked.
    asked: Option<(usize, Share)>,
    weight: u32,
    scale: Scale,
    /// How many tenants the shard keeps.
    most: usize,
}

/// Returns how many tenants a shard keeps of a store of so many keys: its part, and at least those of one shared key.
fn room(max_keys: usize) -> usize {
    let of_one_key = max_keys.min(MOST_TENANTS as usize);
    max_keys.div_ceil(SHARDS).max(of_one_key)
}

impl Tenants {
    pub(super) fn new(max_keys: usize) -> Self {
        Self {
            shards: Default::default(),
            most: room(max_keys),
        }
    }

    /// Returns the shared keys of which tenants may be active or have a debt, with the words of their tenants.
    pub(super) fn each(&self, now: Micros) -> Vec<(u64, State)> {
        let mut each = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let active = shard.each.iter();
            let active = active.filter(|(_, shares)| !shares.are_idle(now, LONGEST_ACTIVE));
            let words = |shares: &Shares| State::from_words(&shares.words());
            each.extend(active.map(|(root, shares)| (*root, words(shares))));
        }
        each
    }

    /// Keeps the tenants of a shared key that has none yet, if there is room.
    pub(super) fn restore(&self, root: u64, shares: Shares) {
        let mut shard = self.shard(root);
        let tenants = shard.tenants + shares.len();
        if shard.places.contains_key(&root) || tenants > self.most {
            return;
        }
        let place = shard.each.len();
        shard.tenants = tenants;
        shard.each.push((root, shares));
        shard.places.insert(root, place);
    }

    fn shard(&self, root: u64) -> MutexGuard<'_, Shard<Shares>> {
        #[expect(clippy::cast_possible_truncation, reason = "a place in a short list")]
        let shard = &self.shards[root as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Division {
    /// Returns the division of limits of this algorithm, or `None` if it grants nothing.
    pub(super) fn of(algorithm: &Algorithm, fair: &Fair, tenants: Arc<Tenants>) -> Option<Self> {
        let scale = Scale::of(algorithm, fair)?;
        Some(Self { scale, tenants })
    }

    /// Returns how many tenants are kept.
    pub(super) fn tenants(&self) -> usize {
        let shards = self.tenants.shards.iter();
        let shards = shards.map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner));
        shards.map(|shard| shard.tenants).sum()
    }

    /// Locks the tenants of a shared key. The keys are fingerprints.
    pub(super) fn seat(&self, root: u64, (tenant, weight): (u64, u8)) -> Seat<'_> {
        let shard = self.tenants.shard(root);
        let of_others = shard.tenants;
        let place = shard.places.get(&root).copied();
        let own = place.map_or(0, |place| shard.each[place].1.len());
        let free = self.tenants.most.saturating_sub(of_others - own).max(1);
        Seat {
            place,
            shard,
            root,
            tenant,
            asked: None,
            weight: weight.max(1).into(),
            scale: Scale {
                tenants: self.scale.tenants.min(free),
                ..self.scale
            },
            most: self.tenants.most,
        }
    }

    /// Follows an amendment of the state of a shared key. The clock is read while the tenants are locked: a moment from before would be one
    /// to which it has stepped back, if another request has come meanwhile.
    pub(super) fn amend(
        &self,
        root: u64,
        (tenant, weight): (u64, u8),
        (units, clock): (u32, &dyn Clock),
        amendment: Amendment,
    ) {
        let mut seat = self.seat(root, (tenant, weight));
        let (tenant, scale) = ((tenant, seat.weight), seat.scale);
        let is_used_up = matches!(amendment, Amendment::Settle | Amendment::Add(_));
        if is_used_up || seat.place.is_some() {
            let now = clock.now();
            seat.with_shares(now, |shares| {
                shares.amend(tenant, (units, now), amendment, &scale);
            });
        }
    }
}

impl Seat<'_> {
    /// Returns what the request may take, whose tenant is active from now on. It asks once: nothing else changes while the tenants are locked.
    pub(super) fn ask(&mut self, now: Micros) -> Share {
        let (tenant, scale) = ((self.tenant, self.weight), self.scale);
        if self.asked.is_none() {
            self.asked = self.with_shares(now, |shares| shares.ask(tenant, now, &scale));
        }
        self.asked
            .map_or_else(|| Share::whole(scale.limit), |(_, share)| share)
    }

    /// Acts on the tenants, which are kept from now on if there is room.
    fn with_shares<T>(&mut self, now: Micros, act: impl FnOnce(&mut Shares) -> T) -> Option<T> {
        if self.place.is_none() {
            let (root, most) = (self.root, self.most);
            self.place = self.shard.make_place(root, most, now, &self.scale);
        }
        let shares = &mut self.shard.each[self.place?].1;
        let before = shares.len();
        let answer = act(shares);
        let after = shares.len();
        self.shard.tenants = self.shard.tenants + after - before;
        Some(answer)
    }

    /// Returns what the request might take.
    pub(super) fn look(&self, now: Micros) -> Share {
        match self.place {
            Some(place) => self.shard.each[place].1.look(self.tenant, now, &self.scale),
            None => Share::whole(self.scale.limit),
        }
    }

    /// Returns the part of the tenant beside those that are active.
    pub(super) fn share(&self, now: Micros) -> TenantShare {
        let shares = self.place.map(|place| &self.shard.each[place].1);
        let weights = shares.map(|shares| shares.active_beside(self.tenant, now, &self.scale));
        TenantShare::beside_each(self.weight, weights.into_iter().flatten())
    }

    /// Follows the end of a request. Returns what its tenant may take now.
    pub(super) fn conclude(&mut self, ending: Ending, cost: u32) -> Option<Share> {
        let ((place, mut share), scale) = (self.asked?, self.scale);
        self.shares()?
            .conclude((place, &mut share), ending, cost, &scale);
        Some(share)
    }

    fn shares(&mut self) -> Option<&mut Shares> {
        let place = self.place?;
        Some(&mut self.shard.each[place].1)
    }
}

impl OfOneKey for Holders {
    type Scale = SlotScale;

    fn len(&self) -> usize {
        self.len()
    }

    fn are_idle(&self, now: Micros, scale: &SlotScale) -> bool {
        self.are_idle(now, scale)
    }
}

impl OfOneKey for Shares {
    type Scale = Scale;

    fn len(&self) -> usize {
        self.len()
    }

    fn are_idle(&self, now: Micros, scale: &Scale) -> bool {
        self.are_idle(now, scale.active_for)
    }
}

impl<T: OfOneKey> Shard<T> {
    /// Makes a place for a shared key, if there is room. Shared keys that nobody asks for are forgotten.
    fn make_place(
        &mut self,
        root: u64,
        most: usize,
        now: Micros,
        scale: &T::Scale,
    ) -> Option<usize> {
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
        self.each.push((root, T::default()));
        self.places.insert(root, place);
        Some(place)
    }
}
