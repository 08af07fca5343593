/// What is kept of one key under one policy: three words that only the algorithm reads.
///
/// All zero is a key that was never seen. Every word of a state that an algorithm writes before
/// the year 2255 is below 2^53, so that languages whose numbers are doubles hold it exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct State([u64; 3]);

impl State {
    /// The state of a key that was never seen.
    pub const NEW: Self = Self([0; 3]);

    /// A state that was kept elsewhere.
    pub const fn from_words(words: [u64; 3]) -> Self {
        Self(words)
    }

    /// The words, to be kept elsewhere.
    pub const fn words(self) -> [u64; 3] {
        self.0
    }
}
