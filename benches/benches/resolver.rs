//! What a decision costs whose plan is looked up, beside a plan of a closure: `cargo bench --package
//! tower-ratelimit-benches --bench resolver`. All answers are fresh.

use std::convert::Infallible;
use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use tower_ratelimit::key::{IntoKey, Key};
use tower_ratelimit::plan::{Plan, Plans, Resolved, Resolver};
use tower_ratelimit::{FixedWindow, Limiter, Policy};

/// Fewer than the resolver keeps.
const KEYS: usize = 5_000;

const LIMIT: FixedWindow = FixedWindow::per_minute(u32::MAX);

fn plans() -> Plans {
    Plans::new(["free", "pro"].map(|name| Plan::new(name).limit("minute", LIMIT)))
}

fn resolver(resolved: &Resolved) -> Resolver<Key> {
    let resolved = resolved.clone();
    let look_up = move |_| {
        let resolved = resolved.clone();
        async { Ok::<_, Infallible>(resolved) }
    };
    let resolver = Resolver::builder(look_up).fresh_for(Duration::from_secs(86_400));
    resolver.build().unwrap()
}

fn plans_of_keys(c: &mut Criterion) {
    let builder = || Limiter::builder().policy(Policy::new("minute", LIMIT));
    let own = Resolved::Limits(Plan::new("own").limit("minute", LIMIT));
    let of = |resolved| (resolver(&resolved), |key: &Key| Some(*key));
    let (by_name, key) = of(Resolved::plan("pro"));
    let (by_limits, same_key) = of(own);
    let limiters = [
        ("one limit", builder().build()),
        ("closure", builder().plans(plans(), |_| Some("pro")).build()),
        (
            "resolver, plan",
            builder()
                .plans_by_name(plans())
                .resolver(by_name, key)
                .build(),
        ),
        (
            "resolver, limits",
            builder().resolver(by_limits, same_key).build(),
        ),
    ];
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().build().unwrap();
    let keys: Vec<Key> = (0..KEYS)
        .map(|key| format!("customer {key}").into_key())
        .collect();
    let mut group = c.benchmark_group("plan of a key");
    for (name, limiter) in limiters {
        let limiter = limiter.unwrap();
        runtime.block_on(async {
            for key in &keys {
                assert!(limiter.check(*key, 1).await.unwrap().is_allowed());
            }
        });
        let mut keys = keys.iter().cycle();
        group.bench_function(name, |bencher| {
            bencher.iter(|| limiter.check_now(black_box(*keys.next().unwrap()), 1));
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().measurement_time(Duration::from_secs(2));
    targets = plans_of_keys
}
criterion_main!(benches);
