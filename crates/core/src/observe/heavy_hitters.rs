//! The heaviest keys of a policy, of the last ten to twenty minutes.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Mutex, OnceLock, PoisonError};

use ahash::RandomState;

use super::sketch::{Sketch, SketchEstimate};
use super::slot::{SHARED, slot};
use crate::clock::Micros;

/// Finds the heaviest keys. Each thread has sketches of its own, so that no thread waits for another.
pub(crate) struct Heaviest<K> {
    places: usize,
    hasher: RandomState,
    /// One sketch for each thread.
    slots: Box<[OnceLock<Mutex<Generations<K>>>]>,
}

/// The heaviest keys.
pub(crate) struct Ranking<K> {
    pub(crate) total: u64,
    pub(crate) error: u64,
    /// The heaviest first.
    pub(crate) keys: Vec<(K, Weight)>,
}

/// The numbers of a key.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weight {
    pub(crate) cost: u64,
    pub(crate) error: u64,
    pub(crate) refused: u64,
}

/// The sketch that is filled, and the one before it.
#[derive(Debug)]
struct Generations<K> {
    began: Micros,
    now: Sketch<K>,
    before: Option<Sketch<K>>,
}

/// How long a sketch is filled.
const LASTS: Micros = Micros::from_secs(600);

impl<K: Copy + Hash> Heaviest<K> {
    /// Tracks this many keys for each thread.
    pub(crate) fn new(places: usize) -> Self {
        Self {
            places,
            hasher: RandomState::new(),
            slots: (0..=SHARED).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Records that this key has asked for this many units, at this moment of the store's clock if it is
    /// known.
    pub(crate) fn add(&self, key: &K, units: u32, is_refused: bool, at: Option<Micros>) {
        let Some(slot) = self.slots.get(slot()) else {
            return;
        };
        let generations = slot.get_or_init(|| Mutex::new(Generations::new(self.places)));
        let hash = self.hasher.hash_one(key);
        let mut generations = generations.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = at {
            generations.turn(at, self.places);
        }
        generations.now.add(hash, *key, units.into(), is_refused);
    }

    /// Returns the heaviest keys of all threads, at most `most`.
    pub(crate) fn read(&self, most: usize) -> Ranking<K> {
        let (mut total, mut error) = (0, 0);
        let mut keys = HashMap::<u64, (K, Weight)>::new();
        self.each_sketch(|sketch| {
            let nothing = Weight::default();
            keys.extend(sketch.iter().map(|(hash, key)| (hash, (key, nothing))));
        });
        // Another thread may have counted the same key, or have lost it.
        self.each_sketch(|sketch| {
            total += sketch.total();
            error += sketch.lightest();
            for (hash, (_, weight)) in &mut keys {
                weight.add(sketch.estimate(*hash));
            }
        });
        let mut keys: Vec<_> = keys.into_values().collect();
        keys.sort_unstable_by_key(|(_, weight)| {
            let at_least = weight.cost - weight.error.min(weight.cost);
            (Reverse(at_least), Reverse(weight.cost))
        });
        keys.truncate(most);
        Ranking { total, error, keys }
    }

    fn each_sketch(&self, mut see: impl FnMut(&Sketch<K>)) {
        for generations in self.slots.iter().filter_map(OnceLock::get) {
            let generations = generations.lock().unwrap_or_else(PoisonError::into_inner);
            see(&generations.now);
            if let Some(before) = &generations.before {
                see(before);
            }
        }
    }
}

impl Weight {
    fn add(&mut self, weighed: SketchEstimate) {
        self.cost += weighed.weight;
        self.error += weighed.error;
        self.refused += weighed.refused;
    }
}

impl<K: Copy> Generations<K> {
    fn new(places: usize) -> Self {
        Self {
            began: Micros::ZERO,
            now: Sketch::new(places),
            before: None,
        }
    }

    /// Begins the next sketch if it is time to.
    fn turn(&mut self, at: Micros, places: usize) {
        if self.began == Micros::ZERO {
            self.began = at;
        }
        // A clock may step back.
        if at.get().abs_diff(self.began.get()) >= LASTS.get() {
            self.began = at;
            self.before = Some(std::mem::replace(&mut self.now, Sketch::new(places)));
        }
    }
}

impl<K> fmt::Debug for Heaviest<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heaviest")
            .field("places", &self.places)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_up_and_no_key_is_told_too_low() {
        let heaviest = Heaviest::<u32>::new(32);
        std::thread::scope(|scope| {
            for thread in 0..4_u32 {
                let heaviest = &heaviest;
                scope.spawn(move || {
                    for round in 0..2_000_u32 {
                        heaviest.add(&7, 3, true, Some(Micros::from_secs(1)));
                        heaviest.add(&8, 2, false, None);
                        let other = 100 + thread * 10_000 + round;
                        heaviest.add(&other, 1, false, None);
                    }
                });
            }
        });
        let found = heaviest.read(2);
        assert_eq!(found.total, 4 * 2_000 * 6);
        assert!(found.error <= found.total / 16, "{}", found.error);
        let keys: Vec<_> = found.keys.iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, [7, 8]);
        for (key, exact) in [(0, 24_000), (1, 16_000)] {
            let (_, weight) = found.keys[key];
            assert!(
                (exact..=exact + weight.error).contains(&weight.cost),
                "{weight:?}"
            );
            assert!(weight.error <= found.error);
        }
        assert_eq!(found.keys[0].1.refused, 8_000);
    }

    #[test]
    fn a_key_is_forgotten_after_twenty_minutes() {
        let heaviest = Heaviest::<u32>::new(8);
        let at = |seconds| Some(Micros::from_secs(seconds));
        let keys = || heaviest.read(8).keys.len();
        heaviest.add(&1, 9, false, at(1_000));
        heaviest.add(&2, 1, false, at(1_601));
        assert_eq!(keys(), 2);
        heaviest.add(&2, 1, false, at(2_202));
        assert_eq!(keys(), 1);
        // A clock that steps back begins anew, and is not stuck.
        heaviest.add(&3, 1, false, at(5));
        heaviest.add(&3, 1, false, at(700));
        assert_eq!(keys(), 1);
    }
}
