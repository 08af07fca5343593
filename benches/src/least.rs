//! The minimal work of every limiter of many keys: the floor of every figure of a decision.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use ahash::RandomState;
use quanta::Clock;

/// A word for each key, in a table of the size of ours. A decision reads the clock, hashes the key, reads one
/// word and swaps it. It does not check that the word belongs to the key, never makes room and never forgets
/// a key, so it is no limiter yet.
pub struct Least {
    clock: Clock,
    hash: RandomState,
    lines: Box<[CacheLine]>,
}

/// A cache line, like ours: a fingerprint and a state of four keys.
#[repr(align(64))]
#[derive(Default)]
struct CacheLine([AtomicU64; 8]);

const KEYS_IN_A_LINE: u64 = 4;

/// The number of keys at 25 bytes each.
const KEYS_IN_A_HUNDRED_LINES: usize = 256;

/// The burst in ticks of the clock, which is never reached.
const BURST: u64 = u64::MAX / 2;

impl Least {
    /// Creates words for this many keys.
    pub fn of(keys: u32) -> Self {
        let lines = (keys as usize * 100).div_ceil(KEYS_IN_A_HUNDRED_LINES);
        Self {
            clock: Clock::new(),
            hash: RandomState::new(),
            lines: (0..lines).map(|_| CacheLine::default()).collect(),
        }
    }

    /// Decides by GCRA on one word.
    pub fn admits(&self, key: IpAddr) -> bool {
        let hash = self.hash.hash_one(key);
        let now = self.clock.raw();
        let word = self.word(hash);
        let mut arrival = word.load(Ordering::Acquire);
        loop {
            let next = arrival.max(now) + 1;
            if next - now > BURST {
                return false;
            }
            match word.compare_exchange(arrival, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(other) => arrival = other,
            }
        }
    }

    fn word(&self, hash: u64) -> &AtomicU64 {
        let keys = self.lines.len() as u64 * KEYS_IN_A_LINE;
        let key = ((hash >> 32) * keys) >> 32;
        let CacheLine(words) = &self.lines[(key / KEYS_IN_A_LINE) as usize];
        &words[(key % KEYS_IN_A_LINE * 2 + 1) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Walk;

    #[test]
    fn every_key_is_admitted_and_all_words_are_used() {
        let least = Least::of(10_000);
        assert_eq!(least.lines.len() * size_of::<CacheLine>(), 250_048);
        for key in Walk::over(100_000, 1).all() {
            assert!(least.admits(key));
        }
        let words = least.lines.iter().flat_map(|CacheLine(words)| words);
        let used = words.filter(|word| word.load(Ordering::Relaxed) > 0);
        let all = least.lines.len() * 4;
        assert!(used.count() > all * 99 / 100);
    }
}
