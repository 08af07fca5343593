//! The cost of a limit that depends on a plan, a resolver, a calendar or the hour. Each is beside the same
//! algorithm with one limit; `make bench` runs them. One known address sends requests, all of them allowed.
//! All answers of the resolvers are fresh, and the present interval of the hours has a limit of its own.

use std::convert::Infallible;
use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use tower_ratelimit::clock::QuantaClock;
use tower_ratelimit::key::{IntoKey, Key};
use tower_ratelimit::limiter::LimiterBuilder;
use tower_ratelimit::plan::{Plan, Plans, Resolved, Resolver};
use tower_ratelimit::{
    Algorithm, AnchoredWindow, FixedWindow, Gcra, Hours, Limiter, MemoryStore, Policy,
};
use tower_ratelimit_benches::keys::address;
use tower_ratelimit_benches::{PLENTY, a_round};

/// A limit above the requests of a round, and below 2^28: a calendar window takes three words from there on.
const IN_A_WORD: u32 = 200_000_000;

fn limited(algorithm: impl Into<Algorithm>) -> LimiterBuilder {
    Limiter::builder().policy(Policy::new("bench", algorithm))
}

fn window(limit: u32) -> AnchoredWindow {
    AnchoredWindow::per_hour(limit)
}

fn plans() -> Plans {
    let plan = |name, limit| Plan::new(name).limit("bench", window(limit));
    Plans::new([plan("free", 10), plan("pro", PLENTY / 2)])
}

/// Returns a resolver that gives the same to each key, and never looks it up again.
fn resolver(resolved: &Resolved) -> Resolver<Key> {
    let resolved = resolved.clone();
    let look_up = move |_| {
        let resolved = resolved.clone();
        async { Ok::<_, Infallible>(resolved) }
    };
    let resolver = Resolver::builder(look_up).fresh_for(Duration::from_secs(86_400));
    resolver.build().expect("a day is no mistake")
}

/// Returns a limit that differs from the policy's own at all hours.
fn by_hours(own: impl Into<Algorithm>, at_all_hours: impl Into<Algorithm>) -> Algorithm {
    let hours = Hours::in_zone("UTC").and_then(|hours| hours.at("00:00-24:00", at_all_hours));
    let hours = hours.and_then(|hours| hours.over(own));
    hours.expect("one interval")
}

fn limiters() -> Vec<(&'static str, LimiterBuilder)> {
    let own = Resolved::Limits(Plan::new("own").limit("bench", window(PLENTY / 2)));
    let key = |key: &Key| Some(*key);
    vec![
        ("anchored window", limited(window(PLENTY))),
        (
            "plan by closure",
            limited(window(PLENTY)).plans(plans(), |_| Some("pro")),
        ),
        (
            "plan of a resolver",
            limited(window(PLENTY))
                .plans_by_name(plans())
                .resolver(resolver(&Resolved::plan("pro")), key),
        ),
        (
            "limits of a resolver",
            limited(window(PLENTY)).resolver(resolver(&own), key),
        ),
        (
            "anchored window by hours",
            limited(by_hours(window(PLENTY), window(PLENTY / 2))),
        ),
        ("fixed window", limited(FixedWindow::per_day(IN_A_WORD))),
        (
            "calendar day",
            limited(FixedWindow::per_calendar_day(IN_A_WORD)),
        ),
        ("gcra", limited(Gcra::per_hour(PLENTY))),
        (
            "gcra by hours",
            limited(by_hours(Gcra::per_hour(PLENTY), Gcra::per_hour(PLENTY / 2))),
        ),
    ]
}

fn limits(c: &mut Criterion) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().build().expect("a runtime");
    let group = &mut c.benchmark_group("limits");
    for (name, builder) in limiters() {
        let store = MemoryStore::new().clock(QuantaClock::new());
        let limiter = builder
            .store(store)
            .build_local()
            .expect("limits of one kind");
        let key = address(0).into_key();
        let first = runtime.block_on(limiter.check(key, 1).into_future());
        assert!(first.is_ok_and(|decision| decision.is_allowed()), "{name}");
        group.bench_function(name, |bencher| {
            bencher.iter(|| limiter.admit(black_box(key), 1).now());
        });
        group.bench_function(format!("{name}, all numbers"), |bencher| {
            bencher.iter(|| limiter.check(black_box(key), 1).now());
        });
    }
}

criterion_group! {
    name = benches;
    config = a_round();
    targets = limits
}
criterion_main!(benches);
