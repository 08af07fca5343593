//! A worker without HTTP, which sends mails for several customers. Each customer has a limit.
//!
//! Run `cargo run --example without_http`. It ends after about two seconds.

use std::error::Error;
use std::time::{Duration, Instant};

use tokio::time::sleep;
use tower_ratelimit::{
    ConfigError, FixedWindow, LeakyQueue, Limiter, LocalLimiter, Policy, TokenBucket,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    one_by_one().await?;
    in_batches().await?;
    at_a_steady_pace().await?;
    Ok(())
}

/// Each customer has a bucket and a daily quota; a job is charged to both or to neither.
fn customers() -> Result<LocalLimiter, ConfigError> {
    Limiter::builder()
        .policy(Policy::new("burst", TokenBucket::per_second(4).burst(3)))
        .policy(Policy::new("daily", FixedWindow::per_day(20)))
        .build_local()
}

async fn one_by_one() -> Result<(), Box<dyn Error>> {
    let limiter = customers()?;
    println!("4 mails a second for each customer, 3 at once, 20 a day:");
    let start = Instant::now();
    for (customer, address) in [
        ("ann", "amy@example.org"),
        ("ann", "nobody@"),
        ("ann", "abe@example.org"),
        ("bob", "bea@example.org"),
        ("ann", "ada@example.org"),
        ("ann", "asa@example.org"),
    ] {
        loop {
            // With a store in this process, `.now()` in place of `.await` decides without waiting; this function works with any store.
            let decision = limiter.check(customer, 1).await?;
            if decision.is_allowed() {
                break;
            }
            let Some(wait) = decision.retry_after() else {
                return Err(format!("{customer} may never send this much").into());
            };
            println!("  {customer} waits {} ms, as told", wait.as_millis());
            // The wait is exact, but another caller may be faster, so the worker asks again.
            sleep(wait).await;
        }
        if send(address).await {
            let at = start.elapsed().as_millis();
            println!("  {at:>4} ms  {customer} to {address}");
        } else {
            // The job was charged and not done, so ann gets the unit back.
            limiter.refund(customer, 1).await?;
            println!("           {customer}: {address:?} is no address; given back");
        }
    }
    // Asks without a charge.
    for (policy, outcome) in limiter.peek("ann", 1).await?.policies() {
        let (used, limit) = (outcome.used(), outcome.limit());
        println!("  ann has used {used} of {limit} under {policy:?}");
    }
    Ok(())
}

/// Takes as many units as there are.
async fn in_batches() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::builder()
        .policy(Policy::new("api", TokenBucket::per_second(50).burst(20)))
        .build_local()?;
    let mut left = 45;
    println!();
    println!("{left} records, for an interface that takes 50 a second, 20 at once:");
    let start = Instant::now();
    while left > 0 {
        let (batch, decision) = limiter.acquire_up_to("api", left).now();
        if batch > 0 {
            left -= batch;
            let at = start.elapsed().as_millis();
            println!("  {at:>4} ms  a batch of {batch}, {left} left");
            continue;
        }
        // The wait for one unit; for a batch, it is worth waiting somewhat longer.
        let wait = decision.retry_after().ok_or("nothing is ever to be had")?;
        sleep(wait.max(Duration::from_millis(200))).await;
    }
    Ok(())
}

/// A queue gives each caller a turn: the decision has the delay, and the caller waits.
async fn at_a_steady_pace() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::builder()
        .policy(Policy::new("printer", LeakyQueue::per_second(8).places(4)))
        .build_local()?;
    println!();
    println!("6 pages at once for a printer that takes one each 125 ms, and 4 of them waiting:");
    let start = Instant::now();
    let mut pages = tokio::task::JoinSet::new();
    for page in 1..=6 {
        let decision = limiter.check("printer", 1).now();
        if !decision.is_allowed() {
            println!("           page {page} finds no place");
            continue;
        }
        pages.spawn(async move {
            sleep(decision.delay()).await;
            let at = start.elapsed().as_millis();
            println!("  {at:>4} ms  page {page}");
        });
    }
    pages.join_all().await;
    Ok(())
}

/// Stands for a mail server.
async fn send(address: &str) -> bool {
    sleep(Duration::from_millis(5)).await;
    !address.ends_with('@')
}
