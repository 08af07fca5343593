use std::array;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use ahash::RandomState;

use crate::key::{IntoKey, Key};

/// The random numbers of the fingerprints. They are the same for all stores of the process, except for
/// restored stores, which have those of their snapshot.
///
/// A fingerprint is a hash of 64 bits with 256 random bits, so a client that does not know them cannot choose
/// keys that collide.
#[derive(Clone)]
pub(super) struct Seed {
    hash: RandomState,
    words: [u64; 4],
}

/// The fingerprint of the entry that newcomers share. The one below marks an empty slot.
pub(super) const RESERVED: u64 = 1;

impl Seed {
    pub(super) fn of_the_process() -> Self {
        static SEED: LazyLock<Seed> = LazyLock::new(|| {
            let random = RandomState::new();
            Seed::of_words(array::from_fn(|word| random.hash_one(word)))
        });
        SEED.clone()
    }

    pub(super) fn of_words([first, second, third, fourth]: [u64; 4]) -> Self {
        Self {
            hash: RandomState::with_seeds(first, second, third, fourth),
            words: [first, second, third, fourth],
        }
    }

    pub(super) fn words(&self) -> [u64; 4] {
        self.words
    }

    /// Returns the fingerprints of a known key of each kind. Another build may give others: the hash differs
    /// where the compiler may use the processor's instructions for AES.
    pub(super) fn samples(&self) -> [u64; 5] {
        let keys = [
            "tower-ratelimit".into_key(),
            "longer than the bytes that a key has room for".into_key(),
            u64::MAX.into_key(),
            Ipv4Addr::LOCALHOST.into_key(),
            Ipv6Addr::LOCALHOST.into_key(),
        ];
        keys.map(|key| self.fingerprint(&key))
    }

    #[inline]
    pub(super) fn fingerprint(&self, key: &Key) -> u64 {
        match self.hash.hash_one(key) {
            reserved if reserved <= RESERVED => !reserved,
            hash => hash,
        }
    }
}
