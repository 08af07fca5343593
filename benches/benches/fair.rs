//! Instructions of a decision under a limit that is divided among tenants, and under limits of which one pays, counted as those of
//! `instructions.rs` are.
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

/// Returns a limiter with three policies, all of which are charged, or of which the one with this place pays, since those before it
/// are spent.
fn three(payer: Option<usize>) -> LocalLimiter {
    let names = ["plan", "credits", "pool"];
    let spent = payer.unwrap_or_default();
    let policies = names.iter().enumerate().map(|(place, name)| {
        Policy::new(
            *name,
            Gcra::per_hour(if place < spent { 1 } else { PLENTY }),
        )
    });
    let limiter = Limiter::builder()
        .policies(policies)
        .store(MemoryStore::new().clock(ManualClock::new()));
    let limiter = match payer {
        Some(_) => limiter.first_of("spend", names),
        None => limiter,
    };
    let limiter = limiter.build_local().expect("three policies");
    for _ in names {
        let _ = limiter.check("ann", 1).now();
    }
    limiter
}

#[library_benchmark]
#[bench::of_three_policies(three(None))]
#[bench::of_the_first_of_three(three(Some(0)))]
#[bench::of_the_last_of_three(three(Some(2)))]
fn either(limiter: LocalLimiter) -> LocalLimiter {
    for _ in 0..TIMES {
        let _ = black_box(limiter.check(black_box("ann"), 1).now());
    }
    limiter
}

library_benchmark_group!(name = tenants, benchmarks = [fair]);
library_benchmark_group!(name = payers, benchmarks = [either]);
main!(library_benchmark_groups = [tenants, payers]);
