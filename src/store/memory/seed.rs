use std::array;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use ahash::RandomState;

use crate::key::{IntoKey, Key};

/// What fingerprints are made with: random, and the same for all stores of the process, except for
/// those that were restored, which have that of their snapshot.
///
/// The fingerprint of a key is a hash of 64 bits with 256 random ones, so that a client that
/// does not know them cannot choose keys that meet.
#[derive(Clone)]
pub(super) struct Seed {
    hash: RandomState,
    words: [u64; 4],
}

/// Of a slot in which there is no key, and of the entry that newcomers share.
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

    /// The fingerprints of a key of each kind. Those of another build may differ: the hash is another
    /// one where the compiler may use the processor's instructions for AES.
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
