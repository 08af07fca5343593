//! The heaviest of many things, in fixed memory: the space-saving sketch of Metwally, Agrawal and El Abbadi, "Efficient
//! Computation of Frequent and Top-k Elements in Data Streams" (2005), with weights.
//!
//! A thing without a place takes the place of the lightest, and its weight: so no weight is too low, and none
//! is too high by more than the lightest weight. A hash chooses the group of eight places for a thing, so the
//! lightest is found by looking at eight numbers. All groups have about the same weight, except for things
//! that are heavy themselves and keep their places.

/// Tracks the heaviest things, identified by a hash that their owner has keyed at random.
#[derive(Debug)]
pub(super) struct Sketch<T> {
    total: u64,
    groups: Box<[Group<T>]>,
}

/// The number of places in a group.
const GROUP: usize = 8;

#[derive(Debug)]
struct Group<T> {
    /// 0 in an empty place.
    hashes: [u64; GROUP],
    weights: [u64; GROUP],
    errors: [u64; GROUP],
    refused: [u64; GROUP],
    things: [Option<T>; GROUP],
}

/// The numbers of a thing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SketchEstimate {
    pub(super) weight: u64,
    /// The most by which the weight may be too high.
    pub(super) error: u64,
    pub(super) refused: u64,
}

impl<T: Copy> Sketch<T> {
    /// Makes a sketch with room for this many things, or a few more.
    pub(super) fn new(places: usize) -> Self {
        let groups = places.div_ceil(GROUP).next_power_of_two();
        Self {
            total: 0,
            groups: (0..groups).map(|_| Group::new()).collect(),
        }
    }

    /// Adds to the weight of this thing.
    #[inline]
    pub(super) fn add(&mut self, hash: u64, thing: T, weight: u64, is_refused: bool) {
        self.total = self.total.saturating_add(weight);
        let index = self.index(hash);
        if let Some(group) = self.groups.get_mut(index) {
            group.add(hash.max(1), thing, weight, is_refused);
        }
    }

    /// Returns the weight of all things together.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the most that a thing without a place can weigh.
    pub(super) fn lightest(&self) -> u64 {
        self.groups.iter().map(Group::lightest).max().unwrap_or(0)
    }

    /// Returns the most that the thing with this hash weighs.
    pub(super) fn estimate(&self, hash: u64) -> SketchEstimate {
        let group = self.groups.get(self.index(hash));
        group.map_or_else(SketchEstimate::default, |group| group.estimate(hash.max(1)))
    }

    /// Returns the tracked things, with their hashes.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, T)> {
        self.groups.iter().flat_map(|group| {
            let each = group.hashes.iter().zip(&group.things);
            each.filter_map(|(hash, thing)| Some((*hash, (*thing)?)))
        })
    }

    fn index(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.groups.len() - 1)
    }
}

impl<T: Copy> Group<T> {
    fn new() -> Self {
        Self {
            hashes: [0; GROUP],
            weights: [0; GROUP],
            errors: [0; GROUP],
            refused: [0; GROUP],
            things: [None; GROUP],
        }
    }

    #[inline]
    fn add(&mut self, hash: u64, thing: T, weight: u64, is_refused: bool) {
        let refused = u64::from(is_refused);
        if let Some(at) = self.hashes.iter().position(|known| *known == hash) {
            self.weights[at] = self.weights[at].saturating_add(weight);
            self.refused[at] += refused;
        } else if weight > 0 {
            let at = self.place_of_lightest();
            self.errors[at] = self.weights[at];
            self.weights[at] = self.weights[at].saturating_add(weight);
            self.hashes[at] = hash;
            self.refused[at] = refused;
            self.things[at] = Some(thing);
        }
    }

    fn place_of_lightest(&self) -> usize {
        let mut lightest = 0;
        for at in 1..GROUP {
            if self.weights[at] < self.weights[lightest] {
                lightest = at;
            }
        }
        lightest
    }

    fn lightest(&self) -> u64 {
        self.weights[self.place_of_lightest()]
    }

    fn estimate(&self, hash: u64) -> SketchEstimate {
        match self.hashes.iter().position(|known| *known == hash) {
            Some(at) => SketchEstimate {
                weight: self.weights[at],
                error: self.errors[at],
                refused: self.refused[at],
            },
            None => SketchEstimate {
                weight: self.lightest(),
                error: self.lightest(),
                refused: 0,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use ahash::RandomState;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compared with a map of all things.
        #[test]
        fn no_weight_is_too_low_and_none_too_high_by_more_than_its_error(
            things in prop::collection::vec((0_u64..60, 0_u64..9, any::<bool>()), 1..600),
            places in 1_usize..40,
        ) {
            let hasher = RandomState::with_seeds(1, 2, 3, 4);
            let mut sketch = Sketch::new(places);
            let mut exact = HashMap::<u64, u64>::new();
            let mut refused = HashMap::<u64, u64>::new();
            for (thing, weight, is_refused) in things {
                sketch.add(hasher.hash_one(thing), thing, weight, is_refused);
                *exact.entry(thing).or_default() += weight;
                *refused.entry(thing).or_default() += u64::from(is_refused);
            }
            let total: u64 = exact.values().sum();
            prop_assert_eq!(sketch.total(), total);
            let lightest = sketch.lightest();
            prop_assert!(lightest <= total / GROUP as u64);
            let known: HashMap<_, _> = sketch.iter().map(|(hash, thing)| (thing, hash)).collect();
            for (thing, hash) in &known {
                prop_assert_eq!(*hash, hasher.hash_one(thing).max(1));
            }
            for (thing, exact) in exact {
                let estimate = sketch.estimate(hasher.hash_one(thing));
                prop_assert!(exact <= estimate.weight && estimate.weight <= exact + estimate.error);
                prop_assert!(estimate.error <= lightest);
                prop_assert!(estimate.refused <= refused[&thing]);
                prop_assert!(known.contains_key(&thing) || exact <= lightest);
            }
        }
    }

    /// The bound in the paper: about the weight of all things, divided by the number of places.
    #[test]
    fn things_that_never_come_back_leave_an_error_of_about_their_share() {
        let hasher = RandomState::with_seeds(5, 6, 7, 8);
        let mut sketch = Sketch::new(128);
        for thing in 0..100_000_u64 {
            sketch.add(hasher.hash_one(thing), thing, 1, false);
            sketch.add(hasher.hash_one(1_u64 << 40), 1 << 40, 1, false);
        }
        let heavy = sketch.estimate(hasher.hash_one(1_u64 << 40));
        assert!((100_000..100_010).contains(&heavy.weight), "{heavy:?}");
        let (share, error) = (100_000 / 128, sketch.lightest());
        assert!(
            (share..2 * share).contains(&error),
            "{error} beside {share}"
        );
    }
}
