//! Numbers that look random, the same in each run.

/// Numbers from 0 to 1, drawn by xorshift.
pub(super) struct Draw(u64);

impl Draw {
    /// Draws from this seed, which is not 0.
    pub(super) fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
    pub(super) fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}
