//! The cost of limits that follow the load: of a factor for each decision, of a layer's signals for each
//! request, and of the kernel's signals for each sample. `cargo bench --package tower-ratelimit-benches
//! --bench adapt`.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use tower::Layer;
use tower_ratelimit::clock::QuantaClock;
use tower_ratelimit::{LocalLimiter, MemoryStore};
use tower_ratelimit_adapt::middleware::{AdaptiveConcurrencyLayer, TrafficLayer};
use tower_ratelimit_adapt::{Adapt, AdaptiveConcurrency, Kernel, Resource, Steps, Traffic};
use tower_ratelimit_benches::factors::{Scale, limiter};
use tower_ratelimit_benches::keys::address;
use tower_ratelimit_benches::requests::{hello, request, send};

const SCALES: [(&str, Scale); 5] = [
    ("none", Scale::None),
    ("1", Scale::Thousandths(1_000)),
    ("0.5", Scale::Thousandths(500)),
    ("0.7", Scale::Thousandths(700)),
    ("0.7, after 200 others", Scale::Fallen(700)),
];

fn made(scale: Scale) -> LocalLimiter {
    limiter(scale, MemoryStore::new().clock(QuantaClock::new()))
}

/// One address that sends request after request, all allowed.
fn factors(c: &mut Criterion) {
    let mut group = c.benchmark_group("factor, verdict");
    for (name, scale) in SCALES {
        let limiter = made(scale);
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter(|| limiter.admit(black_box(address(0)), 1).now());
        });
    }
    group.finish();
    let mut group = c.benchmark_group("factor, all numbers");
    for (name, scale) in SCALES {
        let limiter = made(scale);
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter(|| limiter.check(black_box(address(0)), 1).now());
        });
    }
    group.finish();
}

/// A service that answers at once, with and without the layer that counts its requests.
fn signals(c: &mut Criterion) {
    let mut group = c.benchmark_group("signals of a layer");
    let mut bare = hello();
    group.bench_function("without", |bencher| {
        bencher.iter(|| send(&mut bare, request()));
    });
    let mut counted = TrafficLayer::new(&Traffic::new()).layer(hello());
    group.bench_function("traffic", |bencher| {
        bencher.iter(|| send(&mut counted, request()));
    });
    let mut bounded = AdaptiveConcurrencyLayer::new(&AdaptiveConcurrency::new()).layer(hello());
    group.bench_function("adaptive concurrency", |bencher| {
        bencher.iter(|| send(&mut bounded, request()));
    });
    group.finish();
}

/// The work of the sampling task once a second.
fn sample(c: &mut Criterion) {
    let kernel = Kernel::new();
    let traffic = Traffic::new();
    let adapt = Adapt::builder(Steps::standard())
        .signal(kernel.cpu())
        .signal(kernel.memory())
        .signal(kernel.pressure(Resource::Cpu))
        .signal(traffic.latency(Duration::from_millis(100)))
        .build()
        .expect("four signals of different names");
    c.bench_function("a sample of four signals", |bencher| {
        bencher.iter(|| adapt.sample());
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = factors, signals, sample
}
criterion_main!(benches);
