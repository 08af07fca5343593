use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use ahash::AHasher;

use super::faults::Faults;
use super::random::Random;
use super::workload::Shape;
use tower_ratelimit_core::algorithm::Algorithm;
use tower_ratelimit_core::clock::Micros;

/// A map with the same order in each run.
pub(super) type Map<K, V> = HashMap<K, V, BuildHasherDefault<AHasher>>;

/// How far the server is from the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Distance {
    Near,
    /// An answer takes 40 to 80 ms.
    Far,
}

impl Distance {
    /// Returns how long a message travels.
    pub(super) fn trip(self, random: &mut Random) -> u64 {
        match self {
            Self::Near => random.trip(),
            Self::Far => 20_000 + random.below(20_000),
        }
    }
}

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene {
    pub(super) algorithm: Algorithm,
    pub(super) shape: Shape,
    pub(super) nodes: usize,
    /// Requests a second, of all nodes and keys.
    pub(super) rate: f64,
    pub(super) life: Micros,
    pub(super) distance: Distance,
    pub(super) faults: Faults,
    pub(super) seed: u64,
    /// The length of the run, in microseconds.
    pub(super) lasts: u64,
}
