use super::sink::Fill;
use crate::algorithm::Algorithm;

/// The usage of a [`MemoryStore`](super::MemoryStore) by one policy, for metrics and for people.
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

    /// Returns the policy's name.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// Returns the policy's algorithm.
    pub fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// Returns the number of keys, including those that are as good as new and not yet removed. A sliding log
    /// counts as many as it has entries.
    pub fn keys(&self) -> usize {
        self.fill.keys
    }

    /// Returns the largest number of keys.
    pub fn max_keys(&self) -> usize {
        self.fill.bound
    }

    /// Returns the memory in use, in bytes. The entries of logs, and the counts of slots, come on top.
    pub fn bytes(&self) -> usize {
        self.fill.bytes
    }

    /// Returns how many keys were evicted at the bound although they had used some of their limit.
    pub fn evicted(&self) -> u64 {
        self.fill.evicted
    }

    /// Returns how many requests were admitted from keys that had no room and were counted together.
    pub fn overflowed(&self) -> u64 {
        self.fill.overflowed
    }
}
