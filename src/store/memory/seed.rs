use std::sync::LazyLock;

use ahash::RandomState;

use crate::key::Key;

/// What fingerprints are made with: random, and the same for all stores of the process.
///
/// The fingerprint of a key is a hash of 64 bits with 256 random ones, so that nobody who does
/// not know them can choose keys that meet.
#[derive(Clone)]
pub(super) struct Seed(RandomState);

/// Of a slot in which there is no key, and of the entry that newcomers share.
pub(super) const RESERVED: u64 = 1;

impl Seed {
    pub(super) fn of_the_process() -> Self {
        static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self(SEED.clone())
    }

    #[inline]
    pub(super) fn fingerprint(&self, key: &Key) -> u64 {
        match self.0.hash_one(key) {
            reserved if reserved <= RESERVED => !reserved,
            hash => hash,
        }
    }
}
