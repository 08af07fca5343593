//! The decisions of several processes over one Redis, with leases and without.
//!
//! ```text
//! cargo run --release --features redis --example leases
//! ```
//!
//! The server is `REDIS_URL` (default `redis://127.0.0.1:6379/`). `PROCESSES` (default 8) decide about `KEYS`
//! (default 100) for `SECONDS` (default 3), once without leases and once with leases of `LEASE_MS` (default 1000).
//! Each process is this program again, with `ROLE=worker`. The limit is so high that most requests pass. `asked/s`
//! counts the questions about a key, and `calls/s` the calls that carry them. Without the server there are no figures: the
//! program ends with an error as soon as a request is not decided with the server.

use std::env;
use std::error::Error;
use std::fmt::Display;
use std::process::{Child, Command, ExitCode, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{JoinSet, yield_now};
use tower_ratelimit::store::Lease;
use tower_ratelimit::{Gcra, Limiter, OnStoreFailure, Policy, RedisStore, StoreError};

/// The number of requests that a process has in flight.
const TASKS: u32 = 64;
/// After this many decisions a task yields, as a server does between requests.
const TURN: u32 = 16;

fn main() -> ExitCode {
    match compare() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn compare() -> Result<(), Box<dyn Error>> {
    if env::var("ROLE").is_ok_and(|role| role == "worker") {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let life = Duration::from_millis(setting("LEASE_MS", 0)?);
        let (keys, seconds) = (setting("KEYS", 100)?, setting("SECONDS", 3)?);
        let url = setting("REDIS_URL", "redis://127.0.0.1:6379/".to_owned())?;
        let told = runtime.block_on(work(&url, life, keys, Duration::from_secs(seconds)))?;
        println!("{}", told.map(|number| number.to_string()).join(" "));
        return Ok(());
    }
    let (processes, seconds): (u32, u32) = (setting("PROCESSES", 8)?, setting("SECONDS", 3)?);
    let lease: u64 = setting("LEASE_MS", 1_000)?;
    println!("{processes} processes, {} keys", setting("KEYS", 100_u32)?);
    println!("leases   decisions/s     asked/s   calls/s   refused    lapsed");
    for lease in [0, lease] {
        let mut sums = [0_u64; 5];
        for told in run(processes, lease)? {
            for (sum, number) in sums.iter_mut().zip(told) {
                *sum += number;
            }
        }
        let [decisions, asked, calls, refused, lapsed] = sums;
        let each = |number: u64| number / u64::from(seconds);
        let name = if lease == 0 { "off" } else { "on" };
        println!(
            "{name:<6} {:>13} {:>11} {:>9} {refused:>9} {lapsed:>9}",
            each(decisions),
            each(asked),
            each(calls)
        );
    }
    Ok(())
}

/// The counts of each process.
fn run(processes: u32, lease: u64) -> Result<Vec<[u64; 5]>, Box<dyn Error>> {
    let program = env::current_exe()?;
    let start = |_| {
        Command::new(&program)
            .env("ROLE", "worker")
            .env("LEASE_MS", lease.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
    };
    let workers: Result<Vec<_>, _> = (0..processes).map(start).collect();
    // All are waited for, also if one has failed.
    let told: Vec<_> = workers?.into_iter().map(told_by).collect();
    told.into_iter().collect()
}

fn told_by(worker: Child) -> Result<[u64; 5], Box<dyn Error>> {
    let output = worker.wait_with_output()?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(error.trim_end().into());
    }
    let text = String::from_utf8(output.stdout)?;
    let numbers: Result<Vec<u64>, _> = text.split_whitespace().map(str::parse).collect();
    let numbers = numbers?.try_into();
    Ok(numbers.map_err(|_| format!("a process has told {text:?}"))?)
}

/// Decides for this time. Returns how many decisions, questions, calls, refusals and lapsed units that were.
pub(crate) async fn work(
    url: &str,
    life: Duration,
    keys: u32,
    time: Duration,
) -> Result<[u64; 5], Box<dyn Error>> {
    let mut store = RedisStore::builder().deadline(Duration::from_secs(5));
    if !life.is_zero() {
        store = store.lease(Lease::up_to(life));
    }
    let store = store.open(url)?;
    // Decisions of this process alone would be no figures of the server.
    let policy = Policy::new("hot", Gcra::per_second(1_000_000));
    let limiter = Limiter::builder()
        .policy(policy.on_store_failure(OnStoreFailure::Refuse))
        .store(store.clone())
        .build()?;
    let limiter = Arc::new(limiter);
    let end = Instant::now() + time;
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        tasks.spawn(ask(Arc::clone(&limiter), (task, keys), end));
    }
    let (mut decisions, mut refused) = (0, 0);
    while let Some(told) = tasks.join_next().await {
        let (asked, denied) = told?.map_err(|error| {
            // The text before it may be a password.
            let server = url.rsplit('@').next().unwrap_or(url);
            format!(
                "Redis at {server} did not decide a request (REDIS_URL names the server): {error}"
            )
        })?;
        decisions += asked;
        refused += denied;
    }
    store.give_leases_back().await;
    let snapshot = limiter.snapshot();
    let store = &snapshot.store;
    let lapsed = store.leases.map_or(0, |leases| leases.lapsed);
    // Simultaneous questions share a call.
    let asked = store.calls + store.batched;
    Ok([decisions, asked, store.calls, refused, lapsed])
}

async fn ask(
    limiter: Arc<Limiter>,
    (task, keys): (u32, u32),
    end: Instant,
) -> Result<(u64, u64), StoreError> {
    let (mut asked, mut refused) = (0, 0);
    let mut dice = u64::from(task) + u64::from(std::process::id()) * 65_537 + 1;
    while Instant::now() < end {
        for _ in 0..TURN {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            let key = u32::try_from(dice % u64::from(keys)).unwrap_or(0);
            refused += u64::from(!limiter.check(key, 1).await?.is_allowed());
            asked += 1;
        }
        yield_now().await;
    }
    Ok((asked, refused))
}

fn setting<T: FromStr<Err: Display>>(name: &str, default: T) -> Result<T, String> {
    match env::var(name) {
        Ok(value) => value
            .parse()
            .map_err(|error| format!("{name}={value} cannot be used: {error}")),
        Err(_) => Ok(default),
    }
}
