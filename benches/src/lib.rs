//! The shared parts of the benchmarks. `make bench` runs them all, in rounds, and ends with one table.

pub mod factors;
pub mod figures;
pub mod growth;
pub mod keys;
pub mod least;
pub mod ours;
pub mod peers;
pub mod requests;
pub mod table;
pub mod threads;

use std::time::Duration;

use criterion::Criterion;

/// Configures criterion for a row in one of several rounds: short, so that the rows that are compared follow
/// within seconds.
pub fn a_round() -> Criterion {
    Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400))
        // The table needs only medians.
        .nresamples(1_000)
}

/// A limit of one request in a microsecond, and a burst of as many: no benchmark reaches it, and it is a
/// whole number in nanoseconds too.
pub const PLENTY: u32 = 3_600_000_000;

/// The numbers of keys of a thread: one, as many as a core's caches hold, and more.
pub const EACH_THREADS_KEYS: [u32; 3] = [1, 5_000, 500_000];

/// Returns a daily limit for each of this many keys that refuses no request here. A key that has had one
/// request keeps its state until the next one: a key that is as good as new may be forgotten, and would cost
/// less than it should.
pub const fn a_day_among(keys: u32) -> u32 {
    (10_000_000_000 / keys as u64) as u32
}
