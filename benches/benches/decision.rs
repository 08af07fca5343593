//! One decision in process: ours beside governor's keyed limiter, in one run.
//!
//! Absolute times depend on the machine; compare the rows of one group with each other.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;
use std::time::Instant;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use governor::clock::MonotonicClock;
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use tower_ratelimit::{
    Algorithm, AnchoredWindow, FixedWindow, Gcra, Limiter, Policy, SlidingLog, SlidingSlots,
    SlidingWindow, TokenBucket,
};

type Governor = governor::RateLimiter<
    IpAddr,
    DashMapStateStore<IpAddr>,
    MonotonicClock,
    NoOpMiddleware<Instant>,
>;

/// A limit that is never reached, and one that always is.
const PLENTY: u32 = 4_000_000_000;
const NOTHING_LEFT: u32 = 1;

fn ours(algorithm: impl Into<Algorithm>) -> Limiter {
    Limiter::builder()
        .policy(Policy::new("bench", algorithm))
        .build()
        .expect("one policy with a good name")
}

fn governor(limit: u32) -> Governor {
    let limit = NonZeroU32::new(limit).expect("not zero");
    // The clock that std has, as for ours.
    Governor::new(
        governor::Quota::per_hour(limit),
        DashMapStateStore::default(),
        MonotonicClock,
    )
}

fn address(n: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(n))
}

/// The same order of keys for both: a walk that visits each of a power of two once.
fn walk(keys: u32) -> impl FnMut() -> IpAddr {
    let mut n = 0_u32;
    move || {
        n = n.wrapping_mul(5).wrapping_add(12_345) % keys;
        address(n)
    }
}

fn one_hot_key(c: &mut Criterion) {
    let mut group = c.benchmark_group("decision/one hot key");
    for (name, limit) in [("allowed", PLENTY), ("refused", NOTHING_LEFT)] {
        let limiter = ours(Gcra::per_hour(limit));
        group.bench_function(BenchmarkId::new("ours", name), |b| {
            b.iter(|| limiter.check_now(black_box(address(1)), 1).is_allowed());
        });
        let limiter = governor(limit);
        group.bench_function(BenchmarkId::new("governor", name), |b| {
            b.iter(|| limiter.check_key(black_box(&address(1))).is_ok());
        });
    }
    group.finish();
}

fn many_keys(c: &mut Criterion) {
    let mut group = c.benchmark_group("decision/many keys");
    for keys in [1 << 13, 1 << 20] {
        let limiter = ours(Gcra::per_hour(PLENTY));
        let mut next = walk(keys);
        group.bench_function(BenchmarkId::new("ours", keys), |b| {
            b.iter(|| limiter.check_now(black_box(next()), 1).is_allowed());
        });
        let limiter = governor(PLENTY);
        let mut next = walk(keys);
        group.bench_function(BenchmarkId::new("governor", keys), |b| {
            b.iter(|| limiter.check_key(black_box(&next())).is_ok());
        });
    }
    group.finish();
}

fn each_algorithm(c: &mut Criterion) {
    let mut group = c.benchmark_group("decision/each algorithm");
    let algorithms: [Algorithm; 7] = [
        Gcra::per_hour(PLENTY).into(),
        TokenBucket::per_hour(PLENTY).by_interval().into(),
        FixedWindow::per_hour(PLENTY).into(),
        AnchoredWindow::per_hour(PLENTY).into(),
        SlidingWindow::per_hour(PLENTY).into(),
        SlidingSlots::per_hour(PLENTY).into(),
        // A log keeps what it admits: this one refuses from its hundredth request on.
        SlidingLog::per_hour(100).into(),
    ];
    for algorithm in algorithms {
        let limiter = ours(algorithm);
        group.bench_function(algorithm.name(), |b| {
            b.iter(|| limiter.check_now(black_box(address(1)), 1).is_allowed());
        });
    }
    group.finish();
}

criterion_group!(benches, one_hot_key, many_keys, each_algorithm);
criterion_main!(benches);
