//! Snapshots of a memory store: what is restored is saved and restored again as the same. The bytes are the sections of one, between
//! the head and the checksum.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sha2::{Digest, Sha256};
use tower_ratelimit::{Algorithm, Limiter, LocalLimiter, ManualClock, MemoryStore, Micros, Policy};

const ALGORITHMS: [&str; 10] = [
    "fixed-window 10/hour",
    "anchored-window 10/hour",
    "sliding-log 10/hour",
    "sliding-window 10/hour",
    "sliding-slots 10/hour",
    "token-bucket 10/hour",
    "token-bucket-interval 10/hour",
    "leaky-bucket 10/hour",
    "gcra 10/hour",
    "leaky-queue 10/hour places 9",
];

/// The magic number, and the version.
const HEAD: &[u8] = b"\x89TRLSNAP\x01\0\0\0";

fuzz_target!(|sections: &[u8]| {
    let mut saved = [HEAD, sections].concat();
    saved.extend(Sha256::digest(&saved));
    let clock = ManualClock::at(Micros::new(1_788_998_400_000_000));
    let empty = MemoryStore::new().clock(clock.clone());
    let Ok(store) = empty.restore(&saved) else {
        return;
    };
    let again = empty
        .restore(&store.snapshot())
        .expect("it has written that itself");
    let told = |store: &MemoryStore| -> Vec<_> {
        let limiters = ALGORITHMS.map(|algorithm| limiter(store, algorithm));
        let keys = ["ann", "bob", "203.0.113.9"];
        let ask = |key: &'static str| limiters.each_ref().map(|limiter| numbers(limiter, key));
        keys.map(ask).into_iter().flatten().collect()
    };
    assert_eq!(told(&store), told(&again));
});

/// Policies `0` to `9`, one for each algorithm.
fn limiter(store: &MemoryStore, text: &str) -> LocalLimiter {
    let name = ALGORITHMS
        .iter()
        .position(|other| *other == text)
        .unwrap_or_default()
        .to_string();
    let algorithm: Algorithm = text.parse().expect("it is one");
    let builder = Limiter::builder().policy(Policy::new(name, algorithm));
    builder
        .store(store.clone())
        .build_local()
        .expect("the policy is good")
}

/// Looks and charges, and returns what is told of both.
fn numbers(limiter: &LocalLimiter, key: &str) -> [String; 2] {
    let looked = limiter.peek(key, 1).now();
    let charged = limiter.check(key, 1).now();
    for decision in [&looked, &charged] {
        let (_, outcome) = decision.binding().expect("there is a policy");
        assert!(outcome.remaining() <= outcome.limit(), "{outcome:?}");
    }
    [looked, charged].map(|decision| format!("{:?}", decision.binding()))
}
