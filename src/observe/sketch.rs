//! The heaviest of many things, in fixed memory: the space-saving sketch of Metwally, Agrawal and El Abbadi, "Efficient
//! Computation of Frequent and Top-k Elements in Data Streams" (2005), with weights.
//!
//! A thing that is not kept takes the place of the lightest, and its weight: so no weight is told too low, and none too
//! high by more than the lightest weight, which is at most the weight of all divided by the number of places.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Keeps the heaviest things. They are told apart by a hash that their owner has keyed at random.
#[derive(Debug)]
pub(super) struct Sketch<T> {
    places: usize,
    total: u64,
    /// By hash, where it is among `kept`.
    index: HashMap<u64, usize, BuildHasherDefault<AsItIs>>,
    kept: Vec<Kept<T>>,
    /// Weights and places among `kept`: none is lighter than the one above it, and the first is the lightest.
    heap: Vec<(u64, usize)>,
}

#[derive(Debug)]
struct Kept<T> {
    hash: u64,
    thing: T,
    error: u64,
    refused: u64,
    /// Where it is in the heap.
    at: usize,
}

/// Of a number that is a hash.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// What is told of a thing that is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heavy<T> {
    pub(super) hash: u64,
    pub(super) thing: T,
    pub(super) weight: u64,
    /// By how much the weight may be too high.
    pub(super) error: u64,
    pub(super) refused: u64,
}

/// Each place in the heap has so many below it: half as many levels as with two.
const BELOW: usize = 4;

impl<T: Copy> Sketch<T> {
    pub(super) fn new(places: usize) -> Self {
        Self {
            places,
            total: 0,
            index: HashMap::with_capacity_and_hasher(2 * places, BuildHasherDefault::default()),
            kept: Vec::with_capacity(places),
            heap: Vec::with_capacity(places),
        }
    }

    /// This thing weighs so much more.
    pub(super) fn add(&mut self, hash: u64, thing: T, weight: u64, is_refused: bool) {
        self.total = self.total.saturating_add(weight);
        let refused = u64::from(is_refused);
        if let Some(&place) = self.index.get(&hash) {
            let kept = &mut self.kept[place];
            kept.refused += refused;
            let at = kept.at;
            self.heap[at].0 = self.heap[at].0.saturating_add(weight);
            self.sink(at);
        } else if self.kept.len() < self.places {
            let place = self.kept.len();
            let at = self.heap.len();
            self.index.insert(hash, place);
            self.kept.push(Kept {
                hash,
                thing,
                error: 0,
                refused,
                at,
            });
            self.heap.push((weight, place));
            self.rise(at);
        } else if let Some(&(lightest, place)) = self.heap.first() {
            self.index.remove(&self.kept[place].hash);
            self.index.insert(hash, place);
            self.kept[place] = Kept {
                hash,
                thing,
                error: lightest,
                refused,
                at: 0,
            };
            self.heap[0].0 = lightest.saturating_add(weight);
            self.sink(0);
        }
    }

    /// What all weigh together.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The most that a thing can weigh that is not kept.
    pub(super) fn lightest(&self) -> u64 {
        let is_full = self.kept.len() == self.places;
        let lightest = self.heap.first().filter(|_| is_full);
        lightest.map_or(0, |(weight, _)| *weight)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Heavy<T>> {
        self.heap.iter().map(|&(weight, place)| {
            let kept = &self.kept[place];
            Heavy {
                hash: kept.hash,
                thing: kept.thing,
                weight,
                error: kept.error,
                refused: kept.refused,
            }
        })
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let first = BELOW * at + 1;
            let below = first..(first + BELOW).min(self.heap.len());
            let Some(lightest) = below.min_by_key(|&below| self.heap[below].0) else {
                return;
            };
            if self.heap[at].0 <= self.heap[lightest].0 {
                return;
            }
            self.swap(at, lightest);
            at = lightest;
        }
    }

    fn rise(&mut self, mut at: usize) {
        while at > 0 {
            let above = (at - 1) / BELOW;
            if self.heap[above].0 <= self.heap[at].0 {
                return;
            }
            self.swap(at, above);
            at = above;
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        for at in [one, other] {
            let place = self.heap[at].1;
            self.kept[place].at = at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a map of all.
        #[test]
        fn no_weight_is_too_low_and_none_too_high_by_more_than_its_error(
            things in prop::collection::vec((0_u64..40, 1_u64..9, any::<bool>()), 1..600),
            places in 1_usize..24,
        ) {
            let mut sketch = Sketch::new(places);
            let mut exact = HashMap::<u64, u64>::new();
            let mut refused = HashMap::<u64, u64>::new();
            for (thing, weight, is_refused) in things {
                sketch.add(thing, thing, weight, is_refused);
                *exact.entry(thing).or_default() += weight;
                *refused.entry(thing).or_default() += u64::from(is_refused);
            }
            let total: u64 = exact.values().sum();
            prop_assert_eq!(sketch.total(), total);
            let lightest = sketch.lightest();
            prop_assert!(lightest <= total / places as u64);
            let kept: Vec<_> = sketch.iter().collect();
            prop_assert_eq!(kept.len(), places.min(exact.len()));
            for heavy in &kept {
                let weight = exact[&heavy.thing];
                prop_assert!(weight <= heavy.weight && heavy.weight <= weight + heavy.error);
                prop_assert!(heavy.error <= lightest);
                prop_assert!(heavy.refused <= refused[&heavy.thing]);
            }
            for (thing, weight) in exact {
                let is_kept = kept.iter().any(|heavy| heavy.thing == thing);
                prop_assert!(is_kept || weight <= lightest);
            }
        }
    }
}
