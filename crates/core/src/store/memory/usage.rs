use super::sink::Fill;
use crate::algorithm::Algorithm;

/// The usage of a [`MemoryStore`](super::MemoryStore) by one policy, for metrics and for people.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Usage {
    /// The policy's name.
    pub policy: String,
    /// The policy's algorithm.
    pub algorithm: Algorithm,
    /// The number of keys, including those that are as good as new and not yet removed. A sliding log counts as many as it has
    /// entries.
    pub keys: usize,
    /// The largest number of keys.
    pub max_keys: usize,
    /// The memory in use, in bytes. The entries of logs, and the counts of slots, come on top.
    pub bytes: usize,
    /// How many keys were evicted at the bound although they had used some of their limit.
    pub evicted: u64,
    /// How many requests were admitted from keys that had no room and were counted together.
    pub overflowed: u64,
}

impl Usage {
    pub(super) fn new(policy: &str, algorithm: Algorithm, fill: Fill) -> Self {
        Self {
            policy: policy.to_owned(),
            algorithm,
            keys: fill.keys,
            max_keys: fill.bound,
            bytes: fill.bytes,
            evicted: fill.evicted,
            overflowed: fill.overflowed,
        }
    }
}
