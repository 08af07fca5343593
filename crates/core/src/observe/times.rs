//! How long things take, in buckets whose bounds are an eighth apart, so that a percentile is right to 12 %.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts lengths of time, from 8 µs to five hours. Shorter and longer ones count as these.
#[derive(Debug)]
pub struct Times([AtomicU64; BUCKETS]);

/// Eight for each doubling.
const BUCKETS: usize = 8 * 32;

impl Times {
    /// Records that a request took this long.
    #[inline]
    pub fn note(&self, time: Duration) {
        self.note_each(time, 1);
    }

    /// Records that this many requests took this long.
    #[inline]
    pub fn note_each(&self, time: Duration, requests: u64) {
        if let Some(count) = self.0.get(bucket(time)) {
            count.fetch_add(requests, Ordering::Relaxed);
        }
    }

    /// Returns the number of times in each bucket.
    pub fn counts(&self) -> Vec<u64> {
        let counts = self.0.iter();
        counts.map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// Returns the time that one in `number` of these took, or longer, or `None` if there are none.
    pub fn one_in(number: u64, counts: &[u64]) -> Option<Duration> {
        let all: u64 = counts.iter().sum();
        let mut left = all.div_ceil(number.max(1));
        if left == 0 {
            return None;
        }
        let slowest = counts.iter().enumerate().rev().find(|(_, count)| {
            left = left.saturating_sub(**count);
            left == 0
        });
        Some(Duration::from_micros(end_of(slowest?.0)))
    }

    pub(super) fn forget(&self) {
        for count in &self.0 {
            count.store(0, Ordering::Relaxed);
        }
    }
}

impl Default for Times {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// Returns the bucket of a time: its number of bits, and the three bits below the first.
fn bucket(time: Duration) -> usize {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(8);
    let shift = 60 - micros.leading_zeros();
    let place = u64::from(shift) * 8 + (micros >> shift) % 8;
    usize::try_from(place)
        .unwrap_or(usize::MAX)
        .min(BUCKETS - 1)
}

/// Returns the longest time in a bucket, in microseconds.
fn end_of(bucket: usize) -> u64 {
    let (shift, part) = (bucket / 8, (bucket % 8) as u64);
    ((8 + part + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_in_so_many_takes_longer() {
        let times = Times::default();
        assert_eq!(Times::one_in(2, &times.counts()), None);
        for millis in 1..=100 {
            times.note(Duration::from_millis(millis));
        }
        for (number, millis) in [(2, 51.0), (10, 91.0), (100, 100.0)] {
            let measured = Times::one_in(number, &times.counts())
                .unwrap()
                .as_secs_f64()
                * 1e3;
            assert!(
                (millis..millis * 1.13).contains(&measured),
                "{number}: {measured}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_time_is_in_a_bucket_that_ends_at_most_an_eighth_later(micros in 8_u64..10_000_000_000) {
            let end = end_of(bucket(Duration::from_micros(micros)));
            prop_assert!(end >= micros && end - micros <= micros / 8, "{} to {}", micros, end);
        }
    }
}
