//! Memory: bytes for a key, allocations for a request, and a flood of new keys.
//!
//! The run takes no times but those of the flood, so it does not need criterion; the figures are saved for
//! the table beside criterion's. It counts what this thread allocates: no other thread works for a measured
//! path. Naming `allocation_counter` replaces the program's allocator, so it is named here only, and not by
//! the library that the timed benchmarks share.

use std::convert::Infallible;
use std::hint::black_box;
use std::io;

use allocation_counter::{AllocationInfo, measure};
use axum::body::Body;
use hdrhistogram::Histogram;
use http::{Request, Response, StatusCode};
use tower::{Layer, Service};
use tower_ratelimit::clock::QuantaClock;
use tower_ratelimit::plan::{Plan, Plans};
use tower_ratelimit::{Gcra, Limiter, LocalLimiter, MemoryStore, Policy};
use tower_ratelimit_benches::figures::Figures;
use tower_ratelimit_benches::keys::{Walk, address};
use tower_ratelimit_benches::ours::DEFAULT_BOUND;
use tower_ratelimit_benches::requests::{hello, request, send};
use tower_ratelimit_benches::{PLENTY, a_day_among, ours, peers};

fn main() -> io::Result<()> {
    let mut figures = Figures::default();
    bytes_per_key(&mut figures);
    allocations_per_decision(&mut figures);
    allocations_per_request(&mut figures);
    // One limit refuses no key, and one refuses each key.
    flood("flood", 10, &mut figures);
    flood("flood of refused keys", 1, &mut figures);
    for (name, figure) in figures.iter() {
        println!("{name}: {figure:.2}");
    }
    figures.save("memory")
}

/// Runs a closure, and returns what it has allocated.
fn counted<T>(run: impl FnOnce() -> T) -> (T, AllocationInfo) {
    let mut made = None;
    let info = measure(|| made = Some(run()));
    (made.expect("it has run"), info)
}

fn bytes_per_key(figures: &mut Figures) {
    const KEYS: u32 = 1_000_000;
    let limit = a_day_among(KEYS);
    let mut row = |who: &str, info: AllocationInfo| {
        let per_key = |bytes: f64| bytes / f64::from(KEYS);
        let name = format!("memory/bytes per key/{who}");
        figures.insert(name, per_key(info.bytes_current as f64));
        let name = format!("memory/bytes per key at most/{who}");
        figures.insert(name, per_key(info.bytes_max as f64));
    };
    // The table is large enough that no key is forgotten during the run.
    let (_, info) = counted(|| {
        let limiter = ours::bounded(Gcra::per_day(limit), KEYS);
        for key in Walk::over(KEYS, 0).all() {
            assert!(limiter.admit(key, 1).now());
        }
        limiter
    });
    row("ours", info);
    // Every other key has the larger plan.
    let (_, info) = counted(|| {
        let of = |name, limit| Plan::new(name).limit("bench", Gcra::per_day(limit));
        let plans = Plans::new([of("free", limit), of("pro", 10 * limit)]);
        let limiter = Limiter::builder()
            .policy(Policy::new("bench", Gcra::per_day(limit)))
            .plans_by_name(plans)
            .store(ours::store(KEYS).clock(QuantaClock::new()))
            .build_local()
            .expect("one policy and its plans");
        let by_plan = ["free", "pro"].map(|plan| limiter.plan(plan));
        for (place, key) in Walk::over(KEYS, 0).all().enumerate() {
            assert!(by_plan[place % 2].admit(key, 1).now());
        }
        (limiter, by_plan)
    });
    row("two plans", info);
    let (_, info) = counted(|| {
        let limiter = peers::governor_by_quanta(peers::a_day(limit));
        for key in Walk::over(KEYS, 0).all() {
            assert!(limiter.check_key(&key).is_ok());
        }
        limiter
    });
    row("governor", info);
}

fn allocations_per_decision(figures: &mut Figures) {
    for (name, limit) in [("allowed", PLENTY), ("refused", 1)] {
        let limiter = ours::by_std(Gcra::per_hour(limit));
        let key = address(0);
        limiter.admit(key, 1).now();
        let verdicts = least(|| {
            black_box(limiter.admit(black_box(key), 1).now());
        });
        figures.insert(
            format!("memory/allocations, verdict, {name}/ours"),
            verdicts,
        );
        let numbers = least(|| {
            let _ = black_box(limiter.check(black_box(key), 1).now());
        });
        figures.insert(
            format!("memory/allocations, decision, {name}/ours"),
            numbers,
        );
    }
}

/// Returns the least number of allocations of a repeated run.
fn least(mut run: impl FnMut()) -> f64 {
    let counts = (0..10).map(|_| measure(&mut run).count_total);
    counts.min().unwrap_or(0) as f64
}

fn allocations_per_request(figures: &mut Figures) {
    let (ok, refused) = (StatusCode::OK, StatusCode::TOO_MANY_REQUESTS);
    let ours = |limit, fields| ours::layer(Gcra::per_hour(limit), MemoryStore::new(), fields);
    let bare = per_request(hello(), ok);
    let mut row = |name: &str, count: f64| {
        figures.insert(format!("memory/allocations, {name}"), count - bare);
    };
    row(
        "no headers/ours",
        per_request(ours(PLENTY, false).layer(hello()), ok),
    );
    let peer = peers::tower_governor_silent(PLENTY);
    row(
        "no headers/tower_governor",
        per_request(peer.layer(hello()), ok),
    );
    for (name, limit, status) in [("all headers", PLENTY, ok), ("refused", 1, refused)] {
        let count = per_request(ours(limit, true).layer(hello()), status);
        row(&format!("{name}/ours"), count);
        let count = per_request(peers::tower_governor(limit).layer(hello()), status);
        row(&format!("{name}/tower_governor"), count);
        let count = per_request(peers::axum_governor(limit).layer(hello()), status);
        row(&format!("{name}/axum-governor"), count);
    }
}

fn per_request<S, B>(mut service: S, expected: StatusCode) -> f64
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
{
    send(&mut service, request());
    let counts = (0..10).map(|_| {
        let request = request();
        let (status, info) = counted(|| send(&mut service, request).status());
        assert_eq!(status, expected);
        info.count_total
    });
    counts.min().unwrap_or(0) as f64
}

/// Ten million new keys, at a limiter that keeps a hundred thousand.
fn flood(name: &str, limit: u32, figures: &mut Figures) {
    const BOUND: u32 = DEFAULT_BOUND;
    const NEWCOMERS: u32 = 10_000_000;
    let mut row = |what: &str, figure: f64| figures.insert(format!("memory/{name}/{what}"), figure);

    let refused = address(0);
    let (limiter, at_bound) = counted(|| {
        let limiter = ours::bounded(Gcra::per_hour(limit), BOUND);
        while limiter.admit(refused, 1).now() {}
        for key in Walk::from(1, BOUND - 1, 0).all() {
            black_box(limiter.admit(key, 1).now());
        }
        limiter
    });
    let (times, flooded) = times(&limiter, Walk::from(BOUND, NEWCOMERS, 0));
    let bytes = at_bound.bytes_current as f64;
    row("bytes at the bound", bytes);
    row("bytes after", bytes + flooded.bytes_current as f64);
    row("bytes at most", bytes + flooded.bytes_max as f64);
    let allocations = flooded.count_total as f64 / f64::from(NEWCOMERS);
    row("allocations of a decision", allocations);
    row("p50", times.value_at_quantile(0.5) as f64);
    row("p99", times.value_at_quantile(0.99) as f64);
    row("p99.9", times.value_at_quantile(0.999) as f64);
    row("longest", times.max() as f64);
    let still = !limiter.admit(refused, 1).now();
    row("still refused", f64::from(u8::from(still)));
}

/// Returns the time of each decision in nanoseconds, with the reading of the clock before it.
fn times(limiter: &LocalLimiter, keys: Walk) -> (Histogram<u64>, AllocationInfo) {
    const LONGEST: u64 = 100_000_000_000;
    let mut times = Histogram::new_with_bounds(1, LONGEST, 2).expect("good bounds");
    let clock = quanta::Clock::new();
    let ((), info) = counted(|| {
        for key in keys.all() {
            let begin = clock.raw();
            black_box(limiter.admit(key, 1).now());
            let end = clock.raw();
            times.saturating_record(clock.delta_as_nanos(begin, end));
        }
    });
    (times, info)
}
