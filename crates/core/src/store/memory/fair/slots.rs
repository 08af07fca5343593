//! The tenants that hold slots of a policy on concurrency.
//!
//! How many slots are taken stands beside them, by the shared key: also those of requests that no tenant is known for.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ahash::RandomState;

use super::{OfOneKey, SHARDS, Shard, room};
use crate::algorithm::Algorithm;
use crate::clock::{Clock, Micros};
use crate::policy::Fair;
use crate::store::fair::{Holders, SlotScale, SlotShare};
use crate::store::{Slot, TenantShare};

/// The tenants of a policy on concurrency.
#[derive(Debug)]
pub(in crate::store::memory) struct SlotTenants {
    shards: [Mutex<SlotShard>; SHARDS],
    /// How many tenants each shard keeps, about: each shared key has one more.
    most: usize,
}

#[derive(Debug, Default)]
struct SlotShard {
    all: Shard<Holders>,
    /// Those that are held and counted for no tenant: there was no room for their shared key.
    uncounted: HashSet<Slot, RandomState>,
}

/// The division of a policy's slots, as a backend knows it.
#[derive(Debug)]
pub(in crate::store::memory) struct SlotDivision {
    scale: SlotScale,
    tenants: Arc<SlotTenants>,
}

/// The tenants of one shared key, locked, and the one that asks.
pub(in crate::store::memory) struct SlotSeat<'a> {
    shard: MutexGuard<'a, SlotShard>,
    root: u64,
    tenant: (u64, u32),
    /// The place of the tenant, and what it may take, once it has asked.
    asked: Option<(usize, SlotShare)>,
    scale: SlotScale,
    /// How many tenants the shard keeps.
    most: usize,
}

impl SlotTenants {
    pub(in crate::store::memory) fn new(max_keys: usize) -> Self {
        Self {
            shards: Default::default(),
            most: room(max_keys),
        }
    }
}

impl SlotDivision {
    /// Returns the division of the slots of this algorithm, or `None` if it gives none.
    pub(in crate::store::memory) fn of(
        algorithm: &Algorithm,
        fair: &Fair,
        tenants: Arc<SlotTenants>,
    ) -> Option<Self> {
        let scale = SlotScale::of(algorithm, fair)?;
        Some(Self { scale, tenants })
    }

    /// Returns how many tenants are kept.
    pub(in crate::store::memory) fn tenants(&self) -> usize {
        let shards = self.tenants.shards.iter();
        let shards = shards.map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner));
        shards.map(|shard| shard.all.tenants).sum()
    }

    /// Locks the tenants of a shared key. The keys are fingerprints.
    pub(in crate::store::memory) fn seat(
        &self,
        root: u64,
        (tenant, weight): (u64, u8),
    ) -> SlotSeat<'_> {
        #[expect(clippy::cast_possible_truncation, reason = "a place in a short list")]
        let shard = &self.tenants.shards[root as usize % SHARDS];
        let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        let own = shard.all.of_key(root).map_or(0, OfOneKey::len);
        let free = self
            .tenants
            .most
            .saturating_sub(shard.all.tenants - own)
            .max(1);
        SlotSeat {
            shard,
            root,
            tenant: (tenant, weight.max(1).into()),
            asked: None,
            scale: SlotScale {
                tenants: self.scale.tenants.min(free),
                ..self.scale
            },
            most: self.tenants.most,
        }
    }

    /// Counts slots that a request of a tenant has given back. The clock is read while the tenants are locked, as for
    /// [an amendment of rates](super::Division::amend).
    pub(in crate::store::memory) fn give_back(
        &self,
        root: u64,
        tenant: u64,
        (slot, slots): (Option<Slot>, u32),
        clock: &dyn Clock,
    ) {
        let mut seat = self.seat(root, (tenant, 1));
        let uncounted = &mut seat.shard.uncounted;
        if !uncounted.is_empty() && slot.is_some_and(|slot| uncounted.remove(&slot)) {
            return;
        }
        let (now, scale) = (clock.now(), seat.scale);
        seat.with_holders(|holders| holders.give_back(tenant, slots, now, &scale));
    }
}

impl SlotSeat<'_> {
    /// Returns what the request may take, whose tenant is active from now on.
    pub(in crate::store::memory) fn ask(&mut self, now: Micros) -> SlotShare {
        let (tenant, scale) = (self.tenant, self.scale);
        if self.shard.all.of_key(self.root).is_none() {
            let (root, most) = (self.root, self.most);
            self.shard.all.make_place(root, most, now, &scale);
        }
        self.asked = self.with_holders(|holders| holders.ask(tenant, now, &scale));
        let asked = self.asked;
        asked.map_or_else(|| SlotShare::whole(scale.limit), |(_, share)| share)
    }

    /// Returns what the request might take.
    pub(in crate::store::memory) fn look(&self, now: Micros) -> SlotShare {
        let ((tenant, _), scale) = (self.tenant, &self.scale);
        let holders = self.shard.all.of_key(self.root);
        holders.map_or_else(
            || SlotShare::whole(scale.limit),
            |holders| holders.look(tenant, now, scale),
        )
    }

    /// Returns the part of the tenant beside those that are active.
    pub(in crate::store::memory) fn share(&self, now: Micros) -> TenantShare {
        let (tenant, weight) = self.tenant;
        let holders = self.shard.all.of_key(self.root);
        let weights = holders.map(|holders| holders.active_beside(tenant, now, &self.scale));
        TenantShare::beside_each(weight, weights.into_iter().flatten())
    }

    /// Counts the slots of the request, which has passed.
    pub(in crate::store::memory) fn take(&mut self, slot: Option<Slot>, slots: u32) {
        let scale = self.scale;
        if let Some((tenant, _)) = self.asked {
            self.with_holders(|holders| holders.take(tenant, slots, &scale));
        } else {
            self.shard.uncounted.extend(slot);
        }
    }

    /// Notes that this limit alone has refused the request.
    pub(in crate::store::memory) fn refuse(&mut self, slots: u32) {
        let scale = self.scale;
        if let Some(asked) = self.asked {
            self.with_holders(|holders| holders.refuse(asked, slots, &scale));
        }
    }

    /// Notes that the request was not for this limit to decide.
    pub(in crate::store::memory) fn pass_by(&mut self) {
        let scale = self.scale;
        if let Some((tenant, _)) = self.asked {
            self.with_holders(|holders| holders.pass_by(tenant, &scale));
        }
    }

    /// Acts on the tenants, if they are kept.
    fn with_holders<T>(&mut self, act: impl FnOnce(&mut Holders) -> T) -> Option<T> {
        let shard = &mut self.shard.all;
        let place = shard.places.get(&self.root).copied()?;
        let (_, holders) = shard.each.get_mut(place)?;
        let before = holders.len();
        let answer = act(holders);
        let after = holders.len();
        shard.tenants = shard.tenants + after - before;
        Some(answer)
    }
}

impl Shard<Holders> {
    /// Returns the tenants of a shared key, if they are kept.
    fn of_key(&self, root: u64) -> Option<&Holders> {
        let place = self.places.get(&root)?;
        self.each.get(*place).map(|(_, holders)| holders)
    }
}

#[cfg(all(test, not(tower_ratelimit_loom)))]
mod tests {
    use super::*;
    use crate::algorithm::{Concurrency, TokenBucket};
    use crate::store::Amendment;
    use crate::store::memory::fair::{Division, Tenants};

    /// A clock that stands still.
    struct At(Micros);

    impl Clock for At {
        fn now(&self) -> Micros {
            self.0
        }
    }

    /// A clock that is read while nobody else can ask for a share.
    struct Inside<F>(F);

    impl<F: Fn() -> bool + Send + Sync + 'static> Clock for Inside<F> {
        fn now(&self) -> Micros {
            assert!((self.0)(), "another request may come before the change");
            Micros::new(1)
        }
    }

    /// With a moment from before, the next request would have set back all tenants, and then have had the time in between once more.
    #[test]
    fn a_change_reads_the_clock_while_the_tenants_are_locked() {
        let (rates, slots) = (Arc::new(Tenants::new(64)), Arc::new(SlotTenants::new(64)));
        let (bucket, places) = (TokenBucket::per_second(5), Concurrency::of(5));
        let rate = Division::of(&bucket.into(), &Fair::new(), Arc::clone(&rates)).unwrap();
        let slot = SlotDivision::of(&places.into(), &Fair::new(), Arc::clone(&slots)).unwrap();
        let is_locked = move || rates.shards[3].try_lock().is_err();
        rate.amend(3, (7, 1), (1, &Inside(is_locked)), Amendment::Settle);
        let is_locked = move || slots.shards[3].try_lock().is_err();
        slot.give_back(3, 7, (None, 1), &Inside(is_locked));
    }

    /// Tenants and shared keys that a client invents, some of which hold slots to the end.
    #[test]
    fn what_is_kept_is_bounded() {
        let tenants = Arc::new(SlotTenants::new(64));
        let algorithm = Concurrency::of(5).into();
        let division = SlotDivision::of(&algorithm, &Fair::new(), Arc::clone(&tenants)).unwrap();
        for number in 1..20_000 {
            let now = Micros::new(1_000 * number);
            let (root, tenant) = (number % 1_000, number);
            let mut seat = division.seat(root, (tenant, 1));
            if seat.ask(now).passes(5, 1) {
                seat.take(None, 1);
            }
            drop(seat);
            if number % 7 > 0 {
                division.give_back(root, tenant, (None, 1), &At(now));
            }
        }
        let kept = tenants
            .shards
            .iter()
            .map(|it| it.lock().unwrap().all.tenants);
        let kept: Vec<usize> = kept.collect();
        assert!(kept.iter().all(|kept| *kept <= 80), "{kept:?}");
    }

    /// A slot that was taken without a place of its shared key was given back in the name of a tenant that had taken another one.
    #[test]
    fn what_is_counted_for_no_tenant_is_given_back_for_none() {
        let tenants = Arc::new(SlotTenants::new(1));
        let algorithm = Concurrency::of(5).into();
        let division = SlotDivision::of(&algorithm, &Fair::new(), Arc::clone(&tenants)).unwrap();
        let second = |number: u64| Micros::new(1_000_000 * number);
        let [first, another, third] = [(); 3].map(|()| Some(Slot::unique()));
        let take = |root, slot, now| {
            let mut seat = division.seat(root, (7, 1));
            assert!(seat.ask(now).passes(5, 1));
            seat.take(slot, 1);
        };
        // Both are in one shard, which has room for one.
        take(16, first, second(1));
        take(32, another, second(1));
        division.give_back(16, 7, (first, 1), &At(second(2)));
        take(32, third, second(10));
        let is_idle = || {
            let shard = tenants.shards[0].lock().unwrap();
            let holders = shard.all.of_key(32).unwrap();
            holders.are_idle(second(100), &division.scale)
        };
        division.give_back(32, 7, (another, 1), &At(second(11)));
        assert!(!is_idle(), "a slot is held");
        division.give_back(32, 7, (third, 1), &At(second(11)));
        assert!(is_idle());
        assert!(tenants.shards[0].lock().unwrap().uncounted.is_empty());
    }
}
