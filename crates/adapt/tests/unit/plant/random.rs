//! Random numbers, from a seed.

/// The distribution of the time of a request, in multiples of the mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Distribution {
    /// A log-normal number whose logarithm deviates by a half, as the times of services do.
    LogNormal,
    /// As in an M/M/c queue, for which there are formulas.
    Exponential,
}

/// The random number generator of Steele, Lea and Flood (`SplitMix64`).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to below 1.
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns an exponential number with a mean of 1.
    pub(super) fn exponential(&mut self) -> f64 {
        -(1.0 - self.uniform()).ln()
    }

    /// Returns a time of this distribution, with a mean of 1.
    pub(super) fn time(&mut self, distribution: Distribution) -> f64 {
        const DEVIATION: f64 = 0.5;
        match distribution {
            Distribution::Exponential => self.exponential(),
            Distribution::LogNormal => {
                let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
                let normal = radius * (std::f64::consts::TAU * self.uniform()).cos();
                (DEVIATION * normal - DEVIATION * DEVIATION / 2.0).exp()
            }
        }
    }
}
