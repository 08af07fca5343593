//! Bugs of other rate limiters, each as one test with its name.

mod arithmetic;
mod blocks;
mod bounded;
mod by_name;
mod changed_limits;
mod charging;
mod concurrency;
mod crowds;
mod draw;
mod edges;
mod either_or;
mod fair;
mod fair_laws;
mod fair_queue;
mod fair_slots;
mod full_store;
mod given_back;
mod guaranteed;
#[cfg(feature = "calendar")]
mod hours_in_decisions;
mod layered_limits;
mod overriding;
mod penalties;
mod plans;
mod settling;
#[cfg(feature = "calendar")]
mod slow_hours;
mod split;
mod taking;
mod threads;
mod time;

use std::time::Duration;

use tower_ratelimit::{
    Algorithm, AnchoredWindow, FixedWindow, Gcra, LeakyBucket, Quota, SlidingLog, SlidingSlots,
    SlidingWindow, TokenBucket,
};

use crate::support::driver::{Driver, Memory, Seen};

/// New Year 2024, midnight UTC, in microseconds.
const START: u64 = 1_704_067_200_000_000;

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

fn quota(limit: u32, period: Duration) -> Quota {
    Quota::new(limit, period).expect("a period in range")
}

/// Returns the window family, with this limit and period.
fn windows(quota: Quota) -> [Algorithm; 5] {
    [
        FixedWindow::of(quota).into(),
        AnchoredWindow::of(quota).into(),
        SlidingLog::up_to(u32::MAX, quota).unwrap().into(),
        SlidingWindow::of(quota).into(),
        SlidingSlots::of(quota).unwrap().into(),
    ]
}

/// Returns the bucket family, with this rate and capacity.
fn buckets(quota: Quota, capacity: u32) -> [Algorithm; 4] {
    [
        Gcra::of(quota).burst(capacity).into(),
        TokenBucket::of(quota).burst(capacity).into(),
        LeakyBucket::of(quota).capacity(capacity).into(),
        TokenBucket::of(quota).burst(capacity).by_interval().into(),
    ]
}

/// Every algorithm, with this limit and period.
fn every(quota: Quota) -> impl Iterator<Item = Algorithm> {
    let buckets = buckets(quota, quota.limit());
    windows(quota).into_iter().chain(buckets)
}

/// Sends requests of cost 1 at one instant until one is denied. Returns how many were allowed.
fn exhaust(driver: &mut impl Driver, at: u64) -> u32 {
    let mut admitted = 0;
    loop {
        let seen = driver.decide(at, 1);
        if !seen.allowed {
            return admitted;
        }
        admitted += 1;
        assert!(admitted <= seen.limit, "no end of requests is allowed");
    }
}

/// Returns a key of this algorithm through a limiter with a store in memory.
fn key(algorithm: Algorithm) -> Memory {
    Memory::new(algorithm)
}

fn longest_wait(algorithm: Algorithm) -> u64 {
    let wait = algorithm.longest_wait().expect("a limit above 0");
    crate::support::driver::micros(wait)
}

fn retry(seen: Seen) -> u64 {
    seen.retry_after.expect("a request that can pass")
}
