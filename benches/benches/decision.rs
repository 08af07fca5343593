//! One decision in process, beside those of peers, in one run.
//!
//! Absolute times depend on the machine; compare the rows of one cell with each other. Both sides read
//! `quanta`'s clock unless a row says `std`, and return a verdict alone unless it says `all numbers`. `least`
//! is the minimum that every limiter of many keys needs. With two threads a row is the time that one thread
//! needs for one decision. Rows that are compared follow within seconds.

use std::hint::black_box;
use std::net::IpAddr;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, SamplingMode, criterion_group, criterion_main};
use governor::clock::ReasonablyRealtime;
use tower_ratelimit::clock::QuantaClock;
use tower_ratelimit::{
    Algorithm, AnchoredWindow, FixedWindow, Gcra, LeakyBucket, LocalLimiter, ManualClock,
    MemoryStore, SlidingLog, SlidingSlots, SlidingWindow, TokenBucket,
};
use tower_ratelimit_benches::keys::{Walk, address};
use tower_ratelimit_benches::least::Least;
use tower_ratelimit_benches::ours::{self, DEFAULT_BOUND, bounded, by_quanta, by_std};
use tower_ratelimit_benches::peers::{
    self, Governor, Throttlecrab, a_day, an_hour, governor_by_quanta, governor_by_std,
};
use tower_ratelimit_benches::threads::Crew;
use tower_ratelimit_benches::{EACH_THREADS_KEYS, PLENTY, a_day_among, a_round};

/// A limit that the first request uses up for longer than any run takes.
const NOTHING_LEFT: u32 = 1;

type Group<'a> = BenchmarkGroup<'a, WallTime>;

fn admits(limiter: &LocalLimiter, key: IpAddr) -> bool {
    limiter.admit(key, 1).now()
}

fn check(limiter: &LocalLimiter, key: IpAddr) -> bool {
    limiter.check(key, 1).now().is_allowed()
}

fn governor_admits<C: ReasonablyRealtime>(limiter: &Governor<C>, key: IpAddr) -> bool {
    limiter.check_key(&key).is_ok()
}

/// One key, one thread, and the same answer to each request. For a refusal, the limit is used up before.
fn one_key(
    group: &mut Group<'_>,
    name: &str,
    expected: bool,
    mut admits: impl FnMut(IpAddr) -> bool,
) {
    let key = address(0);
    assert!(admits(key), "{name}");
    while !expected && admits(key) {}
    group.bench_function(name, |b| b.iter(|| admits(black_box(key))));
    assert_eq!(admits(key), expected, "{name}");
}

/// Threads that decide, each for its own keys, on one limiter or on several.
fn threads<L: Sync>(
    group: &mut Group<'_>,
    name: &str,
    workers: Vec<(&L, Walk)>,
    admits: impl Fn(&L, IpAddr) -> bool + Sync,
) {
    let admits = &admits;
    let work = |(limiter, mut walk): (_, Walk)| {
        move |times| {
            for _ in 0..times {
                black_box(admits(limiter, black_box(walk.next_address())));
            }
        }
    };
    Crew::of(workers.into_iter().map(work).collect(), |crew| {
        // Samples are of equal length, so that starting the threads weighs the same.
        group.sampling_mode(SamplingMode::Flat);
        group.bench_function(name, |b| b.iter_custom(|times| crew.run(times)));
        group.sampling_mode(SamplingMode::Auto);
    });
}

fn one_hot_key(c: &mut Criterion) {
    let group = &mut c.benchmark_group("decision");
    for (cell, limit) in [("hot key", PLENTY), ("hot key refused", NOTHING_LEFT)] {
        let name = |who| format!("{cell}/{who}");
        let more = limit == PLENTY;
        let limiter = by_quanta(Gcra::per_hour(limit));
        one_key(group, &name("ours"), more, |key| admits(&limiter, key));
        let limiter = governor_by_quanta(an_hour(limit));
        one_key(group, &name("governor"), more, |key| {
            governor_admits(&limiter, key)
        });
        let limiter = by_quanta(Gcra::per_hour(limit));
        one_key(group, &name("ours, all numbers"), more, |key| {
            check(&limiter, key)
        });
        if more {
            let least = Least::of(DEFAULT_BOUND);
            one_key(group, &name("least"), more, |key| least.admits(key));
        }

        let limiter = by_std(Gcra::per_hour(limit));
        one_key(group, &name("ours, std"), more, |key| admits(&limiter, key));
        let limiter = governor_by_std(an_hour(limit));
        one_key(group, &name("governor, std"), more, |key| {
            governor_admits(&limiter, key)
        });
        let limiter = peers::ratelimit(limit);
        one_key(group, &name("ratelimit, std"), more, |_| {
            limiter.try_wait().is_ok()
        });
        let mut limiter = Throttlecrab::new(limit);
        one_key(group, &name("throttlecrab, std"), more, |_| {
            limiter.admits(black_box("10.0.0.0"))
        });
    }
}

fn one_hot_key_two_threads(c: &mut Criterion) {
    let group = &mut c.benchmark_group("decision");
    for (cell, limit) in [
        ("hot key, 2 threads", PLENTY),
        ("hot key refused, 2 threads", NOTHING_LEFT),
    ] {
        let limiter = by_quanta(Gcra::per_hour(limit));
        threads(group, &format!("{cell}/ours"), two(&limiter, 1), admits);
        let limiter = governor_by_quanta(an_hour(limit));
        let workers = two(&limiter, 1);
        threads(group, &format!("{cell}/governor"), workers, governor_admits);
    }
}

/// Two threads that walk over the same keys, each in an order of its own.
fn two<L>(limiter: &L, keys: u32) -> Vec<(&L, Walk)> {
    [1, 2].map(|seed| (limiter, Walk::over(keys, seed))).into()
}

fn many_keys(c: &mut Criterion) {
    let group = &mut c.benchmark_group("decision");
    for keys in [10_000, 1_000_000] {
        let known = || Walk::over(keys, 0).all();
        let limit = a_day_among(keys);
        let ours = bounded(Gcra::per_day(limit), keys.max(DEFAULT_BOUND));
        known().for_each(|key| assert!(admits(&ours, key)));
        let peer = governor_by_quanta(a_day(limit));
        known().for_each(|key| assert!(governor_admits(&peer, key)));
        let least = Least::of(keys);
        known().for_each(|key| assert!(least.admits(key)));

        let one = |who| format!("{keys} keys/{who}");
        one_thread(group, &one("ours"), keys, |key| admits(&ours, key));
        one_thread(group, &one("governor"), keys, |key| {
            governor_admits(&peer, key)
        });
        one_thread(group, &one("least"), keys, |key| least.admits(key));
        let both = |who| format!("{keys} keys, 2 threads/{who}");
        threads(group, &both("ours"), two(&ours, keys), admits);
        threads(group, &both("governor"), two(&peer, keys), governor_admits);
        threads(group, &both("least"), two(&least, keys), Least::admits);
    }

    // The keys of this limiter are text, and making text of addresses is not measured.
    let texts: Vec<String> = Walk::over(10_000, 0)
        .all()
        .map(|key| key.to_string())
        .collect();
    let mut limiter = Throttlecrab::new(PLENTY);
    let mut walk = Walk::over(10_000, 1);
    group.bench_function("10000 keys/throttlecrab, std", |b| {
        b.iter(|| limiter.admits(&texts[walk.next_place() as usize]));
    });
}

fn one_thread(
    group: &mut Group<'_>,
    name: &str,
    keys: u32,
    mut admits: impl FnMut(IpAddr) -> bool,
) {
    let mut walk = Walk::over(keys, 1);
    group.bench_function(name, |b| {
        b.iter(|| admits(black_box(walk.next_address())));
    });
    assert!(admits(address(0)), "{name}");
}

/// Each thread has keys of its own: the cost of a second thread to the first one.
fn distinct_keys(c: &mut Criterion) {
    let group = &mut c.benchmark_group("decision");
    for keys in EACH_THREADS_KEYS {
        let limit = Gcra::per_day(a_day_among(4 * keys));
        let room = DEFAULT_BOUND.max(2 * keys);
        let [limiter, other] = [(); 2].map(|()| bounded(limit, room));
        let [first, second] = [0, keys].map(|from| Walk::from(from, keys, 1));
        for key in first.all().chain(second.all()) {
            assert!(admits(&limiter, key) && admits(&other, key));
        }

        let mut row = |who: &str, workers| {
            threads(
                group,
                &format!("distinct keys/{keys}/{who}"),
                workers,
                admits,
            );
        };
        row("1 thread", vec![(&limiter, first.clone())]);
        row(
            "2 threads",
            vec![(&limiter, first.clone()), (&limiter, second.clone())],
        );
        // The throughput of two threads that share nothing at all.
        row(
            "2 threads, 2 limiters",
            vec![(&limiter, first.clone()), (&other, second.clone())],
        );

        let least = Least::of(2 * keys);
        let mut row = |who: &str, workers| {
            let name = format!("distinct keys/{keys}/{who}");
            threads(group, &name, workers, Least::admits);
        };
        row("least, 1 thread", vec![(&least, first.clone())]);
        row("least, 2 threads", vec![(&least, first), (&least, second)]);
    }
}

fn each_algorithm(c: &mut Criterion) {
    let group = &mut c.benchmark_group("decision");
    let algorithms: [(&str, Algorithm); 9] = [
        ("gcra", Gcra::per_hour(PLENTY).into()),
        ("token bucket", TokenBucket::per_hour(PLENTY).into()),
        ("leaky bucket", LeakyBucket::per_hour(PLENTY).into()),
        (
            "token bucket by interval",
            TokenBucket::per_hour(PLENTY).by_interval().into(),
        ),
        ("fixed window", FixedWindow::per_hour(PLENTY).into()),
        ("anchored window", AnchoredWindow::per_hour(PLENTY).into()),
        ("sliding window", SlidingWindow::per_hour(PLENTY).into()),
        ("sliding slots", SlidingSlots::per_hour(PLENTY).into()),
        // A rate that no number of microseconds divides. Its burst is soon used up, so the rest is refused;
        // `slowly` has allowed requests.
        ("uneven quota refused", Gcra::per_day(999_983).into()),
    ];
    for (name, algorithm) in algorithms {
        let limiter = by_quanta(algorithm);
        let more = name != "uneven quota refused";
        if !more {
            while admits(&limiter, address(0)) {}
        }
        bench_algorithm(group, &format!("algorithms/{name}"), &limiter);
        if !more {
            // A unit may have become free since the last request.
            admits(&limiter, address(0));
        }
        assert_eq!(admits(&limiter, address(0)), more, "{name}");
    }
    let limiter = by_quanta(SlidingLog::per_hour(100));
    while admits(&limiter, address(0)) {}
    bench_algorithm(group, "algorithms/sliding log refused", &limiter);
}

fn bench_algorithm(group: &mut Group<'_>, name: &str, limiter: &LocalLimiter) {
    group.bench_function(name, |b| {
        b.iter(|| admits(limiter, black_box(address(0))));
    });
}

/// Wider states with requests that are all allowed: before each, a manual clock moves until a unit is free.
fn slowly(c: &mut Criterion) {
    let group = &mut c.benchmark_group("decision");
    let day = Duration::from_secs(86_400);
    let algorithms: [(&str, Algorithm, Duration); 4] = [
        ("gcra", Gcra::per_day(1_000_000).into(), day / 500_000),
        ("sliding log", SlidingLog::per_day(100).into(), day / 100),
        (
            "sliding slots",
            SlidingSlots::per_day(1_000_000).into(),
            day / 500_000,
        ),
        ("uneven quota", Gcra::per_day(999_983).into(), day / 500_000),
    ];
    for (name, algorithm, step) in algorithms {
        let clock = ManualClock::new();
        let limiter = ours::limiter(algorithm, MemoryStore::new().clock(clock.clone()));
        let allowed = || {
            clock.advance(step);
            admits(&limiter, black_box(address(0)))
        };
        for _ in 0..1_000 {
            assert!(allowed(), "{name}");
        }
        group.bench_function(format!("slowly/{name}"), |b| b.iter(allowed));
        assert!(allowed(), "{name}");
    }
}

fn several_policies(c: &mut Criterion) {
    let group = &mut c.benchmark_group("decision");
    for count in [1, 2, 4, 8] {
        let store = MemoryStore::new().clock(QuantaClock::new());
        let limiter = ours::limiter_of(ours::policies(count), store);
        let name = format!("{count} policies/ours");
        one_key(group, &name, true, |key| admits(&limiter, key));
        let name = format!("{count} policies/ours, all numbers");
        one_key(group, &name, true, |key| check(&limiter, key));
    }
}

criterion_group! {
    name = benches;
    config = a_round();
    targets = one_hot_key, one_hot_key_two_threads, many_keys, distinct_keys, each_algorithm,
        slowly, several_policies
}
criterion_main!(benches);
