//! What a reservation and a slot cost in this process: `cargo run --release --package tower-ratelimit-benches --bin reserving`.
//!
//! It prints the least time of many rounds, in which all take turns. Under valgrind, `--toggle-collect='*a_decision*'` and its
//! kin count instructions.

use std::hint::black_box;
use std::time::Instant;

use tower_ratelimit::{Concurrency, ConfigError, FixedWindow, Gcra, Limiter, LocalLimiter, Policy};

const ROUNDS: u32 = 300;

const TIMES: u32 = 2_000;

fn main() -> Result<(), ConfigError> {
    let limiter = |policy: Policy| Limiter::builder().policy(policy).build_local();
    let gcra = limiter(Policy::new("rate", Gcra::per_hour(4_000_000_000)))?;
    let window = limiter(Policy::new("rate", FixedWindow::per_hour(4_000_000_000)))?;
    let slots = limiter(Policy::new("at once", Concurrency::of(10)))?;
    let mut least = [f64::MAX; 5];
    for _ in 0..ROUNDS {
        let round = [
            a_decision(&gcra),
            a_reservation(&gcra),
            a_decision(&window),
            a_reservation(&window),
            a_slot(&slots),
        ];
        for (least, time) in least.iter_mut().zip(round) {
            *least = least.min(time);
        }
    }
    let [decision, reserved, of_window, reserved_of_window, slot] = least;
    let row = |what: &str, decision: f64, reserved: f64| {
        let times = reserved / decision;
        println!(
            "{what}: a decision {decision:.0} ns, reserved and settled {reserved:.0} ns, {times:.2} times"
        );
    };
    row("GCRA", decision, reserved);
    row("a fixed window", of_window, reserved_of_window);
    println!("a slot, taken and given back: {slot:.0} ns");
    Ok(())
}

fn nanoseconds(mut act: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..TIMES {
        act();
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(TIMES)
}

#[inline(never)]
fn a_decision(limiter: &LocalLimiter) -> f64 {
    nanoseconds(|| {
        let _ = black_box(limiter.check(black_box(7_u64), 2).now());
    })
}

#[inline(never)]
fn a_reservation(limiter: &LocalLimiter) -> f64 {
    nanoseconds(|| black_box(limiter.reserve(black_box(7_u64), 2).now()).settle(1))
}

#[inline(never)]
fn a_slot(limiter: &LocalLimiter) -> f64 {
    nanoseconds(|| drop(black_box(limiter.reserve(black_box(7_u64), 1).now())))
}
