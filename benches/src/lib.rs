//! What the benchmarks share. `make bench` runs them all and ends with one table.

pub mod figures;
pub mod growth;
pub mod keys;
pub mod least;
pub mod ours;
pub mod peers;
pub mod requests;
pub mod table;
pub mod threads;

/// One in a microsecond, and a burst of as many: a limit that nothing here ever reaches, and
/// that is a whole number for those who count in nanoseconds.
pub const PLENTY: u32 = 3_600_000_000;

/// How many keys a thread has to itself: one, as many as a core's caches hold, and more.
pub const EACH_THREADS_KEYS: [u32; 3] = [1, 5_000, 500_000];

/// What each of so many keys may have in a day so that none is ever refused here, and so that
/// one that has asked once has state for longer than it takes until it asks again: a key that
/// is as good as new may be forgotten, and would cost less than it should.
pub const fn a_day_among(keys: u32) -> u32 {
    (10_000_000_000 / keys as u64) as u32
}
