//! Smoothing by the time that has passed, and not by the number of samples: a late sample counts for as long
//! as it was late, because the scheduler is late exactly when it matters.

use std::time::Duration;

use crate::Load;

/// An exponential average of loads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Smoothed {
    /// A fixed-point number, in units of 10⁻¹², so that small changes are not lost.
    value: u64,
    at: Duration,
}

impl Smoothed {
    /// Begins with this load.
    pub(super) fn new(load: Load, at: Duration) -> Self {
        Self {
            value: u64::from(load.get()) * FINE,
            at,
        }
    }

    /// Adds a load that was read now, as if it had lasted since the previous one.
    pub(super) fn take(&mut self, load: Load, now: Duration, constant: Duration) {
        let left = left_after(now.saturating_sub(self.at), constant);
        let new = u64::from(load.get()) * FINE;
        let (old, new) = (u128::from(self.value), u128::from(new));
        let sum = (old * left + new * (ONE - left)) >> BITS;
        self.value = u64::try_from(sum).unwrap_or(u64::MAX);
        self.at = self.at.max(now);
    }

    /// Returns the average, rounded to the nearest.
    pub(super) fn load(self) -> Load {
        let millionths = (self.value + FINE / 2) / FINE;
        Load::millionths(u32::try_from(millionths).unwrap_or(u32::MAX))
    }
}

const FINE: u64 = 1_000_000;

const BITS: u32 = 60;

const ONE: u128 = 1 << BITS;

/// Returns `e^(−elapsed/constant)`, times 2^60: a series for a small part of the exponent, squared
/// repeatedly.
fn left_after(elapsed: Duration, constant: Duration) -> u128 {
    /// After this many time constants, nothing is left.
    const LONG: u128 = 40;
    let (elapsed, constant) = (elapsed.as_micros(), constant.as_micros());
    if elapsed >= constant.saturating_mul(LONG) {
        return 0;
    }
    let mut exponent = (elapsed << BITS) / constant;
    let mut squares = 0;
    while exponent > ONE >> 10 {
        exponent >>= 1;
        squares += 1;
    }
    let second = (exponent * exponent) >> (BITS + 1);
    let mut left = ONE - exponent + second;
    for _ in 0..squares {
        left = (left * left) >> BITS;
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_remainder_is_the_exponential() {
        for (elapsed, expected) in [
            (0, 1.0),
            (2_000, 0.367_879_4),
            (500, 0.778_800_8),
            (20_000, 0.000_045_4),
        ] {
            let left = left_after(Duration::from_millis(elapsed), Duration::from_secs(2));
            #[expect(clippy::cast_precision_loss, reason = "a test compares to six digits")]
            let left = left as f64 / ONE as f64;
            assert!((left - expected).abs() < 1e-6, "{elapsed} ms: {left}");
        }
        assert_eq!(left_after(Duration::MAX, Duration::from_secs(1)), 0);
        assert_eq!(left_after(Duration::ZERO, Duration::ZERO), 0);
    }

    #[test]
    fn a_jump_reaches_nine_tenths_in_2_3_time_constants() {
        let mut smoothed = Smoothed::new(Load::NONE, Duration::ZERO);
        smoothed.take(
            Load::FULL,
            Duration::from_millis(4_605),
            Duration::from_secs(2),
        );
        assert_eq!(smoothed.load().get() / 1_000, 899);
    }

    proptest! {
        #[test]
        fn many_samples_of_one_load_count_as_one_late_sample(
            cuts in proptest::collection::vec(0_u64..10_000, 0..6),
            (from, to) in (0_u32..2_000_000, 0_u32..2_000_000),
        ) {
            let constant = Duration::from_secs(2);
            let at = |millis| Duration::from_millis(millis);
            let mut once = Smoothed::new(Load::millionths(from), Duration::ZERO);
            once.take(Load::millionths(to), at(10_000), constant);
            let mut often = Smoothed::new(Load::millionths(from), Duration::ZERO);
            let mut cuts = cuts;
            cuts.sort_unstable();
            for cut in cuts.into_iter().chain([10_000]) {
                often.take(Load::millionths(to), at(cut), constant);
            }
            prop_assert!(once.load().get().abs_diff(often.load().get()) <= 2);
        }
    }
}
