use smallvec::SmallVec;

/// What is kept of one key under one policy: words that only the algorithm reads.
///
/// No words at all is a key that was never seen. Up to three are kept in place; only a sliding
/// log, sliding slots and a bucket that owes more than its capacity need more. Every word that an algorithm writes before the year 2255 is
/// below 2^53, so that languages whose numbers are doubles hold it exactly.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State(SmallVec<[u64; 3]>);

impl State {
    /// The state of a key that was never seen.
    pub const NEW: Self = Self(SmallVec::new_const());

    /// A state that was kept elsewhere.
    pub fn from_words(words: &[u64]) -> Self {
        Self(SmallVec::from_slice(words))
    }

    /// The words, to be kept elsewhere.
    pub fn words(&self) -> &[u64] {
        &self.0
    }

    /// The first words, zero where there are none.
    pub(super) fn first<const N: usize>(&self) -> [u64; N] {
        std::array::from_fn(|index| self.0.get(index).copied().unwrap_or(0))
    }

    /// These words, or none if all are zero.
    pub(super) fn unless_new<const N: usize>(words: [u64; N]) -> Self {
        if words == [0; N] {
            return Self::NEW;
        }
        Self::from_words(&words)
    }

    pub(super) fn words_mut(&mut self) -> &mut SmallVec<[u64; 3]> {
        &mut self.0
    }
}
