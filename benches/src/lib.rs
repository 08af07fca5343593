//! What the benchmarks share. `make bench` runs them all, in rounds, and ends with one table.

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

/// How criterion measures a row in one round of several: shortly, so that the rows that are compared follow
/// within seconds.
pub fn a_round() -> Criterion {
    Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400))
        // Medians are all that is wanted of the statistics.
        .nresamples(1_000)
}

/// One in a microsecond, and a burst of as many: a limit that nothing here ever reaches, and
/// that is a whole number in nanoseconds too.
pub const PLENTY: u32 = 3_600_000_000;

/// How many keys a thread has to itself: one, as many as a core's caches hold, and more.
pub const EACH_THREADS_KEYS: [u32; 3] = [1, 5_000, 500_000];

/// What each of so many keys may have in a day so that none is ever refused here, and so that
/// one that has asked once has state for longer than it takes until it asks again: a key that
/// is as good as new may be forgotten, and would cost less than it should.
pub const fn a_day_among(keys: u32) -> u32 {
    (10_000_000_000 / keys as u64) as u32
}
