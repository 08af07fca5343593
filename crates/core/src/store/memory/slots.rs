use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::clock::Micros;
use crate::decision::Outcome;
use crate::store::hashed::Hashed;

/// The slots that requests hold under one policy, by the fingerprints of their keys.
///
/// A key has an entry as long as it has a request in flight. So the number of requests bounds the size, and
/// nothing is evicted.
#[derive(Debug, Default)]
pub(super) struct Slots {
    shards: [Mutex<Shard>; SHARDS],
}

type Shard = HashMap<u64, u32, BuildHasherDefault<Hashed<SHARDS>>>;

const SHARDS: usize = 32;

/// The slots of one key, locked.
pub(super) struct KeySlots<'a> {
    fingerprint: u64,
    shard: MutexGuard<'a, Shard>,
}

impl Slots {
    /// Locks the slots of this key.
    pub(super) fn lock_key(&self, fingerprint: u64) -> KeySlots<'_> {
        #[expect(clippy::cast_possible_truncation, reason = "a place in a short list")]
        let shard = &self.shards[fingerprint as usize % SHARDS];
        KeySlots {
            fingerprint,
            shard: shard.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Returns how many keys hold a slot.
    #[cfg(all(test, not(tower_ratelimit_loom)))]
    pub(super) fn keys(&self) -> usize {
        let shards = self.shards.iter();
        shards.map(|shard| shard.lock().unwrap().len()).sum()
    }
}

impl KeySlots<'_> {
    /// Returns how many slots are taken.
    pub(super) fn taken(&self) -> u32 {
        self.shard.get(&self.fingerprint).copied().unwrap_or(0)
    }

    /// Takes slots of this key.
    pub(super) fn take(&mut self, slots: u32) {
        let taken = self.shard.entry(self.fingerprint).or_default();
        *taken = taken.saturating_add(slots);
    }

    /// Takes slots of this key, if so many are free under this limit. Returns how many were taken before.
    #[inline]
    pub(super) fn take_if_free(&mut self, slots: u32, limit: u32) -> u32 {
        match self.shard.entry(self.fingerprint) {
            Entry::Occupied(mut taken) => {
                let before = *taken.get();
                let all = before.checked_add(slots);
                if let Some(all) = all.filter(|all| *all <= limit) {
                    *taken.get_mut() = all;
                }
                before
            }
            Entry::Vacant(free) => {
                if slots > 0 && slots <= limit {
                    free.insert(slots);
                }
                0
            }
        }
    }

    /// Gives slots of this key back.
    pub(super) fn give_back(&mut self, slots: u32) {
        let Entry::Occupied(mut taken) = self.shard.entry(self.fingerprint) else {
            return;
        };
        match taken.get().saturating_sub(slots) {
            0 => drop(taken.remove()),
            left => *taken.get_mut() = left,
        }
    }
}

/// Returns the outcome of a request of this cost under this limit. `is_made` says whether an allowed request
/// takes its slots.
pub(super) fn outcome(taken: u32, limit: u32, cost: u32, is_made: bool) -> Outcome {
    let all = taken.checked_add(cost).filter(|all| *all <= limit);
    let has_room = match cost {
        0 => limit > 0,
        _ => all.is_some(),
    };
    let taken = all.filter(|_| is_made && has_room).unwrap_or(taken);
    let outcome = Outcome::allowed(limit, limit.saturating_sub(taken), Micros::ZERO);
    if has_room {
        outcome
    } else {
        outcome.denied(None)
    }
}

#[cfg(all(test, not(tower_ratelimit_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_key_without_a_request_takes_no_room() {
        let slots = Slots::default();
        for key in 0..1_000 {
            slots.lock_key(key).take(2);
        }
        assert_eq!(slots.keys(), 1_000);
        for key in 0..1_000 {
            slots.lock_key(key).give_back(1);
            assert_eq!(slots.lock_key(key).taken(), 1);
            slots.lock_key(key).give_back(1);
        }
        assert_eq!(slots.keys(), 0);
        slots.lock_key(7).give_back(1);
        assert_eq!(slots.lock_key(7).taken(), 0);
    }
}
