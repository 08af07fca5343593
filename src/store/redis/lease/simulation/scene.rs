use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use ahash::AHasher;

use super::faults::Faults;
use super::workload::Shape;
use crate::algorithm::Algorithm;
use crate::clock::Micros;

/// A map with the same order in each run.
pub(super) type Map<K, V> = HashMap<K, V, BuildHasherDefault<AHasher>>;

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene {
    pub(super) algorithm: Algorithm,
    pub(super) shape: Shape,
    pub(super) nodes: usize,
    /// Requests a second, of all nodes and keys.
    pub(super) rate: f64,
    pub(super) life: Micros,
    pub(super) faults: Faults,
    pub(super) seed: u64,
    /// The length of the run, in microseconds.
    pub(super) lasts: u64,
}
