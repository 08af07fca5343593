use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use ahash::AHasher;

use super::faults::Faults;
use super::workload::Shape;
use crate::algorithm::Algorithm;
use crate::clock::Micros;

/// A map that is the same in each run.
pub(super) type Map<K, V> = HashMap<K, V, BuildHasherDefault<AHasher>>;

/// What is played.
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
    /// How long it lasts, in microseconds.
    pub(super) lasts: u64,
}
