/// `SplitMix64`: the same numbers for the same seed, on every machine.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// Returns an index of a list of this length.
    #[expect(clippy::cast_possible_truncation, reason = "it is below a length")]
    pub(super) fn place(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    pub(super) fn one_of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.place(list.len())]
    }

    /// Returns a number from 0 to 1, without 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits")]
    pub(super) fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(super) fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.part() < probability
    }

    /// Returns the time to the next event of a Poisson process.
    pub(super) fn gap(&mut self, per_micro: f64) -> f64 {
        -(1.0 - self.part()).ln() / per_micro
    }

    /// Returns how long a message travels in one room: 0.1 to 1 ms, and one in a hundred up to 10 ms.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a time in microseconds"
    )]
    pub(super) fn trip(&mut self) -> u64 {
        if self.happens(0.01) {
            return 1_000 + self.below(9_000);
        }
        let spread = (self.part() + self.part() + self.part()) / 3.0;
        (100.0 * 10_f64.powf(spread)) as u64
    }
}
