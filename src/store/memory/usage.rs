use super::counter::Fill;
use crate::algorithm::Algorithm;

/// What one policy takes of a [`MemoryStore`](super::MemoryStore), for metrics and for people.
#[derive(Clone, Debug)]
pub struct Usage {
    policy: String,
    algorithm: Algorithm,
    fill: Fill,
}

impl Usage {
    pub(super) fn new(policy: &str, algorithm: Algorithm, fill: Fill) -> Self {
        Self {
            policy: policy.to_owned(),
            algorithm,
            fill,
        }
    }

    /// The policy's name.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// The policy's algorithm.
    pub fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// How many keys are kept, with those that are as good as new and were not yet forgotten. A
    /// sliding log counts as many as it has entries.
    pub fn keys(&self) -> usize {
        self.fill.keys
    }

    /// How many may be kept.
    pub fn max_keys(&self) -> usize {
        self.fill.bound
    }

    /// The memory that is taken. The entries of logs, and the counts of slots, come on top.
    pub fn bytes(&self) -> usize {
        self.fill.bytes
    }

    /// How many keys have been forgotten, at the bound, though they had used some of their limit.
    pub fn evicted(&self) -> u64 {
        self.fill.evicted
    }

    /// How many requests have been admitted from keys for which there was no room, and which were
    /// counted together.
    pub fn overflowed(&self) -> u64 {
        self.fill.overflowed
    }
}
