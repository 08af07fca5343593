//! Instructions of a decision under a limit that is divided among tenants, counted as those of `instructions.rs` are.
//!
//! They are in a program of their own: a path that is called in two places is compiled otherwise.

use std::hint::black_box;

use gungraun::prelude::*;
use tower_ratelimit::key::{IntoKey, Key};
use tower_ratelimit::policy::Fair;
use tower_ratelimit::{Gcra, Limiter, LocalLimiter, ManualClock, MemoryStore, Policy};
use tower_ratelimit_benches::PLENTY;
use tower_ratelimit_benches::growth::TIMES;

/// Returns a limiter whose limit is divided among a thousand tenants, and their keys.
fn divided(limit: u32) -> (LocalLimiter, Vec<Key>) {
    let policy = Policy::new("bench", Gcra::per_hour(limit)).fair(Fair::new());
    let limiter = Limiter::builder()
        .policy(policy)
        .store(MemoryStore::new().clock(ManualClock::new()));
    let limiter = limiter.build_local().expect("a bucket");
    let tenants = (0..TIMES).map(|n| Key::branch(Key::GLOBAL, &[n.into_key()]));
    let tenants: Vec<_> = tenants.collect();
    for tenant in &tenants {
        let _ = limiter.check(*tenant, 1).now();
    }
    (limiter, tenants)
}

#[library_benchmark]
#[bench::of_a_thousand(divided(PLENTY))]
#[bench::of_a_thousand_refused(divided(5))]
fn fair((limiter, tenants): (LocalLimiter, Vec<Key>)) -> (LocalLimiter, Vec<Key>) {
    for tenant in &tenants {
        let _ = black_box(limiter.check(black_box(*tenant), 1).now());
    }
    (limiter, tenants)
}

library_benchmark_group!(name = tenants, benchmarks = [fair]);
main!(library_benchmark_groups = [tenants]);
