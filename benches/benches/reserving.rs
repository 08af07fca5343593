//! Instructions of a request that is held to its end, counted as those of `instructions.rs` are, in a program of their own.

use std::hint::black_box;

use gungraun::prelude::*;
use tower_ratelimit::{Concurrency, Gcra, Limiter, LocalLimiter, ManualClock, MemoryStore, Policy};
use tower_ratelimit_benches::PLENTY;
use tower_ratelimit_benches::growth::TIMES;

fn limiter(policy: Policy) -> LocalLimiter {
    let store = MemoryStore::new().clock(ManualClock::new());
    let limiter = Limiter::builder().policy(policy).store(store);
    let limiter = limiter.build_local().expect("it is valid");
    limiter.reserve(7_u64, 2).now().settle(1);
    limiter
}

fn rate() -> LocalLimiter {
    limiter(Policy::new("rate", Gcra::per_hour(PLENTY)))
}

fn slots() -> LocalLimiter {
    limiter(Policy::new("at once", Concurrency::of(10)))
}

#[library_benchmark]
#[bench::and_settled(rate())]
fn reserve(limiter: LocalLimiter) -> LocalLimiter {
    for _ in 0..TIMES {
        black_box(limiter.reserve(black_box(7_u64), 2).now()).settle(1);
    }
    limiter
}

#[library_benchmark]
#[bench::and_given_back(slots())]
fn slot(limiter: LocalLimiter) -> LocalLimiter {
    for _ in 0..TIMES {
        drop(black_box(limiter.reserve(black_box(7_u64), 1).now()));
    }
    limiter
}

library_benchmark_group!(name = held, benchmarks = [reserve, slot]);
main!(library_benchmark_groups = [held]);
