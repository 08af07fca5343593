//! Random numbers, from a seed.

/// How long a request takes, of the mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::adapt) enum Law {
    /// A log-normal number whose logarithm deviates by a half, as the times of services do.
    LogNormal,
    /// As in a queue of the kind M/M/c, of which formulas are known.
    Exponential,
}

/// A generator of random numbers by Steele, Lea and Flood (`SplitMix64`).
pub(in crate::adapt) struct Random(u64);

impl Random {
    pub(in crate::adapt) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(in crate::adapt) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From 0, and below 1.
    pub(in crate::adapt) fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// An exponential number with a mean of 1.
    pub(super) fn exponential(&mut self) -> f64 {
        -(1.0 - self.uniform()).ln()
    }

    /// A time by this law, with a mean of 1.
    pub(super) fn time(&mut self, law: Law) -> f64 {
        const DEVIATION: f64 = 0.5;
        match law {
            Law::Exponential => self.exponential(),
            Law::LogNormal => {
                let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
                let normal = radius * (std::f64::consts::TAU * self.uniform()).cos();
                (DEVIATION * normal - DEVIATION * DEVIATION / 2.0).exp()
            }
        }
    }
}
