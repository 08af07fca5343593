//! A day of 10^9 decisions in a minute or two: the cost of snapshots, and the memory, which stays flat.
//!
//! ```sh
//! cargo run --release --example day               # a thousand million decisions; `make day`
//! cargo run --release --example day -- 20000000   # fewer
//! ```
//!
//! Time is simulated. Each of 86,400 seconds has its share of the decisions, and a snapshot at its end, as a
//! dashboard or an exporter takes it. Half of the decisions are for a thousand clients, and half for keys that occur
//! once.

use std::error::Error;
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use tower_ratelimit::policy::TopKeys;
use tower_ratelimit::{Gcra, Limiter, ManualClock, MemoryStore, Policy};

const SECONDS: u64 = 86_400;

/// Pseudorandom numbers that are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn key(&mut self) -> u64 {
        let number = self.next();
        if number.is_multiple_of(2) {
            number >> 32
        } else {
            (number >> 32) % 1_000
        }
    }
}

/// Returns the memory of this process in KiB; `None` if the system does not report it.
fn memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Rounds are short, so that some have a processor to themselves on a busy machine. The fastest one counts.
const ROUNDS: u32 = 2_000;

const ROUND: u32 = 2_000;

/// Measures a decision with the heaviest keys and without, in turns, so that both run on the same machine.
fn cost_of_heaviest_keys() -> Result<(), Box<dyn Error>> {
    let limiter = |policy: Policy| {
        let store = MemoryStore::new().clock(ManualClock::new());
        Limiter::builder().policy(policy).store(store).build_local()
    };
    let policy = || Policy::new("watched", Gcra::per_second(20).burst(40));
    let limiters = [
        limiter(policy())?,
        limiter(policy().top_keys(TopKeys::new(20)))?,
    ];
    let mut fastest = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        for (limiter, fastest) in limiters.iter().zip(&mut fastest) {
            let mut numbers = Numbers(7);
            let began = Instant::now();
            for _ in 0..ROUND {
                let _ = limiter.check(numbers.next() % 1_000, 1).now();
            }
            *fastest = began.elapsed().min(*fastest);
        }
    }
    let [without, with] = fastest.map(|fastest| fastest.as_nanos() / u128::from(ROUND));
    println!("{without} ns for each decision, {with} ns with the heaviest keys");
    Ok(())
}

/// Measures a snapshot of a hundred policies.
fn cost_of_a_snapshot() -> Result<(), Box<dyn Error>> {
    let policies =
        (0..100).map(|number| Policy::new(format!("policy {number}"), Gcra::per_second(9)));
    let limiter = Limiter::builder().policies(policies).build_local()?;
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| limiter.check(1_u64, 1).now().is_allowed());
        }
    });
    let snapshots = (0..ROUNDS).map(|_| {
        let began = Instant::now();
        drop(limiter.snapshot());
        began.elapsed()
    });
    let fastest = snapshots.min().unwrap_or_default();
    println!("{fastest:?} for a snapshot of 100 policies");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let decisions: u64 = env::args()
        .nth(1)
        .map_or(Ok(1_000_000_000), |text| text.parse())?;
    let clock = ManualClock::new();
    let watched = Policy::new("watched", Gcra::per_second(20).burst(40));
    let limiter = Limiter::builder()
        .policy(watched.top_keys(TopKeys::new(20)))
        .store(MemoryStore::new().clock(clock.clone()))
        .build_local()?;
    let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15);
    let (mut asked, mut reading) = (0_u64, Duration::ZERO);
    let mut after_an_hour = None;
    let began = Instant::now();
    for second in 1..=SECONDS {
        let until =
            u64::try_from(u128::from(decisions) * u128::from(second) / u128::from(SECONDS))?;
        while asked < until {
            let _ = limiter.check(numbers.key(), 1).now();
            asked += 1;
        }
        clock.advance(Duration::from_secs(1));
        let read = Instant::now();
        let snapshot = limiter.snapshot();
        reading += read.elapsed();
        if second.is_multiple_of(SECONDS / 8) || second == 3_600 {
            let policy = &snapshot.policies[0];
            let memory = memory();
            let hours = second / 3_600;
            println!(
                "{hours:>2} h: {asked} decisions, {} allowed, {} refused, {} keys, {} KiB",
                policy.allowed,
                policy.refused,
                policy.keys.map_or(0, |keys| keys.kept),
                memory.unwrap_or_default(),
            );
            after_an_hour = after_an_hour.or(memory);
        }
    }
    let took = began.elapsed().saturating_sub(reading);
    let nanos = took.as_nanos() / u128::from(decisions.max(1));
    println!(
        "{nanos} ns for each decision, {:?} for each snapshot",
        reading / 86_400
    );

    let snapshot = limiter.snapshot();
    let policy = &snapshot.policies[0];
    let counted = policy.allowed + policy.refused;
    let grown = memory()
        .zip(after_an_hour)
        .map(|(now, then)| now.saturating_sub(then));
    println!(
        "memory has grown by {} KiB since the first hour",
        grown.unwrap_or_default()
    );
    if counted != decisions || grown.is_some_and(|grown| grown > 1_024) {
        eprintln!("{counted} decisions are counted, and memory has to stay flat");
        process::exit(1);
    }
    cost_of_heaviest_keys()?;
    cost_of_a_snapshot()
}
